//! Events in packs: those of commands that follow each other in one message, with whom they concern, and which
//! names and numbers are in which packs.

use super::fold::{Folded, Scoped};
use super::rows::{EventRow, Place};
use crate::wire::event::{Parties, Party, Told};
use bytes::Bytes;
use kubebid_core::units::{AccountName, AllocationId, BidId, Micros, Seq};
use kubebid_proto::v1;
use prost::{DecodeError, Message};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Commands in a pack, at most.
pub(crate) const PACK: u64 = 64;
/// Commands in a run, at most: a bit for each of its packs.
pub(crate) const RUN: u64 = PACK * u64::BITS as u64;
/// The account in the index that stands for everyone.
pub(crate) const EVERYONE: &str = "";

const PLACED: &str = "bid_placed";

/// Packs that are written together, and what is in which of them: bit n is pack n.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    /// The command of its first event.
    pub(crate) first_seq: u64,
    pub(crate) packs: Vec<Written>,
    pub(crate) accounts: BTreeMap<&'a str, u64>,
    pub(crate) markets: BTreeMap<&'a str, u64>,
    pub(crate) kinds: BTreeMap<&'a str, u64>,
    /// Without those that were placed: the number of a bid says where that was.
    pub(crate) bids: BTreeMap<BidId, u64>,
    pub(crate) allocations: BTreeMap<AllocationId, u64>,
    /// In order.
    pub(crate) placed: Vec<BidId>,
}

/// A pack as the table takes it.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) first_seq: u64,
    pub(crate) last_at: u64,
    pub(crate) body: Pack,
}

/// The events in runs.
pub(crate) fn runs(folded: &Folded) -> Vec<Run<'_>> {
    let (mut runs, mut rest) = (Vec::new(), &folded.events[..]);
    while let Some(first) = rest.first() {
        let first_seq = first.event.seq;
        let (events, behind) = rest.split_at(rest.partition_point(|told| told.event.seq < first_seq + RUN));
        runs.push(Run::of(first_seq, events, folded));
        rest = behind;
    }
    runs
}

impl<'a> Run<'a> {
    fn of(first_seq: u64, events: &'a [Arc<Told>], folded: &'a Folded) -> Run<'a> {
        let mut run = Run {
            first_seq,
            packs: Vec::new(),
            accounts: BTreeMap::new(),
            markets: BTreeMap::new(),
            kinds: BTreeMap::new(),
            bids: BTreeMap::new(),
            allocations: BTreeMap::new(),
            placed: Vec::new(),
        };
        let number = |told: &Arc<Told>| (told.event.seq - first_seq) / PACK;
        for events in events.chunk_by(|a, b| number(a) == number(b)) {
            run.add(number(&events[0]), events, folded);
        }
        run
    }

    fn add(&mut self, number: u64, events: &'a [Arc<Told>], folded: &'a Folded) {
        let bit = 1 << number;
        let mut pack = Filling { base: events[0].event.at_us, ..Filling::default() };
        for told in events {
            let scope = told.parties.holder.as_ref().and_then(|holder| folded.scopes.get(&holder.bid));
            let scope = scope.filter(|_| told.market.is_none());
            self.find_by(told, scope, bit);
            pack.add(self.first_seq + number * PACK, told, scope);
        }
        self.packs.push(Written {
            first_seq: self.first_seq + number * PACK,
            last_at: events.last().expect("a pack has an event").event.at_us,
            body: Pack { names: pack.names, base_us: pack.base, events: pack.events },
        });
    }

    fn find_by(&mut self, told: &'a Told, scope: Option<&'a Scoped>, bit: u64) {
        let Parties { holder, claimant, former, provider, account } = &told.parties;
        let placed = told.kind == PLACED;
        for party in [holder, claimant, former].into_iter().flatten() {
            *self.accounts.entry(party.account.as_str()).or_default() |= bit;
            if placed {
                self.placed.push(party.bid);
            } else {
                *self.bids.entry(party.bid).or_default() |= bit;
            }
        }
        for account in provider.iter().chain(account) {
            *self.accounts.entry(account.as_str()).or_default() |= bit;
        }
        if told.concerns_everybody() {
            *self.accounts.entry(EVERYONE).or_default() |= bit;
        }
        if let Some(allocation) = told.allocation {
            *self.allocations.entry(allocation).or_default() |= bit;
        }
        let named = scope.into_iter().flat_map(|scope| scope.markets.iter().chain(&scope.instance_type));
        for market in told.market.iter().map(|market| market.as_str()).chain(named.map(|name| &name[..])) {
            *self.markets.entry(market).or_default() |= bit;
        }
        *self.kinds.entry(told.kind).or_default() |= bit;
    }
}

