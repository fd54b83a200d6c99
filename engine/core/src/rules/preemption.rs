//! Notices and claims: how a node changes hands (R5, R6, R7).

use crate::book::{BookPlace, Victim};
use crate::event::{Bidder, ClaimCause, DropCause, EndReason, Fact, NoticeReason};
use crate::exchange::Exchange;
use crate::state::timers::Due;
use crate::state::{Allocation, Claim, Notice};
use crate::types::units::{AllocationId, BidId, Micros};

impl Allocation {
    /// Returns true if the node is an orphan that takes up unmet demand of its bid when it comes
    /// back, and does not raise `max_nodes` instead (R6, R7).
    pub(crate) fn takes_demand_back(&self) -> bool {
        match self.place {
            Some(BookPlace::Orphan { returns, .. }) => !returns,
            Some(
                BookPlace::Live(_)
                | BookPlace::Claimed { .. }
                | BookPlace::Standing { .. }
                | BookPlace::Leaving,
            )
            | None => false,
        }
    }
}

impl Exchange {
    pub(crate) fn start_notice(&mut self, id: AllocationId, reason: NoticeReason) {
        self.start_notice_until(id, reason, self.usual_deadline(id));
    }

    pub(crate) fn start_notice_until(&mut self, id: AllocationId, reason: NoticeReason, deadline: Micros) {
        let bid = self.give_notice(id, reason, deadline);
        self.reindex_bid(bid);
    }

    /// Returns the deadline of a notice that begins, unless its reason is FUNDS. It is not before the end of the
    /// protection, during which OUTBID never occurs.
    fn usual_deadline(&self, id: AllocationId) -> Micros {
        let allocation = self.allocation(id);
        let notice = self.market(allocation.unit.market).rules.notice;
        self.now.after(notice).max(allocation.protected_until)
    }

    /// Gives a notice. Returns the bid, which the caller must reindex with its node.
    fn give_notice(&mut self, id: AllocationId, reason: NoticeReason, deadline: Micros) -> BidId {
        let bid_id = self.allocation(id).bid;
        let frozen = self.last_settled.billed(id, self.billed(self.allocation(id)));
        let bid = self.bid_mut(bid_id);
        bid.live.remove(id);
        bid.notices.insert(id);
        let returns = bid.terms.closes;
        if returns {
            bid.terms.max_nodes -= 1;
        }
        let (max_nodes, is_funded) = (bid.terms.max_nodes, bid.is_funded);
        let notice = Notice { deadline, reason, returns, frozen, claim: None };
        let allocation = self.allocation_mut(id);
        allocation.notice = Some(notice);
        allocation.raise_at = None;
        self.timers.set(deadline, Due::Deadline(id));
        self.emit(Fact::NoticeStarted { node: self.node(id), deadline, max_nodes, reason });
        if is_funded {
            self.reserve_frozen_price(id);
        }
        self.remeter(id);
        bid_id
    }

    /// Moves the deadline of a notice to an earlier time (R19).
    pub(crate) fn move_deadline(&mut self, id: AllocationId, deadline: Micros) {
        self.allocation_mut(id).notice.as_mut().expect("a notice to move").deadline = deadline;
        self.timers.set(deadline, Due::Deadline(id));
        self.emit(Fact::NoticeMoved { node: self.node(id), deadline });
        self.reindex_allocation(id);
    }

    /// Displaces a victim (R4): its notice begins, or the claim on it moves.
    pub(crate) fn displace(&mut self, by: BidId, victim: Victim) {
        let node = victim.allocation;
        if !victim.claimed {
            let outbid = self.give_notice(node, NoticeReason::Outbid, self.usual_deadline(node));
            self.claim(by, node, ClaimCause::Displaced);
            self.reindex_bid(outbid);
        } else if self.allocation(node).bid == by {
            self.drop_claim(node, DropCause::HolderBack);
            self.rescind(node);
        } else {
            self.claim(by, node, ClaimCause::ClaimDisplaced);
        }
    }

