//! The state, and the plain questions about it that every rule asks.

use crate::keys::Keys;
use crate::reservations::{Funded, Reservation, Span};
use kubebid_core::command::{OnPreemption, TimeInForce};
use kubebid_core::event::{Bidder, Event, Fact, Node, NoticeReason, Scope};
use kubebid_core::money::{Bill, Totals};
use kubebid_core::numbers::Numbers;
use kubebid_core::units::{AccountId, AllocationId, BidId, MarketId, Micros, Names, Seq, UnitId};
use kubebid_core::{MarketRules, MarketState, Price};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The market of the rule book, computed by brute force.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub(crate) now: Micros,
    pub(crate) seq: Seq,
    pub(crate) names: Names,
    pub(crate) markets: Vec<Market>,
    pub(crate) offers: BTreeMap<(MarketId, AccountId), Offer>,
    pub(crate) units: BTreeMap<UnitId, Unit>,
    /// All bids ever placed.
    pub(crate) bids: BTreeMap<BidId, Bid>,
    /// The allocations that have not ended.
    pub(crate) allocations: BTreeMap<AllocationId, Allocation>,
    /// The number of allocations that were ever begun. The last of them has this number.
    pub(crate) begun: u64,
    /// The number of claims that were ever made, from which the last one is known.
    pub(crate) claimed: u64,
    pub(crate) keys: Keys,
    /// The accounts that are funded (R19).
    pub(crate) funded: BTreeMap<AccountId, Funded>,
    /// The time between renewals; None before a command sets it (R19).
    pub(crate) renewal_set: Option<Micros>,
    pub(crate) totals: Totals,
    /// The state as last settled, in which the claims that end are priced (R15). None before the first settling,
    /// and in that state itself.
    pub(crate) settled: Option<Box<Model>>,
    /// The events of the current command so far.
    pub(crate) events: Vec<Event>,
    /// See [`Model::passing_over_the_protected`].
    pub(crate) passes_over: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Market {
    pub(crate) state: MarketState,
    pub(crate) rules: MarketRules,
    /// The numbers of the last `PriceChanged`. None before the first.
    pub(crate) announced: Option<Numbers>,
}

/// An offer. It is kept after its last unit is gone, because unit numbers are never used twice.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) reserve: Price,
    /// The command that gave the offer its place among equal reserves (R2).
    pub(crate) place: Seq,
    pub(crate) last_number: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    pub(crate) leaving: bool,
    /// True from a start time-out until the provider resumes the unit (R11).
    pub(crate) resting: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Bid {
    pub(crate) tenant: AccountId,
    pub(crate) scope: Scope,
    pub(crate) ceiling: Price,
    pub(crate) min_nodes: u32,
    pub(crate) max_nodes: u32,
    /// The command that last gave it a new ceiling or enlarged it (R2).
    pub(crate) seq: Seq,
    pub(crate) time_in_force: TimeInForce,
    pub(crate) expire_at: Option<Micros>,
    pub(crate) on_preemption: OnPreemption,
    pub(crate) searching: bool,
    /// The time until which a raise under notice keeps the ceiling from falling (R2); 0 without such a raise.
    pub(crate) ceiling_locked_until: Micros,
    /// The highest ceiling since the account's last renewal. It counts while the bid has a node or a claim (R19).
    pub(crate) highest_ceiling: Price,
}

#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    pub(crate) bid: BidId,
    pub(crate) unit: UnitId,
    /// The time at which the node ends if it was not reported ready.
    pub(crate) start_deadline: Micros,
    pub(crate) ready: Option<Micros>,
    pub(crate) protected_until: Micros,
    /// None if the allocation is live.
    pub(crate) notice: Option<Notice>,
    /// The reserve that counts for the bill and for R (R11).
    pub(crate) reserve: Price,
    /// A raised reserve that does not count yet, and the time from which it does.
    pub(crate) raise: Option<(Price, Micros)>,
    /// The price in force, as last settled.
    pub(crate) billed: Price,
    /// The amount that the node owes until now, not rounded.
    pub(crate) bill: Bill,
    /// The highest frozen price of the node since its reservation was renewed; 0 without one (R19).
    pub(crate) highest_frozen: Price,
    /// The reservation of the node; None for an unlimited account (R19).
    pub(crate) reservation: Option<Reservation>,
}

