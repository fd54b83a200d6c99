//! Starts and ends allocations, and updates their units and bids.

use crate::event::{CloseReason, DropCause, EndReason, Fact, Node};
use crate::exchange::Exchange;
use crate::state::timers::Due;
use crate::state::{Allocation, Bid, BidTerms};
use crate::types::units::{AccountId, AllocationId, BidId, MarketId, UnitId};

impl Exchange {
    /// Gives a bid the first free unit of an offer (R2).
    pub(crate) fn take_free(&mut self, bid: BidId, market: MarketId, provider: AccountId) {
        let offer = &self.market(market).offers[&provider];
        let number = offer.free.first().expect("an offer with a free unit");
        self.allocate(bid, UnitId { market, provider, number }, None);
    }

    /// Starts an allocation, after one that had a claim of the bid, if `claimed` names it.
    fn allocate(&mut self, bid_id: BidId, unit: UnitId, claimed: Option<AllocationId>) {
        self.last_allocation += 1;
        let id = AllocationId(self.last_allocation);
        let rules = &self.market(unit.market).rules;
        let start_by = self.now.after(rules.start_timeout);
        let protected_until = start_by.after(rules.min_runtime);
        let Bid { terms: BidTerms { tenant, .. }, is_funded, .. } = *self.bid(bid_id);
        let offer = self.offer_mut(unit);
        offer.free.remove(unit.number);
        offer.units.get_mut(unit.number).expect("a unit to allocate").allocation = Some(id);
        let reserve = offer.reserve;
        self.reindex_offer(unit.market, unit.provider);
        self.allocations.insert(
            id,
            Allocation {
                bid: bid_id,
                tenant,
                unit,
                start_by,
                ready: None,
                protected_until,
                notice: None,
                reserve,
                raise_at: None,
                running: None,
                place: None,
                handle: 0,
            },
        );
        self.bid_mut(bid_id).live.insert(id);
        self.timers.set(start_by, Due::StartTimeout(id));
        self.timers.set(protected_until, Due::ProtectionEnds(id));
        self.emit(Fact::Allocated { node: self.node(id) });
        if is_funded {
            self.reserve_node(id, claimed);
        }
        self.reindex_allocation(id);
        self.reindex_bid(bid_id);
    }

    /// Ends a node that was not reported ready in time: it is lost (R11).
    pub(crate) fn start_timeout(&mut self, id: AllocationId) {
        self.end(id, EndReason::StartTimeout);
    }

    /// Ends an allocation. The bill comes first, then the bid, then the unit.
    pub(crate) fn end(&mut self, id: AllocationId, reason: EndReason) {
        let node = self.node(id);
        let lost = match reason {
            EndReason::UnitLost => Some(DropCause::UnitLost),
            EndReason::StartTimeout => Some(DropCause::StartTimeout),
            EndReason::Released
            | EndReason::Regrouped
            | EndReason::Outbid
            | EndReason::CapacityWithdrawn
            | EndReason::ReserveRaised
            | EndReason::Funds => None,
        };
        let claimed = self.take_claim(id);
        if let (Some(by), Some(cause)) = (claimed, lost) {
            self.release_claim(id, by);
            self.emit(Fact::ClaimDropped { node, by, cause });
        }
        let charge = self.final_charge(id, reason);
        self.unindex_allocation(id);
        let allocation = self.allocations.remove(id).expect("an allocation to end");
        let bid = self.bid_mut(node.bid);
        if let Some(notice) = allocation.notice {
            bid.notices.remove(id);
            if reason == EndReason::Regrouped && notice.returns {
                bid.terms.max_nodes += 1;
            }
        } else {
            bid.live.remove(id);
            if reason == EndReason::Released || lost.is_some() && bid.terms.closes {
                bid.terms.max_nodes -= 1;
            }
        }
        let max_nodes = bid.terms.max_nodes;
        if bid.is_funded {
            self.release_node(id, node.tenant);
        }
        self.emit(Fact::Ended { node, max_nodes, reason });
        if let Some(charge) = charge {
            self.emit(charge);
        }
        self.reindex_bid(node.bid);
        self.close_if_done(node.bid);
        if let (Some(by), true) = (claimed, lost.is_some()) {
            self.reindex_bid(by.bid);
        }
        self.vacate(node, reason, claimed.filter(|_| lost.is_none()).map(|by| by.bid));
    }

    /// Updates a unit whose allocation has ended: it goes, rests, is handed over, or becomes free.
    fn vacate(&mut self, node: Node, reason: EndReason, claimed_by: Option<BidId>) {
        let unit = node.unit;
        let is_open = self.is_open(unit.market);
        let offer = self.offer_mut(unit);
        let vacant = offer.units.get_mut(unit.number).expect("the unit of an allocation");
        vacant.allocation = None;
        let never_started = reason == EndReason::StartTimeout;
        if vacant.leaving || reason == EndReason::UnitLost || never_started && !is_open {
            self.remove_unit(unit);
        } else if never_started {
            self.rest(unit);
        } else if let Some(bid) = claimed_by {
            self.allocate(bid, unit, Some(node.allocation));
        } else {
            offer.free.insert(unit.number);
            self.reindex_offer(unit.market, unit.provider);
        }
    }

    /// Keeps a unit from being sold until its provider resumes it (R11).
    fn rest(&mut self, unit: UnitId) {
        self.offer_mut(unit).resting.insert(unit.number);
        self.market_mut(unit.market).resting += 1;
        self.emit(Fact::UnitResting { unit });
        self.reindex_offer(unit.market, unit.provider);
    }

    /// Closes a searching bid that wants no more nodes, if no notice could change that (R14).
    fn close_if_done(&mut self, id: BidId) {
        let bid = self.bid(id);
        let could_return = bid.notices.iter().any(|n| self.allocation(n).notice.is_some_and(|n| n.returns));
        if bid.searching && bid.terms.max_nodes == 0 && !could_return {
            self.close(id, CloseReason::Done);
        }
    }

    /// Ends the search of a bid. Its nodes stay.
    pub(crate) fn close(&mut self, id: BidId, reason: CloseReason) {
        let bidder = self.bidder(id);
        let bid = self.bid_mut(id);
        bid.searching = false;
        let max_nodes = bid.terms.max_nodes;
        self.emit(Fact::BidClosed { bidder, max_nodes, reason });
        self.reindex_bid(id);
    }
}
