//! The funds of one account (R19): what it has, what its nodes and claims reserve, and which of its bids it can pay for.
//!
//! Sums are exact, in price × time. A change of one reservation changes the sum of them, so that nothing is ever
//! summed up again.

use crate::collections::id_map::Table;
use crate::command::DEFAULT_RENEWAL;
use crate::types::calendar::next_month;
use crate::types::market_rules::MarketRules;
use crate::types::money::{Amount, Bill, Funds, Price};
use crate::types::units::{AllocationId, BidId, MarketId, Micros};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct AccountFunds {
    funds: Funds,
    /// The sum of all reservations.
    reserved: Bill,
    nodes: BTreeMap<AllocationId, Reservation>,
    /// The reservations of claims, by the node that is claimed.
    claims: BTreeMap<AllocationId, Reservation>,
    /// The bids that have a node or a claim.
    bids: BTreeMap<BidId, Holding>,
    pub(crate) renewal: Option<Renewal>,
    pub(crate) budget: Option<Budget>,
    /// The bids with unmet demand that are served in a market, if the account can pay.
    waiting: BTreeMap<MarketId, Waiting>,
    unfunded: Unfunded,
    /// Bids that lacked money to give up a claim, for a free unit or for an own node. What they lack depends on the claim
    /// that they would give up, so they are looked at again at each instant.
    pub(crate) short: BTreeSet<BidId>,
    /// True if the books do not follow what is available yet.
    pub(crate) is_stale: bool,
}

/// The reservation of a node or a claim. Its amount is `base` plus the span at `c`, the highest ceiling of its bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) bid: BidId,
    pub(crate) base: Bill,
    /// The part of the span that is there for the time until a renewal; 0 for an unfunded node.
    pub(crate) renewal: Micros,
    /// The part of the span that is there for a notice, or for `min_charge`.
    pub(crate) tail: Micros,
    /// The frozen price, if the node is or was under notice since `base` was set: `c` counts as at least this price.
    pub(crate) floor: Price,
    pub(crate) is_unfunded: bool,
}

impl Reservation {
    pub(crate) fn span(self) -> Micros {
        self.renewal.after(self.tail)
    }

    pub(crate) fn at(self, highest: Price) -> Bill {
        self.base + highest.max(self.floor).over(self.span())
    }
}

/// A bid that has a node or a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holding {
    /// `c` of R19: its highest ceiling since the last renewal, or since it had neither.
    highest: Price,
    /// The number of its nodes and claims, and of the places that are kept for one that replaces another.
    count: u64,
}

/// The time between renewals of an account, and its next renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewal {
    pub(crate) span: Micros,
    pub(crate) next: Micros,
}

/// A monthly budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) monthly: i64,
    pub(crate) roll_over: bool,
    pub(crate) next_month: Micros,
}

impl Budget {
    /// Returns a budget that begins with the first month after `now`.
    pub(crate) fn new(monthly: i64, roll_over: bool, now: Micros) -> Budget {
        Budget { monthly, roll_over, next_month: next_month(now) }
    }
}

/// The bids of one account that wait in one market, by *weight*: `c` times the nodes that they need at once. An account
/// that can pay for a weight can pay for every lower one.
#[derive(Debug, Default)]
struct Waiting {
    weights: Table<BidId, u128>,
    sorted: BTreeSet<(u128, BidId)>,
    /// The highest weight of the bids that the book has.
    limit: u128,
}

/// The unfunded nodes, by what they lack to come back.
#[derive(Debug, Default)]
struct Unfunded {
    nodes: BTreeSet<AllocationId>,
    lacks: BTreeSet<(i128, AllocationId)>,
    /// The instant for which `lacks` was computed.
    as_of: Option<Micros>,
    /// The least and the most that was covered since the places of all of them agreed with what is covered. A node may
    /// have got its place at any time since then.
    least: i128,
    most: i128,
}

fn signed(value: u128) -> i128 {
    i128::try_from(value).unwrap_or(i128::MAX)
}