    pub(crate) fn pass_on(&mut self, orphan: AllocationId, to: BidId) {
        self.claim(to, orphan, ClaimCause::PassedOn);
    }

    /// Claims a standing notice. Its holder does not want the node; otherwise it would be an orphan.
    pub(crate) fn claim_standing(&mut self, by: BidId, node: AllocationId) {
        self.claim(by, node, ClaimCause::Standing);
    }

    fn claim(&mut self, by: BidId, node: AllocationId, cause: ClaimCause) {
        self.last_claim += 1;
        let claim = Claim { by: self.bidder(by), number: self.last_claim };
        let notice = self.allocation_mut(node).notice.as_mut().expect("claims are on notices");
        let was = notice.claim.replace(claim);
        if let Some(was) = was {
            self.bid_mut(was.by.bid).claims.remove(node);
            self.release_claim(node, was.by);
        }
        self.bid_mut(by).claims.insert(node);
        self.reserve_claim(node, by);
        self.emit(Fact::Claimed {
            node: self.node(node),
            by: claim.by,
            was: was.map(|claim| claim.by),
            cause,
        });
        self.reindex_allocation(node);
        if let Some(was) = was {
            self.reindex_bid(was.by.bid);
        }
        self.reindex_bid(by);
    }

    /// Drops the claim on a node under notice, and charges it if its end costs something (R15). The notice stays.
    pub(crate) fn drop_claim(&mut self, node: AllocationId, cause: DropCause) {
        let claim = self.allocation(node).claim().expect("a claim to drop");
        if cause.is_charged() {
            self.charge_for_claim(node, claim.by);
        }
        self.drop_claim_free_of_charge(node, cause);
    }

    /// Drops the claim on a node under notice and charges nothing. The notice stays.
    pub(crate) fn drop_claim_free_of_charge(&mut self, node: AllocationId, cause: DropCause) {
        let by = self.take_claim(node).expect("a claim to drop");
        self.release_claim(node, by);
        self.emit(Fact::ClaimDropped { node: self.node(node), by, cause });
        self.reindex_allocation(node);
        self.reindex_bid(by.bid);
    }

    /// Takes the claim off a node under notice. The caller releases its reservation, or hands it over.
    pub(crate) fn take_claim(&mut self, node: AllocationId) -> Option<Bidder> {
        let claim = self.allocation_mut(node).notice.as_mut()?.claim.take()?;
        self.bid_mut(claim.by.bid).claims.remove(node);
        Some(claim.by)
    }

    /// Rescinds a notice: the holder keeps its node, and gives up a claim if there is no room for the
    /// node (R6, R7).
    pub(crate) fn rescind(&mut self, id: AllocationId) {
        self.note_billed(id);
        let bid_id = self.allocation(id).bid;
        let notice = self.allocation(id).notice.expect("a notice to rescind");
        let bid = self.bid_mut(bid_id);
        if notice.returns {
            bid.terms.max_nodes += 1;
        } else if bid.room() == 0 {
            let victim = self.dearest_victim(bid_id, None).expect("the node is wanted back");
            self.drop_claim(victim, DropCause::Rescued);
        }
        self.fund_again(id);
        let bid = self.bid_mut(bid_id);
        bid.notices.remove(id);
        bid.live.insert(id);
        let max_nodes = bid.terms.max_nodes;
        self.allocation_mut(id).notice = None;
        self.emit(Fact::NoticeRescinded { node: self.node(id), max_nodes });
        self.delay_raise(id);
        self.remeter(id);
        self.reindex_allocation(id);
        self.reindex_bid(bid_id);
    }

    /// Ends a node at the deadline of its notice. The unit goes to the bid that has the claim, if
    /// there is one (R5).
    pub(crate) fn deadline(&mut self, id: AllocationId) {
        let notice = self.allocation(id).notice.expect("a deadline is a notice's");
        self.end(id, EndReason::from(notice.reason));
    }
}
