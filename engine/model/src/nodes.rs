//! The life of an allocation: begun, ready, noticed, claimed, rescinded, ended (R4, R5, R7).

use crate::state::{Allocation, Claim, Model, Notice};
use kubebid_core::Price;
use kubebid_core::command::OnPreemption;
use kubebid_core::event::{ClaimCause, CloseReason, DropCause, EndReason, Fact, NoticeReason};
use kubebid_core::money::Bill;
use kubebid_core::units::{AllocationId, BidId, Micros, UnitId};

impl Model {
    fn get_mut(&mut self, allocation: AllocationId) -> &mut Allocation {
        self.allocations.get_mut(&allocation).expect("not ended")
    }

    pub(crate) fn allocate(&mut self, bid: BidId, unit: UnitId) {
        self.begun += 1;
        let id = AllocationId(self.begun);
        let rules = self.rules(unit.market);
        let start_deadline = self.now.after(rules.start_timeout);
        let allocation = Allocation {
            bid,
            unit,
            start_deadline,
            ready: None,
            protected_until: start_deadline.after(rules.min_runtime),
            notice: None,
            reserve: self.offer_reserve(unit),
            raise: None,
            billed: Price::ZERO,
            bill: Bill::default(),
        };
        self.allocations.insert(id, allocation);
        self.emit(Fact::Allocated { node: self.node(id) });
    }

    /// Notes that a node is ready. The `min_runtime` that is in force on that day counts (R4).
    pub(crate) fn ready(&mut self, allocation: AllocationId) {
        let now = self.now;
        let min_runtime = self.rules(self.allocations[&allocation].unit.market).min_runtime;
        let a = self.get_mut(allocation);
        a.ready = Some(now);
        a.protected_until = now.after(min_runtime);
        self.emit(Fact::Ready { node: self.node(allocation) });
    }

    /// Returns the time from which a change may affect a node: after a notice and after its
    /// protection (R11).
    pub(crate) fn after_notice_and_protection(&self, allocation: AllocationId) -> Micros {
        let a = &self.allocations[&allocation];
        self.now.after(self.rules(a.unit.market).notice).max(a.protected_until)
    }

    /// Gives a notice. The node becomes unmet demand again, or with `CLOSE` is not wanted any more
    /// (R7).
    pub(crate) fn start_notice(&mut self, allocation: AllocationId, deadline: Micros, reason: NoticeReason) {
        let bid = self.allocations[&allocation].bid;
        let raises_max_nodes = self.takes_from_max_nodes(bid);
        let a = self.get_mut(allocation);
        a.notice = Some(Notice { deadline, reason, claim: None, raises_max_nodes });
        a.raise = None;
        let max_nodes = self.bids[&bid].max_nodes;
        self.emit(Fact::NoticeStarted { node: self.node(allocation), deadline, max_nodes, reason });
    }

    /// Lowers `max_nodes` by one if the bid has `CLOSE`. Returns true if it did (R7).
    fn takes_from_max_nodes(&mut self, bid: BidId) -> bool {
        let bid = self.bids.get_mut(&bid).expect("known");
        let closes = bid.on_preemption == OnPreemption::Close;
        if closes {
            bid.max_nodes -= 1;
        }
        closes
    }

    /// Gives a bid the claim on a unit whose allocation is under notice. An earlier claim is
    /// displaced.
    pub(crate) fn make_claim(&mut self, bid: BidId, allocation: AllocationId, cause: ClaimCause) {
        self.claimed += 1;
        let claim = Claim { bid, taken: self.claimed, would_pay: Price::ZERO };
        let notice = self.get_mut(allocation).notice.as_mut().expect("only a notice is claimed");
        let was = notice.claim.replace(claim).map(|was| was.bid);
        self.emit(Fact::Claimed {
            node: self.node(allocation),
            by: self.bidder(bid),
            was: was.map(|was| self.bidder(was)),
            cause,
        });
    }

