//! Cache of the operator's bids: listed, and then updated by events.

use crate::api::{BidSlot, SlotKey};
use kubebid_client::v1::{self, event::Kind};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A bid. The bid of a slot is for one node and closes when it has won that, so it has one allocation in its life. The bid of a
/// gang has one for each node, and others after it lost some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedBid {
    /// The slot of the bid; for a gang its gang slot.
    pub slot: SlotKey,
    /// True until the bid closes.
    pub open: bool,
    /// The ceiling in micro-dollars per node-hour.
    pub ceiling_micros: u64,
    /// Its place among the bids of the same ceiling. Each amendment changes it.
    pub place: u64,
    /// The allocations that the bid won, by number.
    pub allocations: BTreeMap<u64, CachedAllocation>,
}

impl CachedBid {
    /// Returns the allocation of a slot: of a member of a gang the one that it is for, of another slot the only one.
    pub fn allocation_of(&self, slot: &BidSlot) -> Option<&CachedAllocation> {
        match &slot.spec.member {
            Some(member) => self.allocations.get(&member.allocation),
            None => self.allocations.values().next_back(),
        }
    }

    /// Returns whether it is open or holds a unit.
    fn is_live(&self) -> bool {
        self.open || self.held().next().is_some()
    }

    /// Returns the allocations that have not ended.
    pub fn held(&self) -> impl Iterator<Item = &CachedAllocation> {
        self.allocations.values().filter(|held| held.ended.is_none())
    }
}

/// An allocation of a bid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedAllocation {
    /// Its number.
    pub allocation: u64,
    /// Its unit.
    pub unit: String,
    /// True if it was reported ready.
    pub ready: bool,
    /// The time at which its notice began and the time at which it ends, in microseconds of market time.
    pub notice: Option<(u64, u64)>,
    /// The engine's word for why it ended, if it has.
    pub ended: Option<String>,
    /// The price in force, in micro-dollars per node-hour.
    pub price_micros: Option<u64>,
    /// The last command that an event has shown of it. A read of the allocation waits for this command.
    pub seq: u64,
}

impl CachedAllocation {
    fn new(allocation: u64, unit: String) -> Self {
        let seq = allocation;
        CachedAllocation {
            allocation,
            unit,
            ready: false,
            notice: None,
            ended: None,
            price_micros: None,
            seq,
        }
    }

    fn of(it: &v1::Allocation) -> Self {
        let ended = it.end_reason.map(|_| it.end_reason().as_str_name().to_owned());
        CachedAllocation {
            allocation: it.allocation,
            unit: it.unit.clone(),
            ready: it.ready_at_us.is_some(),
            notice: it.notice.as_ref().map(|notice| (notice.started_at_us, notice.deadline_us)),
            ended,
            price_micros: Some(it.price_micros),
            seq: it.allocation,
        }
    }

    /// Returns its market, as in `h100-8x/eu-west`.
    pub fn market(&self) -> &str {
        self.unit.split(':').next().unwrap_or_default()
    }
}

/// The bids that the operator knows. It is shared; each method takes a lock for a moment.
#[derive(Debug, Default)]
pub struct BidCache {
    state: Mutex<State>,
    /// The error with which the engine does not answer; `None` while it answers.
    fault: watch::Sender<Option<String>>,
    /// True if the last call had no answer.
    missed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    bids: BTreeMap<u64, CachedBid>,
    by_allocation: BTreeMap<u64, u64>,
    /// Allocations of bids that are being placed: the event may come before the answer.
    early: BTreeMap<u64, BTreeMap<u64, CachedAllocation>>,
    /// True after the first list.
    listed: bool,
}

impl BidCache {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a bid, if it is known.
    pub fn bid(&self, bid: u64) -> Option<CachedBid> {
        self.state().bids.get(&bid).cloned()
    }

    /// Returns whether all open bids have been listed.
    pub fn is_listed(&self) -> bool {
        self.state().listed
    }

    /// Returns the error with which the engine does not answer; `None` while it answers.
    pub fn fault(&self) -> Option<String> {
        self.fault.borrow().clone()
    }

    /// Returns a watch that changes when the engine ceases to answer and when it answers again.
    pub fn faults(&self) -> watch::Receiver<Option<String>> {
        self.fault.subscribe()
    }

    /// Records whether the engine has answered a call. One call without an answer is not an outage yet. The error of the second
    /// one in a row stays until the engine answers again.
    pub(super) fn set_fault(&self, fault: Option<String>) {
        let missed = self.missed.swap(fault.is_some(), Ordering::Relaxed);
        if fault.is_some() && !missed {
            return;
        }
        self.fault.send_if_modified(|was| {
            let turns = was.is_some() != fault.is_some();
            if turns {
                *was = fault;
            }
            turns
        });
    }