#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) deadline: Micros,
    pub(crate) reason: NoticeReason,
    /// The price that was in force before the command or instant that started the notice (R8).
    pub(crate) frozen_price: Price,
    pub(crate) claim: Option<Claim>,
    /// True if `CLOSE` took one off `max_nodes`, which a rescission puts back (R7).
    pub(crate) raises_max_nodes: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) bid: BidId,
    /// The place among all claims ever made. The highest was claimed last (R4).
    pub(crate) taken: u64,
    /// The time for which the claim reserves the ceiling; None for an unlimited account (R19).
    pub(crate) span: Option<Span>,
}

impl Model {
    /// Returns a model without markets, at market time 0.
    pub fn new() -> Model {
        Model::default()
    }

    /// Returns a model that breaks R4: it passes over a cheaper, protected allocation to evict a
    /// dearer one. It shows what the waiting rule is for; no other statement of R4 holds in it.
    pub fn passing_over_the_protected() -> Model {
        Model { passes_over: true, ..Model::default() }
    }

    pub(crate) fn emit(&mut self, fact: Fact) {
        self.events.push(Event { at: self.now, fact });
    }

    pub(crate) fn rules(&self, market: MarketId) -> &MarketRules {
        &self.markets[market.0 as usize].rules
    }

    pub(crate) fn market_state(&self, market: MarketId) -> MarketState {
        self.markets[market.0 as usize].state
    }

    pub(crate) fn market_ids(&self) -> impl Iterator<Item = MarketId> + use<> {
        (0..self.markets.len() as u32).map(MarketId)
    }

    pub(crate) fn bidder(&self, bid: BidId) -> Bidder {
        Bidder { bid, tenant: self.bids[&bid].tenant }
    }

    pub(crate) fn node(&self, allocation: AllocationId) -> Node {
        let Allocation { bid, unit, .. } = self.allocations[&allocation];
        Node { allocation, bid, tenant: self.bids[&bid].tenant, unit }
    }

    /// Returns the ceiling of the bid that holds this node.
    pub(crate) fn holder_ceiling(&self, allocation: AllocationId) -> Price {
        self.bids[&self.allocations[&allocation].bid].ceiling
    }

    /// Returns the reserve of the unit's offer.
    pub(crate) fn offer_reserve(&self, unit: UnitId) -> Price {
        self.offers[&(unit.market, unit.provider)].reserve
    }

    pub(crate) fn is_leaving(&self, unit: UnitId) -> bool {
        self.units[&unit].leaving
    }

    pub(crate) fn on_unit(&self, unit: UnitId) -> Option<AllocationId> {
        self.allocations.iter().find(|(_, a)| a.unit == unit).map(|(id, _)| *id)
    }

    pub(crate) fn free_units(&self) -> impl Iterator<Item = UnitId> {
        let not_resting = self.units.iter().filter(|(_, unit)| !unit.resting).map(|(id, _)| *id);
        not_resting.filter(|unit| self.on_unit(*unit).is_none())
    }

    /// Returns the units of a market that rest (R11).
    pub(crate) fn resting_units(&self, market: MarketId) -> impl Iterator<Item = UnitId> {
        let here = self.units.iter().filter(move |(id, unit)| id.market == market && unit.resting);
        here.map(|(id, _)| *id)
    }

    /// Returns the place of a unit among others: lower reserve, first market, older offer, lower
    /// number (R2).
    pub(crate) fn unit_priority(&self, unit: UnitId) -> (Price, MarketId, Seq, u64) {
        let offer = &self.offers[&(unit.market, unit.provider)];
        (offer.reserve, unit.market, offer.place, unit.number)
    }

    /// Returns the number of an offer's units that are not leaving.
    pub(crate) fn capacity(&self, market: MarketId, provider: AccountId) -> u64 {
        self.units_of(market, provider).filter(|unit| !self.is_leaving(*unit)).count() as u64
    }