    /// Drops a claim. If its own tenant gives it up, it costs a minimum (R15).
    pub(crate) fn drop_claim(&mut self, allocation: AllocationId, cause: DropCause) {
        let notice = self.get_mut(allocation).notice.as_mut().expect("only a notice is claimed");
        let claim = notice.claim.take().expect("claimed");
        self.emit(Fact::ClaimDropped { node: self.node(allocation), by: self.bidder(claim.bid), cause });
        match cause {
            DropCause::Cancelled | DropCause::Lowered | DropCause::Shrunk | DropCause::Expired => {
                self.charge_dropped_claim(allocation, &claim);
            }
            DropCause::Rescued
            | DropCause::HolderBack
            | DropCause::HolderRaised
            | DropCause::OwnSupply
            | DropCause::ReserveRaised
            | DropCause::CapacityWithdrawn
            | DropCause::UnitLost
            | DropCause::StartTimeout => {}
        }
    }

    /// Rescinds a notice (R7). Without room for the node, the bid gives up a claim for it (R6). A
    /// raised reserve counts only after the delay (R11).
    pub(crate) fn rescind(&mut self, allocation: AllocationId) {
        let a = &self.allocations[&allocation];
        let (bid, reserve, unit) = (a.bid, a.reserve, a.unit);
        let raises = a.notice.as_ref().is_some_and(|notice| notice.raises_max_nodes);
        if raises {
            self.bids.get_mut(&bid).expect("known").max_nodes += 1;
        } else if self.room(bid) == 0 {
            let claimed = self.claim_to_give_up(bid).expect("it wanted the node back");
            self.drop_claim(claimed, DropCause::Rescued);
        }
        let offered = self.offer_reserve(unit);
        let from = self.after_notice_and_protection(allocation);
        let a = self.get_mut(allocation);
        a.notice = None;
        a.raise = (offered > reserve).then_some((offered, from));
        let max_nodes = self.bids[&bid].max_nodes;
        self.emit(Fact::NoticeRescinded { node: self.node(allocation), max_nodes });
    }

    /// Ends a node; its unit goes to the claim's bid at once, leaves, or is free (R5, R11).
    pub(crate) fn end(&mut self, allocation: AllocationId, reason: EndReason) {
        let unit_is_gone = match reason {
            EndReason::UnitLost => self.drop_any_claim(allocation, DropCause::UnitLost),
            EndReason::StartTimeout => self.drop_any_claim(allocation, DropCause::StartTimeout),
            EndReason::Outbid
            | EndReason::CapacityWithdrawn
            | EndReason::ReserveRaised
            | EndReason::Released => false,
        };
        let node = self.node(allocation);
        let a = self.allocations[&allocation].clone();
        let live = a.notice.is_none();
        if live && unit_is_gone {
            self.takes_from_max_nodes(node.bid);
        }
        if live && reason == EndReason::Released {
            self.bids.get_mut(&node.bid).expect("known").max_nodes -= 1;
        }
        self.allocations.remove(&allocation);
        self.emit(Fact::Ended { node, max_nodes: self.bids[&node.bid].max_nodes, reason });
        self.charge_ended(node, &a, reason);
        if unit_is_gone || self.is_leaving(node.unit) {
            self.remove_unit(node.unit);
        } else if let Some(claim) = a.claim() {
            self.allocate(claim.bid, node.unit);
        }
        self.close_if_done(node.bid);
    }

    fn drop_any_claim(&mut self, allocation: AllocationId, cause: DropCause) -> bool {
        if self.allocations[&allocation].claim().is_some() {
            self.drop_claim(allocation, cause);
        }
        true
    }

    pub(crate) fn remove_unit(&mut self, unit: UnitId) {
        self.units.remove(&unit);
        self.emit(Fact::UnitRemoved { unit });
    }

    /// Closes a bid that wants no more nodes, if no notice could change that (R14).
    fn close_if_done(&mut self, bid: BidId) {
        let could_rise = self
            .allocations
            .values()
            .any(|a| a.bid == bid && a.notice.as_ref().is_some_and(|notice| notice.raises_max_nodes));
        let bid_now = &self.bids[&bid];
        if bid_now.searching && bid_now.max_nodes == 0 && !could_rise {
            self.close(bid, CloseReason::Done);
        }
    }
}
