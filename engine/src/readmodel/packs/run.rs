//! Builds packs of events and their index.

use super::super::fields::Fields;
use super::super::fold::{Heard, Scoped};
use super::{EVERYONE, PACK, RUN};
use crate::events::message::{EventMessage, Parties, Party};
use kubebid_core::EventKind;
use kubebid_core::units::{AllocationId, BidId};
use std::collections::HashMap;

/// Packs that are written together, and what is in which of them: bit n is pack n. All lists are in order.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    /// The command of its first event.
    pub(crate) first_seq: u64,
    pub(crate) packs: Vec<Written>,
    pub(crate) accounts: Vec<Account<'a>>,
    pub(crate) markets: Vec<(&'a str, u64)>,
    pub(crate) kinds: Vec<(&'a str, u64)>,
    /// Without those that were placed: the number of a bid says where that was.
    pub(crate) bids: Vec<(BidId, u64)>,
    pub(crate) allocations: Vec<(AllocationId, u64)>,
    placed: Vec<(Number, BidId)>,
}

/// A pack as the table takes it.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) first_seq: u64,
    pub(crate) last_at: u64,
    /// The message [`Pack`](super::Pack).
    pub(crate) body: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Account<'a> {
    pub(crate) name: &'a str,
    pub(crate) packs: u64,
    number: Number,
}

/// The events in runs.
pub(crate) fn runs<'a>(events: &[Heard<'a>]) -> Vec<Run<'a>> {
    let (mut runs, mut rest) = (Vec::new(), events);
    while let Some(first) = rest.first() {
        let first_seq = first.message.event.seq;
        let (events, behind) =
            rest.split_at(rest.partition_point(|heard| heard.message.event.seq < first_seq + RUN));
        runs.push(Run::of(first_seq, events));
        rest = behind;
    }
    runs
}

impl<'a> Run<'a> {
    fn of(first_seq: u64, events: &[Heard<'a>]) -> Run<'a> {
        let mut index = Index::default();
        let number = |heard: &Heard<'_>| (heard.message.event.seq - first_seq) / PACK;
        let packs = events.chunk_by(|a, b| number(a) == number(b)).map(|events| {
            let number = number(&events[0]);
            index.bit = 1 << number;
            Written {
                first_seq: first_seq + number * PACK,
                last_at: events.last().expect("a pack has an event").message.event.at_us,
                body: pack(first_seq + number * PACK, events, &mut index),
            }
        });
        let packs = packs.collect();
        index.placed.sort_unstable();
        let accounts = index.occurring(|name| name.as_account);
        Run {
            first_seq,
            packs,
            accounts: accounts.map(|(number, name, packs)| Account { name, packs, number }).collect(),
            markets: index.occurring(|name| name.as_market).map(|(_, name, packs)| (name, packs)).collect(),
            kinds: index.occurring(|name| name.as_kind).map(|(_, name, packs)| (name, packs)).collect(),
            bids: merged(index.bids),
            allocations: merged(index.allocations),
            placed: index.placed,
        }
    }

    /// The bids that an account placed, in order.
    pub(crate) fn placed_by(&self, account: &Account<'_>) -> impl ExactSizeIterator<Item = BidId> {
        let rest = &self.placed[self.placed.partition_point(|(by, _)| *by < account.number)..];
        rest[..rest.partition_point(|(by, _)| *by == account.number)].iter().map(|(_, bid)| *bid)
    }
}

/// One entry for each key, with the bits of all.
fn merged<K: Ord + Copy>(mut entries: Vec<(K, u64)>) -> Vec<(K, u64)> {
    entries.sort_unstable();
    entries.dedup_by(|(key, bits), (kept, all)| {
        let same = key == kept;
        if same {
            *all |= *bits;
        }
        same
    });
    entries
}

/// The place of a name among those of a run.
type Number = u32;

/// The names and numbers of a run, with the packs that have them.
#[derive(Default)]
struct Index<'a> {
    /// The bit of the pack that is being filled.
    bit: u64,
    numbers: HashMap<&'a str, Number, foldhash::quality::RandomState>,
    names: Vec<Name<'a>>,
    /// The names of the pack that is being filled, in its order.
    of_pack: Vec<Number>,
    bids: Vec<(BidId, u64)>,
    allocations: Vec<(AllocationId, u64)>,
    placed: Vec<(Number, BidId)>,
}

struct Name<'a> {
    text: &'a str,
    as_account: u64,
    as_market: u64,
    as_kind: u64,
    /// Its place among the names of the pack that is being filled.
    in_pack: Option<u32>,
}