    pub(crate) fn units_of(&self, market: MarketId, provider: AccountId) -> impl Iterator<Item = UnitId> {
        self.units.keys().copied().filter(move |u| u.market == market && u.provider == provider)
    }

    /// Returns true if the account has a unit there, even a leaving one (R17).
    pub(crate) fn sells_in(&self, account: AccountId, market: MarketId) -> bool {
        self.units_of(market, account).next().is_some()
    }

    /// Returns all nodes of a bid, live and under notice.
    pub(crate) fn held(&self, bid: BidId) -> Vec<AllocationId> {
        self.allocations.iter().filter(|(_, a)| a.bid == bid).map(|(id, _)| *id).collect()
    }

    /// Returns the notices of the nodes of a bid.
    pub(crate) fn notices(&self, bid: BidId) -> impl Iterator<Item = (UnitId, &Notice)> {
        let held = self.allocations.values().filter(move |a| a.bid == bid);
        held.filter_map(|a| a.notice.as_ref().map(|notice| (a.unit, notice)))
    }

    pub(crate) fn live(&self, bid: BidId) -> u32 {
        self.allocations.values().filter(|a| a.bid == bid && a.notice.is_none()).count() as u32
    }

    /// Returns the nodes under notice on which a bid has a claim.
    pub(crate) fn claims(&self, bid: BidId) -> Vec<AllocationId> {
        self.allocations
            .iter()
            .filter(|(_, a)| a.claim().is_some_and(|claim| claim.bid == bid))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Returns `max_nodes` − live allocations − claims.
    pub(crate) fn room(&self, bid: BidId) -> u32 {
        self.bids[&bid].max_nodes - self.live(bid) - self.claims(bid).len() as u32
    }

    /// Returns the room of a bid that still searches, otherwise 0.
    pub(crate) fn unmet(&self, bid: BidId) -> u32 {
        if self.bids[&bid].searching { self.room(bid) } else { 0 }
    }

    /// Returns true if the bid needs several nodes at once and has none at present (R12).
    pub(crate) fn is_waiting_gang(&self, id: BidId) -> bool {
        let bid = &self.bids[&id];
        bid.searching && bid.minimum() > 1 && self.live(id) == 0 && self.claims(id).is_empty()
    }

    /// Returns the markets in which a bid searches, in the order in which they were opened (R13, R18).
    pub(crate) fn markets_in(&self, scope: &Scope, bid: BidId) -> Vec<MarketId> {
        self.market_ids()
            .filter(|market| match scope {
                Scope::Markets(markets) => markets.contains(market),
                Scope::InstanceType(kind) => self.names.market(*market).parts().0 == kind.as_str(),
            })
            .filter(|market| self.market_state(*market).admits(bid))
            .collect()
    }

    /// Returns the markets in which a bid may get a node, which are not those in which its tenant
    /// sells (R17).
    pub(crate) fn eligible_markets(&self, id: BidId) -> Vec<MarketId> {
        let bid = &self.bids[&id];
        let mut markets = self.markets_in(&bid.scope, id);
        markets.retain(|market| !self.sells_in(bid.tenant, *market));
        markets
    }

    /// Returns all bids that could want something, the best first (R2).
    pub(crate) fn bids_by_priority(&self) -> Vec<BidId> {
        let mut bids: Vec<BidId> = self.bids.keys().copied().collect();
        bids.retain(|bid| self.bids[bid].searching || !self.claims(*bid).is_empty());
        bids.sort_by_key(|bid| (Reverse(self.bids[bid].ceiling), self.bids[bid].seq));
        bids
    }
}

impl Bid {
    /// Returns how many nodes the bid must get at once when it enters (R12); 1 for a plain bid.
    pub(crate) fn minimum(&self) -> u32 {
        self.min_nodes.min(self.max_nodes)
    }
}

impl Allocation {
    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.notice.as_ref()?.claim.as_ref()
    }

    pub(crate) fn is_protected(&self, now: Micros) -> bool {
        now < self.protected_until
    }
}