/// Returns whole micro-dollars as price × time. More than any sum of reservations can be is the largest number.
pub(crate) fn exactly(amount: i128) -> i128 {
    amount.saturating_mul(i128::from(Micros::HOUR.0))
}

impl AccountFunds {
    pub(crate) fn new(funds: Funds) -> AccountFunds {
        AccountFunds { funds, ..AccountFunds::default() }
    }

    pub(crate) fn funds(&self) -> Funds {
        self.funds
    }

    pub(crate) fn set_funds(&mut self, funds: Funds) {
        self.funds = funds;
    }

    pub(crate) fn add_funds(&mut self, amount: i64) {
        self.funds.0 += i128::from(amount);
    }

    pub(crate) fn pay(&mut self, debit: Amount) {
        self.funds.0 -= signed(debit.0);
    }

    pub(crate) fn reserved(&self) -> Bill {
        self.reserved
    }

    /// Returns what is neither spent nor reserved, in price × time.
    pub(crate) fn available(&self) -> i128 {
        exactly(self.funds.0).saturating_sub(signed(self.reserved.0))
    }

    /// Returns true if the account can reserve this much more. Nothing, or less, is always covered.
    pub(crate) fn covers(&self, amount: i128) -> bool {
        amount <= self.coverable()
    }

    /// Returns the highest amount that is covered.
    fn coverable(&self) -> i128 {
        self.available().max(0)
    }

    /// Returns the highest weight of which a stake over `span` is covered; 0 if none is.
    pub(crate) fn limit(&self, span: Micros) -> u128 {
        u128::try_from(self.available()).map_or(0, |available| available / u128::from(span.0))
    }

    /// Returns true if the account has a node or a claim.
    pub(crate) fn holds_any(&self) -> bool {
        !self.bids.is_empty()
    }

    pub(crate) fn node(&self, id: AllocationId) -> Reservation {
        self.nodes[&id]
    }

    pub(crate) fn claim(&self, node: AllocationId) -> Reservation {
        self.claims[&node]
    }

    pub(crate) fn claim_amount(&self, node: AllocationId) -> Bill {
        self.amount(self.claims[&node])
    }

    pub(crate) fn amount(&self, reservation: Reservation) -> Bill {
        reservation.at(self.bids[&reservation.bid].highest)
    }

    /// Returns `c` of a bid; None if it has neither a node nor a claim, and then `c` is its ceiling.
    pub(crate) fn highest(&self, bid: BidId) -> Option<Price> {
        self.bids.get(&bid).map(|holding| holding.highest)
    }

    /// Returns all reservations of nodes by number.
    pub(crate) fn nodes(&self) -> Vec<(AllocationId, Reservation)> {
        self.nodes.iter().map(|(id, reservation)| (*id, *reservation)).collect()
    }

    /// Returns all reservations of claims, by the number of the claimed node.
    pub(crate) fn claims(&self) -> Vec<(AllocationId, Reservation)> {
        self.claims.iter().map(|(id, reservation)| (*id, *reservation)).collect()
    }

    /// Returns the bids that have a node or a claim, by number, each with its `c`.
    pub(crate) fn bids(&self) -> Vec<(BidId, Price)> {
        self.bids.iter().map(|(id, holding)| (*id, holding.highest)).collect()
    }

    /// Returns the shortest `renewal` in the span of a claim.
    pub(crate) fn shortest_claim(&self) -> Option<Micros> {
        self.claims.values().map(|claim| claim.renewal).min()
    }

    /// Counts one more node or claim of a bid, whose ceiling begins to count if it had none.
    fn enter(&mut self, bid: BidId, ceiling: Price) {
        self.bids.entry(bid).or_insert(Holding { highest: ceiling, count: 0 }).count += 1;
    }

    fn leave(&mut self, bid: BidId) {
        let holding = self.bids.get_mut(&bid).expect("a bid with a node or a claim");
        holding.count -= 1;
        if holding.count == 0 {
            self.bids.remove(&bid);
        }
    }

    /// Keeps `c` of a bid while it replaces a claim. [`AccountFunds::release_place`] follows.
    pub(crate) fn keep_place(&mut self, bid: BidId, ceiling: Price) {
        self.enter(bid, ceiling);
    }