    /// Returns the last command that an event has shown of an allocation.
    pub(super) fn seq_of(&self, allocation: u64) -> u64 {
        let state = self.state();
        let bid = state.by_allocation.get(&allocation).and_then(|bid| state.bids.get(bid));
        bid.and_then(|known| known.allocations.get(&allocation)).map_or(allocation, |held| held.seq)
    }

    /// Returns the bids that are open or hold a unit, with their slots.
    pub fn live(&self) -> Vec<(u64, SlotKey)> {
        let state = self.state();
        let live = state.bids.iter().filter(|(_, known)| known.is_live());
        live.map(|(bid, known)| (*bid, known.slot.clone())).collect()
    }

    /// Returns the last bid of a slot that is open or holds a unit, if it was placed after the bid `after`.
    pub fn live_bid_of(&self, slot_uid: &str, after: u64) -> Option<u64> {
        let state = self.state();
        let mut bids = state.bids.range(after + 1..).rev();
        bids.find(|(_, known)| known.slot.uid == slot_uid && known.is_live()).map(|(bid, _)| *bid)
    }

    /// Returns the allocations that are under notice, each with the slot of its bid.
    pub fn under_notice(&self) -> Vec<(SlotKey, u64)> {
        let state = self.state();
        let held = state.bids.values().flat_map(|known| known.held().map(move |held| (known, held)));
        let noticed = held.filter(|(_, held)| held.notice.is_some());
        noticed.map(|(known, held)| (known.slot.clone(), held.allocation)).collect()
    }

    /// Adds a bid that was placed.
    pub(super) fn placed(&self, bid: u64, slot: SlotKey, ceiling_micros: u64) {
        let mut state = self.state();
        if !state.bids.contains_key(&bid) {
            let allocations = state.early.remove(&bid).unwrap_or_default();
            state.insert(bid, CachedBid { slot, open: true, ceiling_micros, place: bid, allocations });
        }
    }

    /// Records an amendment.
    pub(super) fn amended(&self, bid: u64, ceiling_micros: u64, place: u64) {
        if let Some(known) = self.state().bids.get_mut(&bid) {
            known.ceiling_micros = ceiling_micros;
            known.place = place;
        }
    }

    /// Records that an allocation was reported ready.
    pub(super) fn reported_ready(&self, allocation: u64) {
        self.state().with(allocation, |held| held.ready = true);
    }

    /// Records that a notice was rescinded.
    pub(super) fn rescinded(&self, allocation: u64) {
        self.state().with(allocation, |held| held.notice = None);
    }

    /// Records the price in force of an allocation.
    pub(super) fn priced(&self, it: &v1::Allocation) {
        self.state().with(it.allocation, |held| held.price_micros = Some(it.price_micros));
    }

    /// Records that the engine does not know a bid: it counts as closed.
    pub(super) fn unknown(&self, bid: u64) {
        let known = CachedBid {
            slot: SlotKey::default(),
            open: false,
            ceiling_micros: 0,
            place: 0,
            allocations: BTreeMap::new(),
        };
        self.state().bids.insert(bid, known);
    }

    /// Replaces a bid by what was read.
    pub(super) fn learn(&self, bid: v1::Bid, allocations: Vec<v1::Allocation>) {
        self.state().learn(&bid, &allocations.iter().collect::<Vec<_>>());
    }

    /// Replaces all bids by lists of the open bids and of the allocations that are held. Returns the slots that may have
    /// changed.
    pub(super) fn relist(&self, bids: &[v1::Bid], allocations: &[v1::Allocation]) -> Vec<SlotKey> {
        let mut state = self.state();
        let before = std::mem::take(&mut state.bids);
        state.by_allocation.clear();
        state.early.clear();
        let mut held: BTreeMap<u64, Vec<&v1::Allocation>> = BTreeMap::new();
        for allocation in allocations {
            if let Some(bid) = allocation.bid {
                held.entry(bid).or_default().push(allocation);
            }
        }
        for bid in bids {
            state.learn(bid, held.get(&bid.bid).map_or(&[][..], Vec::as_slice));
        }
        for (bid, allocations) in &held {
            // The bid is closed, and holds a unit.
            if let (false, Some(first)) = (state.bids.contains_key(bid), allocations.first()) {
                let known = before.get(bid);
                let known = CachedBid {
                    slot: SlotKey::of_labels(&first.labels),
                    open: false,
                    ceiling_micros: first.ceiling_micros.unwrap_or_default(),
                    place: known.map_or(0, |known| known.place),
                    allocations: cached(allocations),
                };
                state.insert(*bid, known);
            }
        }
        let mut changed = Vec::new();
        for (bid, was) in before {
            if let Some(is) = state.bids.get(&bid) {
                if *is != was {
                    changed.push(is.slot.clone());
                }
            } else if was.is_live() {
                // The bid ended without an event. Its slot asks for it when it is reconciled.
                changed.push(was.slot);
            } else {
                state.insert(bid, was);
            }
        }
        if !state.listed {
            changed = state.bids.values().map(|known| known.slot.clone()).collect();
        }
        state.listed = true;
        changed
    }

