//! A cache of the operator's bids: listed, and then updated by events.

use crate::api::{BidSlot, LABEL_NAMESPACE, LABEL_SLOT, LABEL_SLOT_UID};
use kube::ResourceExt as _;
use kubebid_client::v1::{self, event::Kind};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Which slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotKey {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl SlotKey {
    pub fn of(slot: &BidSlot) -> Self {
        SlotKey {
            namespace: slot.namespace().unwrap_or_default(),
            name: slot.name_any(),
            uid: slot.uid().unwrap_or_default(),
        }
    }

    pub(super) fn of_labels(labels: &BTreeMap<String, String>) -> Self {
        let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
        SlotKey { namespace: label(LABEL_NAMESPACE), name: label(LABEL_SLOT), uid: label(LABEL_SLOT_UID) }
    }
}

/// A bid. It wants one node and closes when that is taken, so it has one allocation in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub slot: SlotKey,
    pub open: bool,
    pub ceiling_micros: u64,
    /// Its place among bids of the same ceiling: changes with each amendment.
    pub place: u64,
    pub allocation: Option<KnownAllocation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownAllocation {
    pub allocation: u64,
    pub unit: String,
    pub ready: bool,
    /// The time at which its notice began and ends, in microseconds of market time.
    pub notice: Option<(u64, u64)>,
    pub ended: Option<String>,
    pub price_micros: Option<u64>,
    /// The last command that was heard of it: what is read of it has to be as new.
    pub seq: u64,
}

impl KnownAllocation {
    fn new(allocation: u64, unit: String) -> Self {
        let seq = allocation;
        KnownAllocation { allocation, unit, ready: false, notice: None, ended: None, price_micros: None, seq }
    }

    fn of(it: &v1::Allocation) -> Self {
        let ended = it.end_reason.map(|_| it.end_reason().as_str_name().to_owned());
        KnownAllocation {
            allocation: it.allocation,
            unit: it.unit.clone(),
            ready: it.ready_at_us.is_some(),
            notice: it.notice.as_ref().map(|notice| (notice.started_at_us, notice.deadline_us)),
            ended,
            price_micros: Some(it.price_micros),
            seq: it.allocation,
        }
    }

    /// "type/region".
    pub fn market(&self) -> &str {
        self.unit.split(':').next().unwrap_or_default()
    }
}

/// What the operator knows. Shared; each question takes a lock for a moment.
#[derive(Debug, Default)]
pub struct BidCache {
    state: Mutex<State>,
    /// Why the engine cannot be asked; `None` while it answers.
    fault: watch::Sender<Option<String>>,
    /// The last answer did not come.
    missed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    bids: BTreeMap<u64, Known>,
    by_allocation: BTreeMap<u64, u64>,
    /// Allocations of bids that were placed a moment ago: the event may come before the answer.
    early: BTreeMap<u64, KnownAllocation>,
    /// The list was read at least once.
    listed: bool,
}

impl BidCache {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A bid, if it is known.
    pub fn bid(&self, bid: u64) -> Option<Known> {
        self.state().bids.get(&bid).cloned()
    }

    /// Returns whether all open bids have been listed.
    pub fn is_listed(&self) -> bool {
        self.state().listed
    }

    /// Why the engine cannot be asked; `None` while it answers.
    pub fn fault(&self) -> Option<String> {
        self.fault.borrow().clone()
    }

    /// Changes when the engine goes away and when it is back.
    pub fn faults(&self) -> watch::Receiver<Option<String>> {
        self.fault.subscribe()
    }

    /// Whether the engine has answered. One answer that does not come is no absence. Of two in a row the fault counts
    /// for as long as they go on: what follows says the same in other words.
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

    /// The last command that was heard of an allocation.
    pub(super) fn seq_of(&self, allocation: u64) -> u64 {
        let state = self.state();
        let bid = state.by_allocation.get(&allocation).and_then(|bid| state.bids.get(bid));
        bid.and_then(|known| known.allocation.as_ref()).map_or(allocation, |held| held.seq)
    }

    /// The bids that search or hold something, with their slots.
    pub fn live(&self) -> Vec<(u64, SlotKey)> {
        let holds = |known: &Known| known.allocation.as_ref().is_some_and(|held| held.ended.is_none());
        let state = self.state();
        let live = state.bids.iter().filter(|(_, known)| known.open || holds(known));
        live.map(|(bid, known)| (*bid, known.slot.clone())).collect()
    }

    /// Slots whose allocation is under notice.
    pub fn under_notice(&self) -> Vec<SlotKey> {
        let noticed = |known: &&Known| {
            known.allocation.as_ref().is_some_and(|held| held.ended.is_none() && held.notice.is_some())
        };
        self.state().bids.values().filter(noticed).map(|known| known.slot.clone()).collect()
    }

    pub(super) fn placed(&self, bid: u64, slot: SlotKey, ceiling_micros: u64) {
        let mut state = self.state();
        if !state.bids.contains_key(&bid) {
            let allocation = state.early.remove(&bid);
            state.insert(bid, Known { slot, open: true, ceiling_micros, place: bid, allocation });
        }
    }

    pub(super) fn amended(&self, bid: u64, ceiling_micros: u64, place: u64) {
        if let Some(known) = self.state().bids.get_mut(&bid) {
            known.ceiling_micros = ceiling_micros;
            known.place = place;
        }
    }

    pub(super) fn reported_ready(&self, allocation: u64) {
        self.state().with(allocation, |held| held.ready = true);
    }

    pub(super) fn rescinded(&self, allocation: u64) {
        self.state().with(allocation, |held| held.notice = None);
    }

    pub(super) fn priced(&self, it: &v1::Allocation) {
        self.state().with(it.allocation, |held| held.price_micros = Some(it.price_micros));
    }

    /// The engine does not know the bid: it is as good as closed.
    pub(super) fn unknown(&self, bid: u64) {
        let known =
            Known { slot: SlotKey::default(), open: false, ceiling_micros: 0, place: 0, allocation: None };
        self.state().bids.insert(bid, known);
    }

    /// One bid as it was read.
    pub(super) fn learn(&self, bid: v1::Bid, allocations: Vec<v1::Allocation>) {
        self.state().learn(&bid, allocations.last());
    }

    /// All that is open or held. What is not in the lists is over. Returns the slots that may have changed.
    pub(super) fn relist(&self, bids: &[v1::Bid], allocations: &[v1::Allocation]) -> Vec<SlotKey> {
        let mut state = self.state();
        let before = std::mem::take(&mut state.bids);
        state.by_allocation.clear();
        state.early.clear();
        let held: BTreeMap<u64, &v1::Allocation> =
            allocations.iter().filter_map(|held| Some((held.bid?, held))).collect();
        for bid in bids {
            state.learn(bid, held.get(&bid.bid).copied());
        }
        for (bid, allocation) in &held {
            // Closed, and holding a node still.
            if !state.bids.contains_key(bid) {
                let known = before.get(bid);
                let known = Known {
                    slot: SlotKey::of_labels(&allocation.labels),
                    open: false,
                    ceiling_micros: allocation.ceiling_micros.unwrap_or_default(),
                    place: known.map_or(0, |known| known.place),
                    allocation: Some(KnownAllocation::of(allocation)),
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
            } else if was.open || was.allocation.as_ref().is_some_and(|held| held.ended.is_none()) {
                // Over without our having heard of it: asked about when its slot looks.
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

    /// Lets go of what is over and nobody asks about any more.
    pub fn forget(&self, bid: u64) {
        let mut state = self.state();
        if let Some(known) = state.bids.remove(&bid)
            && let Some(held) = known.allocation
        {
            state.by_allocation.remove(&held.allocation);
        }
    }

    /// Returns what an event changes; the slot that it is about.
    pub(super) fn fold(&self, event: &v1::Event) -> Option<SlotKey> {
        self.state().fold(event)
    }
}

impl State {
    fn insert(&mut self, bid: u64, known: Known) {
        if let Some(held) = &known.allocation {
            self.by_allocation.insert(held.allocation, bid);
        }
        self.bids.insert(bid, known);
    }

    fn learn(&mut self, bid: &v1::Bid, allocation: Option<&v1::Allocation>) {
        let known = Known {
            slot: SlotKey::of_labels(&bid.labels),
            open: bid.state() == v1::bid::State::Open,
            ceiling_micros: bid.ceiling_micros,
            place: bid.bid_seq,
            allocation: allocation.map(KnownAllocation::of),
        };
        self.insert(bid.bid, known);
    }

    fn with(&mut self, allocation: u64, change: impl FnOnce(&mut KnownAllocation)) -> Option<SlotKey> {
        let bid = self.by_allocation.get(&allocation)?;
        let known = self.bids.get_mut(bid)?;
        change(known.allocation.as_mut()?);
        Some(known.slot.clone())
    }

    fn fold(&mut self, event: &v1::Event) -> Option<SlotKey> {
        match event.kind.as_ref()? {
            Kind::Allocated(it) => {
                let bid = it.bid?;
                let Some(known) = self.bids.get_mut(&bid) else {
                    self.early.insert(bid, KnownAllocation::new(it.allocation, it.unit.clone()));
                    return None;
                };
                let slot = known.slot.clone();
                if known.allocation.as_ref().is_none_or(|held| held.allocation != it.allocation) {
                    known.allocation = Some(KnownAllocation::new(it.allocation, it.unit.clone()));
                    self.by_allocation.insert(it.allocation, bid);
                }
                Some(slot)
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
            Kind::NoticeRescinded(it) => self.with(it.allocation, |held| held.notice = None),
            Kind::Ended(it) => {
                self.with(it.allocation, |held| held.ended = Some(it.reason().as_str_name().to_owned()))
            }
            Kind::MarketOpened(_)
            | Kind::RulesChanged(_)
            | Kind::OfferPut(_)
            | Kind::UnitAdded(_)
            | Kind::UnitLeaving(_)
            | Kind::UnitBack(_)
            | Kind::UnitRemoved(_)
            | Kind::BidPlaced(_)
            | Kind::Claimed(_)
            | Kind::ClaimDropped(_)
            | Kind::Charged(_)
            | Kind::PriceChanged(_)
            | Kind::Rejected(_)
            | Kind::Repeated(_) => None,
        }
    }
}