    pub(crate) fn release_place(&mut self, bid: BidId) {
        self.leave(bid);
    }

    /// Adds the reservation of a node.
    pub(crate) fn reserve_node(&mut self, id: AllocationId, ceiling: Price, reservation: Reservation) {
        self.enter(reservation.bid, ceiling);
        self.reserved += self.amount(reservation);
        let before = self.nodes.insert(id, reservation);
        assert!(before.is_none(), "a node has one reservation");
        if reservation.is_unfunded {
            self.unfunded.insert(id);
        }
    }

    /// Adds the reservation of a claim.
    pub(crate) fn reserve_claim(&mut self, node: AllocationId, ceiling: Price, reservation: Reservation) {
        self.enter(reservation.bid, ceiling);
        self.reserved += self.amount(reservation);
        let before = self.claims.insert(node, reservation);
        assert!(before.is_none(), "a claim has one reservation");
    }

    pub(crate) fn release_node(&mut self, id: AllocationId) {
        let reservation = self.nodes.remove(&id).expect("the reservation of a node");
        self.reserved = self.reserved - self.amount(reservation);
        self.leave(reservation.bid);
        self.unfunded.remove(id);
    }

    pub(crate) fn release_claim(&mut self, node: AllocationId) {
        let reservation = self.claims.remove(&node).expect("the reservation of a claim");
        self.reserved = self.reserved - self.amount(reservation);
        self.leave(reservation.bid);
    }

    /// Makes the reservation of a claim that of the node that begins from it.
    pub(crate) fn hand_over(&mut self, claimed: AllocationId, begins: AllocationId) {
        let reservation = self.claims.remove(&claimed).expect("the reservation of a claim");
        self.nodes.insert(begins, reservation);
    }

    /// Replaces the reservation of a node.
    pub(crate) fn update_node(&mut self, id: AllocationId, reservation: Reservation) {
        let before = self.nodes.insert(id, reservation).expect("the reservation of a node");
        self.reserved = self.reserved + self.amount(reservation) - self.amount(before);
        if reservation.is_unfunded && !before.is_unfunded {
            self.unfunded.insert(id);
        }
        if before.is_unfunded && !reservation.is_unfunded {
            self.unfunded.remove(id);
        }
    }

    /// Sets `c` of a bid, with these nodes and claims.
    pub(crate) fn set_highest(
        &mut self,
        bid: BidId,
        highest: Price,
        nodes: impl Iterator<Item = AllocationId>,
        claims: impl Iterator<Item = AllocationId>,
    ) {
        let before = self.bids[&bid].highest;
        if before == highest {
            return;
        }
        let reservations = nodes.map(|id| self.nodes[&id]).chain(claims.map(|node| self.claims[&node]));
        for reservation in reservations {
            self.reserved = self.reserved + reservation.at(highest) - reservation.at(before);
        }
        self.bids.get_mut(&bid).expect("just seen").highest = highest;
        self.forget_lacks();
    }

    /// Sets the weight of a bid that waits in a market; None if it does not wait there. `limit` is what the account can
    /// pay for if no bid of it waits there yet. Returns true if the bid belongs into the book.
    pub(crate) fn set_waiting(
        &mut self,
        market: MarketId,
        bid: BidId,
        weight: Option<u128>,
        limit: u128,
    ) -> bool {
        let Some(weight) = weight else {
            if let Some(waiting) = self.waiting.get_mut(&market)
                && let Some(before) = waiting.weights.remove(&bid)
            {
                waiting.sorted.remove(&(before, bid));
                if waiting.sorted.is_empty() {
                    self.waiting.remove(&market);
                }
            }
            return false;
        };
        let waiting = self.waiting.entry(market).or_insert_with(|| Waiting { limit, ..Waiting::default() });
        if let Some(before) = waiting.weights.insert(bid, weight) {
            waiting.sorted.remove(&(before, bid));
        }
        waiting.sorted.insert((weight, bid));
        weight <= waiting.limit
    }