/// A pack that is being filled.
#[derive(Default)]
struct Filling<'a> {
    base: u64,
    names: Vec<String>,
    numbers: BTreeMap<&'a str, u32>,
    events: Vec<PackedEvent>,
}

impl<'a> Filling<'a> {
    fn add(&mut self, first_seq: u64, told: &'a Told, scope: Option<&'a Scoped>) {
        let Parties { holder, claimant, former, provider, account } = &told.parties;
        let event = PackedEvent {
            seq: told.event.seq - first_seq,
            index: told.event.index,
            at_us: told.event.at_us.wrapping_sub(self.base),
            kind: self.name(told.kind),
            market: told.market.as_ref().map(|market| self.name(market.as_str())),
            markets: scope
                .map_or(Vec::new(), |scope| scope.markets.iter().map(|market| self.name(market)).collect()),
            instance_type: scope.and_then(|scope| Some(self.name(scope.instance_type.as_ref()?))),
            allocation: told.allocation.map(|allocation| allocation.0),
            holder: self.party(holder),
            claimant: self.party(claimant),
            former: self.party(former),
            provider: provider.as_ref().map(|name| self.name(name.as_str())),
            account: account.as_ref().map(|name| self.name(name.as_str())),
            body: told.encoded().clone(),
        };
        self.events.push(event);
    }

    fn party(&mut self, party: &'a Option<Party>) -> Option<PackedParty> {
        let Party { account, bid } = party.as_ref()?;
        Some(PackedParty { account: self.name(account.as_str()), bid: bid.0 })
    }

    fn name(&mut self, name: &'a str) -> u32 {
        *self.numbers.entry(name).or_insert_with(|| {
            self.names.push(name.to_owned());
            self.names.len() as u32 - 1
        })
    }
}

/// Events of some commands that follow each other, as a message.
#[derive(Clone, PartialEq, Message)]
pub struct Pack {
    /// Of accounts, markets, instance types and kinds: events name them by their places here.
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
    /// Behind the first command of the pack.
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(uint32, tag = "2")]
    index: u32,
    /// Behind the pack's base.
    #[prost(uint64, tag = "3")]
    at_us: u64,
    #[prost(uint32, tag = "4")]
    kind: u32,
    /// Of the unit or the offer, or the only one that the bid names.
    #[prost(uint32, optional, tag = "5")]
    market: Option<u32>,
    /// Of a bid that names several.
    #[prost(uint32, repeated, tag = "6")]
    markets: Vec<u32>,
    /// Of a bid that names one.
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

    /// In order; `first_seq` is the pack's.
    pub fn events(&self, first_seq: u64) -> impl DoubleEndedIterator<Item = Packed<'_>> {
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

    pub(crate) fn kind(&self) -> &'a str {
        self.name(self.event.kind)
    }

    pub(crate) fn allocation(&self) -> Option<u64> {
        self.event.allocation
    }

    /// Of the unit or the offer, or the only one that the bid names.
    pub(crate) fn market(&self) -> Option<&'a str> {
        self.event.market.map(|name| self.name(name))
    }

    /// Of a bid that names several.
    pub(crate) fn markets(&self) -> impl Iterator<Item = &'a str> {
        let event = *self;
        self.event.markets.iter().map(move |name| event.name(*name))
    }

    /// Of a bid that names one.
    pub(crate) fn instance_type(&self) -> Option<&'a str> {
        self.event.instance_type.map(|name| self.name(name))
    }

    /// Holder, claimant and former claimant, with their bids.
    pub(crate) fn bidders(&self) -> [Option<(&'a str, u64)>; 3] {
        let PackedEvent { holder, claimant, former, .. } = self.event;
        [holder, claimant, former].map(|party| party.map(|party| (self.name(party.account), party.bid)))
    }

    /// Who placed which bid, where that is what happened.
    pub(crate) fn placed(&self) -> Option<(&'a str, u64)> {
        self.bidders()[0].filter(|_| self.kind() == PLACED)
    }

    pub(crate) fn provider(&self) -> Option<&'a str> {
        self.event.provider.map(|name| self.name(name))
    }

    /// Who gave the command that was refused or repeated.
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
