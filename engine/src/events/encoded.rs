//! The events of a commit, encoded once for all subscribers and indexed by the accounts they concern.

use super::message::{EventMessage, Parties, price_point};
use bytes::Bytes;
use kubebid_core::units::AccountName;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The number of the repeated field in both `WatchEventsResponse` (events) and `WatchPricesResponse`
/// (points).
const THINGS: u32 = 1;

#[derive(Debug)]
pub(crate) struct EncodedEvents {
    /// The events in the order in which they happened.
    pub(crate) events: Vec<Arc<EventMessage>>,
    encoded: OnceLock<Encoded>,
    concerned: OnceLock<Concerned>,
    prices: OnceLock<Prices>,
}

#[derive(Debug)]
struct Encoded {
    bytes: Bytes,
    /// The position at which each event begins, and the end of the last one.
    begins: Vec<usize>,
}

impl Encoded {
    /// Returns the bytes of consecutive events.
    fn run(&self, run: &Range<usize>) -> Bytes {
        self.bytes.slice(self.begins[run.start]..self.begins[run.end])
    }
}

/// The price changes among the events, as points for those who watch prices.
#[derive(Debug)]
pub(crate) struct Prices {
    /// The positions of their events in the commit, in order.
    pub(crate) events: Vec<usize>,
    encoded: Encoded,
}

impl Prices {
    /// Returns consecutive points as they are in a frame of WatchPrices.
    pub(crate) fn encoded(&self, run: &Range<usize>) -> Bytes {
        self.encoded.run(run)
    }

    /// Returns the byte at which each point begins, and the end of the last one.
    pub(crate) fn begins(&self) -> &[usize] {
        &self.encoded.begins
    }
}

/// The positions of the events that concern each account.
#[derive(Debug, Default)]
struct Concerned {
    by_account: BTreeMap<AccountName, Vec<usize>>,
    everybody: Vec<usize>,
}

impl EncodedEvents {
    pub(crate) fn new(events: Vec<Arc<EventMessage>>) -> EncodedEvents {
        EncodedEvents {
            events,
            encoded: OnceLock::new(),
            concerned: OnceLock::new(),
            prices: OnceLock::new(),
        }
    }

    /// Returns consecutive events as they are in a frame of WatchEvents.
    pub(crate) fn encoded(&self, run: &Range<usize>) -> Bytes {
        self.all_encoded().run(run)
    }

    /// Returns the byte at which each event begins in such a frame, and the end of the last one.
    pub(crate) fn begins(&self) -> &[usize] {
        &self.all_encoded().begins
    }

    fn all_encoded(&self) -> &Encoded {
        self.encoded.get_or_init(|| encode(self.events.iter().map(|message| message.encoded())))
    }

    /// Returns the price changes. They are encoded when a watch of prices first asks.
    pub(crate) fn prices(&self) -> &Prices {
        self.prices.get_or_init(|| {
            let points = self.events.iter().enumerate();
            let points =
                points.filter_map(|(at, message)| Some((at, price_point(&message.event)?.encode_to_vec())));
            let (events, points): (Vec<usize>, Vec<Vec<u8>>) = points.unzip();
            Prices { events, encoded: encode(points.iter()) }
        })
    }

    /// Returns the positions of the events that may concern an account, in order; all positions if no
    /// account is given.
    pub(crate) fn places(&self, account: Option<&AccountName>) -> Box<dyn Iterator<Item = usize> + '_> {
        let Some(account) = account else { return Box::new(0..self.events.len()) };
        let Concerned { by_account, everybody } = self.concerned();
        let own = by_account.get(account).map_or(&[][..], |places| places);
        let mut places = [own, everybody].concat();
        places.sort_unstable();
        Box::new(places.into_iter())
    }

    /// Returns the accounts that some of the events concern in particular.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = &AccountName> {
        self.concerned().by_account.keys()
    }

    /// Returns true if some of the events concern everybody, because they are about a market.
    pub(crate) fn concerns_everybody(&self) -> bool {
        !self.concerned().everybody.is_empty()
    }

    fn concerned(&self) -> &Concerned {
        self.concerned.get_or_init(|| index(&self.events))
    }
}

fn encode(things: impl ExactSizeIterator<Item = impl AsRef<[u8]>>) -> Encoded {
    let mut bytes = Vec::with_capacity(128 * things.len());
    let mut begins = Vec::with_capacity(things.len() + 1);
    begins.push(0);
    for thing in things {
        add(thing.as_ref(), &mut bytes);
        begins.push(bytes.len());
    }
    Encoded { bytes: bytes.into(), begins }
}

/// Appends an encoded event or point to a frame.
pub(crate) fn add(thing: &[u8], frame: &mut Vec<u8>) {
    encode_key(THINGS, WireType::LengthDelimited, frame);
    encode_varint(thing.len() as u64, frame);
    frame.extend_from_slice(thing);
}

fn index(events: &[Arc<EventMessage>]) -> Concerned {
    let mut concerned = Concerned::default();
    for (place, message) in events.iter().enumerate() {
        if message.concerns_everybody() {
            concerned.everybody.push(place);
        }
        let Parties { holder, claimant, former, provider, account } = &message.parties;
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