    /// Removes a bid whose slot is gone.
    pub fn forget(&self, bid: u64) {
        let mut state = self.state();
        for allocation in state.bids.remove(&bid).into_iter().flat_map(|known| known.allocations.into_keys())
        {
            state.by_allocation.remove(&allocation);
        }
    }

    /// Applies an event, and returns the slot that it concerns.
    pub(super) fn fold(&self, event: &v1::Event) -> Option<SlotKey> {
        self.state().fold(event)
    }
}

/// Returns allocations by number.
fn cached(allocations: &[&v1::Allocation]) -> BTreeMap<u64, CachedAllocation> {
    allocations.iter().map(|held| (held.allocation, CachedAllocation::of(held))).collect()
}

impl State {
    fn insert(&mut self, bid: u64, known: CachedBid) {
        self.by_allocation.extend(known.allocations.keys().map(|allocation| (*allocation, bid)));
        self.bids.insert(bid, known);
    }

    fn learn(&mut self, bid: &v1::Bid, allocations: &[&v1::Allocation]) {
        let known = CachedBid {
            slot: SlotKey::of_labels(&bid.labels),
            open: bid.state() == v1::bid::State::Open,
            ceiling_micros: bid.ceiling_micros,
            place: bid.bid_seq,
            allocations: cached(allocations),
        };
        self.insert(bid.bid, known);
    }

    fn with(&mut self, allocation: u64, change: impl FnOnce(&mut CachedAllocation)) -> Option<SlotKey> {
        let bid = self.by_allocation.get(&allocation)?;
        let known = self.bids.get_mut(bid)?;
        change(known.allocations.get_mut(&allocation)?);
        Some(known.slot.clone())
    }

    fn fold(&mut self, event: &v1::Event) -> Option<SlotKey> {
        match event.kind.as_ref()? {
            Kind::Allocated(it) => {
                let bid = it.bid?;
                let won = CachedAllocation::new(it.allocation, it.unit.clone());
                let Some(known) = self.bids.get_mut(&bid) else {
                    self.early.entry(bid).or_default().insert(it.allocation, won);
                    return None;
                };
                known.allocations.entry(it.allocation).or_insert(won);
                self.by_allocation.insert(it.allocation, bid);
                Some(known.slot.clone())
            }
            Kind::BidAmended(it) => {
                let known = self.bids.get_mut(&it.bid)?;
                (known.ceiling_micros, known.place) = (it.ceiling_micros, it.bid_seq);
                Some(known.slot.clone())
            }
            Kind::BidClosed(it) => {
                let known = self.bids.get_mut(&it.bid)?;
                known.open = false;
                Some(known.slot.clone())
            }
            Kind::Ready(it) => self.with(it.allocation, |held| held.ready = true),
            Kind::NoticeStarted(it) => self.with(it.allocation, |held| {
                (held.notice, held.seq) = (Some((event.at_us, it.deadline_us)), event.seq);
            }),
            Kind::NoticeMoved(it) => self.with(it.allocation, |held| {
                if let Some((_, deadline)) = &mut held.notice {
                    (*deadline, held.seq) = (it.deadline_us, event.seq);
                }
            }),
            Kind::NoticeRescinded(it) => self.with(it.allocation, |held| held.notice = None),
            Kind::Ended(it) => {
                self.with(it.allocation, |held| held.ended = Some(it.reason().as_str_name().to_owned()))
            }
            Kind::MarketOpened(_)
            | Kind::RulesChanged(_)
            | Kind::MarketClosing(_)
            | Kind::MarketEnded(_)
            | Kind::OfferPut(_)
            | Kind::UnitAdded(_)
            | Kind::UnitLeaving(_)
            | Kind::UnitBack(_)
            | Kind::UnitResting(_)
            | Kind::UnitResumed(_)
            | Kind::UnitRemoved(_)
            | Kind::BidPlaced(_)
            | Kind::Claimed(_)
            | Kind::ClaimDropped(_)
            | Kind::Charged(_)
            | Kind::PriceChanged(_)
            | Kind::Funded(_)
            | Kind::BudgetSet(_)
            | Kind::BudgetRenewed(_)
            | Kind::RenewalSet(_)
            | Kind::Rejected(_)
            | Kind::Repeated(_) => None,
        }
    }
}
