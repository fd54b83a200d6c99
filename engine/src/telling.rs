//! The events of a chunk as those who follow the market hear them: told in full once, encoded once, and found by
//! whom they concern.

use crate::wire::event::{Parties, Told};
use bytes::Bytes;
use kubebid_core::units::AccountName;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The field of `WatchEventsResponse` that the events are in.
const EVENTS: u32 = 1;

#[derive(Debug)]
pub(crate) struct Telling {
    /// In the order in which they happened.
    pub(crate) events: Vec<Arc<Told>>,
    encoded: OnceLock<Encoded>,
    concerned: OnceLock<Concerned>,
}

#[derive(Debug)]
struct Encoded {
    bytes: Bytes,
    /// Where each event begins, and where the last one ends.
    begins: Vec<usize>,
}

/// Which events concern whom, by their places.
#[derive(Debug, Default)]
struct Concerned {
    by_account: BTreeMap<AccountName, Vec<usize>>,
    everybody: Vec<usize>,
}

impl Telling {
    pub(crate) fn new(events: Vec<Arc<Told>>) -> Telling {
        Telling { events, encoded: OnceLock::new(), concerned: OnceLock::new() }
    }

    /// Some events that follow each other, as they are in a frame of WatchEvents.
    pub(crate) fn encoded(&self, run: &Range<usize>) -> Bytes {
        let Encoded { bytes, begins } = self.encoded.get_or_init(|| encode(&self.events));
        bytes.slice(begins[run.start]..begins[run.end])
    }

    /// The places of all events that may concern an account, or of all where none is named; in order.
    pub(crate) fn places(&self, account: Option<&AccountName>) -> Box<dyn Iterator<Item = usize> + '_> {
        let Some(account) = account else { return Box::new(0..self.events.len()) };
        let Concerned { by_account, everybody } = self.concerned();
        let own = by_account.get(account).map_or(&[][..], |places| places);
        let mut places = [own, everybody].concat();
        places.sort_unstable();
        Box::new(places.into_iter())
    }

    /// Whom some of the events concern in particular.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = &AccountName> {
        self.concerned().by_account.keys()
    }

    /// Whether some are about the market itself.
    pub(crate) fn concerns_everybody(&self) -> bool {
        !self.concerned().everybody.is_empty()
    }

    fn concerned(&self) -> &Concerned {
        self.concerned.get_or_init(|| index(&self.events))
    }
}

fn encode(events: &[Arc<Told>]) -> Encoded {
    let mut bytes = Vec::with_capacity(128 * events.len());
    let mut begins = Vec::with_capacity(events.len() + 1);
    begins.push(0);
    for told in events {
        add_event(told.encoded(), &mut bytes);
        begins.push(bytes.len());
    }
    Encoded { bytes: bytes.into(), begins }
}

/// Adds an event to what is encoded of a frame.
pub(crate) fn add_event(event: &[u8], frame: &mut Vec<u8>) {
    encode_key(EVENTS, WireType::LengthDelimited, frame);
    encode_varint(event.len() as u64, frame);
    frame.extend_from_slice(event);
}

fn index(events: &[Arc<Told>]) -> Concerned {
    let mut concerned = Concerned::default();
    for (place, told) in events.iter().enumerate() {
        if told.concerns_everybody() {
            concerned.everybody.push(place);
        }
        let Parties { holder, claimant, former, provider, account } = &told.parties;
        let parties = [holder, claimant, former].into_iter().flatten().map(|party| &party.account);
        for account in parties.chain(provider).chain(account) {
            let places = concerned.by_account.entry(account.clone()).or_default();
            if places.last() != Some(&place) {
                places.push(place);
            }
        }
    }
    concerned
}