impl<'a> Index<'a> {
    fn number(&mut self, text: &'a str) -> Number {
        *self.numbers.entry(text).or_insert_with(|| {
            self.names.push(Name { text, as_account: 0, as_market: 0, as_kind: 0, in_pack: None });
            self.names.len() as Number - 1
        })
    }

    /// Returns how the pack calls it.
    fn in_pack(&mut self, number: Number) -> u64 {
        let of_pack = &mut self.of_pack;
        let place = self.names[number as usize].in_pack.get_or_insert_with(|| {
            of_pack.push(number);
            of_pack.len() as u32 - 1
        });
        u64::from(*place)
    }

    fn account(&mut self, name: &'a str) -> u64 {
        let number = self.number(name);
        self.names[number as usize].as_account |= self.bit;
        self.in_pack(number)
    }

    fn market(&mut self, name: &'a str) -> u64 {
        let number = self.number(name);
        self.names[number as usize].as_market |= self.bit;
        self.in_pack(number)
    }

    fn kind(&mut self, kind: &'static str) -> u64 {
        let number = self.number(kind);
        self.names[number as usize].as_kind |= self.bit;
        self.in_pack(number)
    }

    fn allocation(&mut self, allocation: AllocationId) -> u64 {
        self.allocations.push((allocation, self.bit));
        allocation.0
    }

    /// A party of an event; of one that placed a bid, where it did is known.
    fn party(&mut self, party: &'a Party, placed: bool, fields: &mut Fields<'_>) {
        let account = self.account(party.account.as_str());
        if placed {
            let number = self.of_pack[account as usize];
            self.placed.push((number, party.bid));
        } else {
            self.bids.push((party.bid, self.bit));
        }
        fields.number(1, account);
        fields.number(2, party.bid.0);
    }

    fn everyone(&mut self) {
        let number = self.number(EVERYONE);
        self.names[number as usize].as_account |= self.bit;
    }

    /// The names of the pack, which is full.
    fn end_pack(&mut self) -> impl Iterator<Item = &'a str> {
        self.of_pack.drain(..).map(|number| {
            let name = &mut self.names[number as usize];
            name.in_pack = None;
            name.text
        })
    }

    /// Returns the names in order, with the packs that have them.
    fn occurring(&self, packs: impl Fn(&Name<'_>) -> u64) -> impl Iterator<Item = (Number, &'a str, u64)> {
        let names = self.names.iter().zip(0..).map(|(name, number)| (number, name.text, packs(name)));
        let mut names: Vec<_> = names.filter(|(_, _, packs)| *packs != 0).collect();
        names.sort_unstable_by_key(|(_, name, _)| *name);
        names.into_iter()
    }
}

/// The message [`Pack`](super::Pack): its events, and the names that they have in common behind them.
fn pack<'a>(first_seq: u64, events: &[Heard<'a>], index: &mut Index<'a>) -> Vec<u8> {
    let base = events[0].message.event.at_us;
    let mut bytes = Vec::with_capacity(160 * events.len());
    let mut fields = Fields(&mut bytes);
    fields.number(2, base);
    for Heard { message, scope } in events {
        fields.message(3, |event| {
            event.number(1, message.event.seq - first_seq);
            event.number(3, message.event.at_us.wrapping_sub(base));
            add(message, *scope, index, event);
        });
    }
    index.end_pack().for_each(|name| fields.some_text(1, Some(name)));
    bytes
}

/// Adds everything by which an event is found, and the event itself.
fn add<'a>(
    message: &'a EventMessage,
    scope: Option<Scoped<'a>>,
    index: &mut Index<'a>,
    event: &mut Fields<'_>,
) {
    let Parties { holder, claimant, former, provider, account } = &message.parties;
    let placed = message.kind == EventKind::BidPlaced;
    event.number(2, message.event.index.into());
    event.number(4, index.kind(message.kind.word()));
    event.some_number(5, message.market.as_ref().map(|market| index.market(market.as_str())));
    if let Some(scope) = scope {
        scope.markets().for_each(|market| event.some_number(6, Some(index.market(market))));
        event.some_number(7, scope.instance_type().map(|kind| index.market(kind)));
    }
    event.some_number(8, message.allocation.map(|allocation| index.allocation(allocation)));
    for (tag, party) in [(9, holder), (10, claimant), (11, former)] {
        if let Some(party) = party {
            event.message(tag, |fields| index.party(party, placed, fields));
        }
    }
    event.some_number(12, provider.as_ref().map(|name| index.account(name.as_str())));
    event.some_number(13, account.as_ref().map(|name| index.account(name.as_str())));
    if message.concerns_everybody() {
        index.everyone();
    }
    event.message(14, |body| message.encode(body.0));
}