    /// Sets the weight of a bid that waits in a market with these rules, like [`AccountFunds::set_waiting`]. `in_force` is
    /// the `renewal` that a command set for accounts that have none.
    #[inline(never)]
    pub(crate) fn wait_in(
        &mut self,
        market: MarketId,
        bid: BidId,
        weight: Option<u128>,
        rules: &MarketRules,
        in_force: Option<Micros>,
    ) -> bool {
        let renewal = self.renewal.map(|renewal| renewal.span).or(in_force).unwrap_or(DEFAULT_RENEWAL);
        self.set_waiting(market, bid, weight, self.limit(renewal.after(rules.tail())))
    }

    /// Returns the weight with which a bid waits in a market; None if it does not wait there.
    pub(crate) fn weight(&self, market: MarketId, bid: BidId) -> Option<u128> {
        self.waiting.get(&market)?.weights.get(&bid).copied()
    }

    /// Returns the markets in which bids of the account wait, in their order.
    pub(crate) fn waiting_markets(&self) -> Vec<MarketId> {
        self.waiting.keys().copied().collect()
    }

    /// Sets the highest weight that the account can pay for in a market. Returns the bids that begin or cease to take
    /// part there.
    pub(crate) fn set_limit(&mut self, market: MarketId, limit: u128) -> Vec<BidId> {
        let waiting = self.waiting.get_mut(&market).expect("a market in which bids wait");
        let before = std::mem::replace(&mut waiting.limit, limit);
        let (low, high) = (before.min(limit), before.max(limit));
        if low == high {
            return Vec::new();
        }
        let changed = waiting.sorted.range((low.saturating_add(1), BidId(0))..=(high, BidId(u64::MAX)));
        changed.map(|(_, bid)| *bid).collect()
    }

    /// Returns true if a bid that waits in a market belongs into the book.
    pub(crate) fn takes_part(&self, market: MarketId, bid: BidId) -> bool {
        let waiting = self.waiting.get(&market);
        waiting.is_some_and(|w| w.weights.get(&bid).is_some_and(|weight| *weight <= w.limit))
    }

    pub(crate) fn unfunded(&self) -> Vec<AllocationId> {
        self.unfunded.nodes.iter().copied().collect()
    }

    /// Forgets what the unfunded nodes lack, after a change of what they would reserve.
    pub(crate) fn forget_lacks(&mut self) {
        self.unfunded.as_of = None;
    }

    /// Returns true if what the unfunded nodes lack at this instant is not known.
    pub(crate) fn lacks_are_unknown(&self, now: Micros) -> bool {
        !self.unfunded.nodes.is_empty() && self.unfunded.as_of != Some(now)
    }

    /// Sets what each unfunded node lacks at this instant.
    pub(crate) fn set_lacks(&mut self, now: Micros, lacks: impl Iterator<Item = (i128, AllocationId)>) {
        self.unfunded.lacks = lacks.collect();
        self.unfunded.as_of = Some(now);
        let covered = self.coverable();
        (self.unfunded.least, self.unfunded.most) = (covered, covered);
    }

    /// Notes what is covered after a change.
    pub(crate) fn note_covered(&mut self) {
        let covered = self.coverable();
        let Unfunded { least, most, .. } = &mut self.unfunded;
        (*least, *most) = (covered.min(*least), covered.max(*most));
    }

    /// Returns the unfunded nodes of which what they lack began or ceased to be covered at times, since this was last
    /// asked.
    pub(crate) fn changed_unfunded(&mut self) -> Vec<AllocationId> {
        let covered = self.coverable();
        let Unfunded { lacks, least, most, .. } = &mut self.unfunded;
        let (low, high) = (std::mem::replace(least, covered), std::mem::replace(most, covered));
        if low == high || lacks.is_empty() {
            return Vec::new();
        }
        let first = (low.saturating_add(1), AllocationId(0));
        lacks.range(first..=(high, AllocationId(u64::MAX))).map(|(_, id)| *id).collect()
    }
}

impl Unfunded {
    fn insert(&mut self, id: AllocationId) {
        self.nodes.insert(id);
        self.as_of = None;
    }

    fn remove(&mut self, id: AllocationId) {
        self.nodes.remove(&id);
    }
}
