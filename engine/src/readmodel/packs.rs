//! Packs of events: the events of consecutive commands in one message, with an index of the names and numbers in each
//! pack.

mod run;

pub(crate) use run::{Run, Written, runs};

use super::rows::{EventRow, Place};
use crate::events::message::{Parties, Party};
use bytes::Bytes;
use kubebid_core::EventKind;
use kubebid_core::units::{AccountName, BidId, Micros, Seq};
use kubebid_proto::v1;
use prost::{DecodeError, Message};

/// Commands in a pack, at most.
pub(crate) const PACK: u64 = 64;
/// Commands in a run, at most: a bit for each of its packs.
pub(crate) const RUN: u64 = PACK * u64::BITS as u64;
/// The account in the index that stands for everyone.
pub(crate) const EVERYONE: &str = "";

/// Events of some commands that follow each other, as a message.
#[derive(Clone, PartialEq, Message)]
pub struct Pack {
    /// Names of accounts, markets, instance types and kinds. Events refer to them by position.
    #[prost(string, repeated, tag = "1")]
    names: Vec<String>,
    #[prost(uint64, tag = "2")]
    base_us: u64,
    #[prost(message, repeated, tag = "3")]
    events: Vec<PackedEvent>,
}

/// An event and all by which it is found.
#[derive(Clone, PartialEq, Message)]
struct PackedEvent {
    /// The number of the command, counted from the first one of the pack.
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(uint32, tag = "2")]
    index: u32,
    /// The time, counted from the pack's base.
    #[prost(uint64, tag = "3")]
    at_us: u64,
    #[prost(uint32, tag = "4")]
    kind: u32,
    /// The market of the unit or the offer, or the only market of the bid.
    #[prost(uint32, optional, tag = "5")]
    market: Option<u32>,
    /// The markets of a bid that names several.
    #[prost(uint32, repeated, tag = "6")]
    markets: Vec<u32>,
    /// The instance type of a bid that names one.
    #[prost(uint32, optional, tag = "7")]
    instance_type: Option<u32>,
    #[prost(uint64, optional, tag = "8")]
    allocation: Option<u64>,
    #[prost(message, optional, tag = "9")]
    holder: Option<PackedParty>,
    #[prost(message, optional, tag = "10")]
    claimant: Option<PackedParty>,
    #[prost(message, optional, tag = "11")]
    former: Option<PackedParty>,
    #[prost(uint32, optional, tag = "12")]
    provider: Option<u32>,
    #[prost(uint32, optional, tag = "13")]
    account: Option<u32>,
    /// `kubebid.auction.v1.Event`, in full.
    #[prost(bytes = "bytes", tag = "14")]
    body: Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct PackedParty {
    #[prost(uint32, tag = "1")]
    account: u32,
    #[prost(uint64, tag = "2")]
    bid: u64,
}

impl PackedEvent {
    /// All names that it speaks of.
    fn names(&self) -> impl Iterator<Item = u32> {
        let parties = [self.holder, self.claimant, self.former].into_iter().flatten();
        let others = [Some(self.kind), self.market, self.instance_type, self.provider, self.account];
        parties.map(|party| party.account).chain(others.into_iter().flatten()).chain(self.markets.clone())
    }
}

impl Pack {
    /// # Errors
    /// It is no pack: what is wrong.
    pub fn read(body: Vec<u8>) -> Result<Pack, String> {
        let pack = Pack::decode(Bytes::from(body)).map_err(|error| error.to_string())?;
        let known = |name: u32| (name as usize) < pack.names.len();
        match pack.events.iter().find(|event| !event.names().all(known)) {
            Some(event) => Err(format!("the event {}.{} names what is not there", event.seq, event.index)),
            None => Ok(pack),
        }
    }

    /// Returns the events in order; `first_seq` is the pack's.
    pub fn events(&self, first_seq: u64) -> impl DoubleEndedIterator<Item = Packed<'_>> + ExactSizeIterator {
        self.events.iter().map(move |event| Packed { pack: self, first_seq, event })
    }
}

/// An event in its pack.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    pack: &'a Pack,
    first_seq: u64,
    event: &'a PackedEvent,
}

impl<'a> Packed<'a> {
    pub(crate) fn place(&self) -> Place {
        (self.first_seq + self.event.seq, self.event.index)
    }

    pub(crate) fn at(&self) -> Micros {
        Micros(self.pack.base_us.wrapping_add(self.event.at_us))
    }

    /// Returns the kind of the event; None if this program does not know it.
    pub(crate) fn kind(&self) -> Option<EventKind> {
        EventKind::of_word(self.name(self.event.kind))
    }

    pub(crate) fn allocation(&self) -> Option<u64> {
        self.event.allocation
    }

    /// Returns the market of the unit or the offer, or the only market of the bid.
    pub(crate) fn market(&self) -> Option<&'a str> {
        self.event.market.map(|name| self.name(name))
    }

    /// Returns the markets of a bid that names several.
    pub(crate) fn markets(&self) -> impl Iterator<Item = &'a str> {
        let event = *self;
        self.event.markets.iter().map(move |name| event.name(*name))
    }

    /// Returns the instance type of a bid that names one.
    pub(crate) fn instance_type(&self) -> Option<&'a str> {
        self.event.instance_type.map(|name| self.name(name))
    }

    /// Holder, claimant and former claimant, with their bids.
    pub(crate) fn bidders(&self) -> [Option<(&'a str, u64)>; 3] {
        let PackedEvent { holder, claimant, former, .. } = self.event;
        [holder, claimant, former].map(|party| party.map(|party| (self.name(party.account), party.bid)))
    }

    /// Returns who placed which bid, where that is what happened.
    pub(crate) fn placed(&self) -> Option<(&'a str, u64)> {
        self.bidders()[0].filter(|_| self.kind() == Some(EventKind::BidPlaced))
    }

    pub(crate) fn provider(&self) -> Option<&'a str> {
        self.event.provider.map(|name| self.name(name))
    }

    /// Returns who gave the command that was refused or repeated.
    pub(crate) fn account(&self) -> Option<&'a str> {
        self.event.account.map(|name| self.name(name))
    }

    /// # Errors
    /// Its body is no event.
    pub fn row(&self) -> Result<EventRow, DecodeError> {
        let party = |(account, bid)| Party { account: AccountName::new(account), bid: BidId(bid) };
        let [holder, claimant, former] = self.bidders().map(|bidder| bidder.map(party));
        let (seq, index) = self.place();
        Ok(EventRow {
            seq: Seq(seq),
            index,
            at: self.at(),
            parties: Parties {
                holder,
                claimant,
                former,
                provider: self.provider().map(AccountName::new),
                account: self.account().map(AccountName::new),
            },
            event: v1::Event::decode(self.event.body.clone())?,
        })
    }

    fn name(&self, name: u32) -> &'a str {
        &self.pack.names[name as usize]
    }
}
