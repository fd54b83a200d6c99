//! The life of an allocation: begun, ready, noticed, claimed, rescinded, ended (R4, R5, R7, R11).

use crate::reservations::{Reservation, Span};
use crate::state::{Allocation, Claim, Model, Notice};
use kubebid_core::command::OnPreemption;
use kubebid_core::event::{ClaimCause, CloseReason, DropCause, EndReason, Fact, NoticeReason};
use kubebid_core::money::Bill;
use kubebid_core::units::{AllocationId, BidId, Micros, UnitId};
use kubebid_core::{MarketState, Price};

impl Model {
    fn get_mut(&mut self, allocation: AllocationId) -> &mut Allocation {
        self.allocations.get_mut(&allocation).expect("not ended")
    }

    pub(crate) fn claim_mut(&mut self, claimed: AllocationId) -> &mut Claim {
        let notice = self.get_mut(claimed).notice.as_mut().expect("only a notice is claimed");
        notice.claim.as_mut().expect("claimed")
    }

    /// Gives a bid a free unit for its unmet demand.
    pub(crate) fn take_free(&mut self, bid: BidId, unit: UnitId) {
        self.begin_to_reserve(bid);
        let span = self.new_span(self.bids[&bid].tenant, unit.market);
        self.allocate(bid, unit, span);
    }

    fn allocate(&mut self, bid: BidId, unit: UnitId, span: Option<Span>) {
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
            highest_frozen: Price::ZERO,
            reservation: span.map(|span| Reservation { base: Bill::default(), span, unfunded: false }),
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

    /// Gives a notice. It freezes the price that was last settled (R8). The node becomes unmet demand again, or with `CLOSE` is not wanted any more
    /// (R7).
    pub(crate) fn start_notice(&mut self, allocation: AllocationId, deadline: Micros, reason: NoticeReason) {
        let bid = self.allocations[&allocation].bid;
        let raises_max_nodes = self.takes_from_max_nodes(bid);
        let frozen_price = self.price_at_notice(allocation);
        let a = self.get_mut(allocation);
        a.billed = frozen_price;
        a.highest_frozen = a.highest_frozen.max(frozen_price);
        a.notice = Some(Notice { deadline, reason, frozen_price, claim: None, raises_max_nodes });
        a.raise = None;
        let max_nodes = self.bids[&bid].max_nodes;
        self.emit(Fact::NoticeStarted { node: self.node(allocation), deadline, max_nodes, reason });
    }

    /// Returns the price last settled. A node that has begun since then has what its bid would have paid (R19).
    fn price_at_notice(&self, allocation: AllocationId) -> Price {
        let a = &self.allocations[&allocation];
        match &self.settled {
            Some(settled) if !settled.allocations.contains_key(&allocation) => {
                self.price_of_ended_claim(a.bid, a.unit)
            }
            Some(_) | None => a.billed,
        }
    }

    /// Moves the deadline of a notice to an earlier time (R19).
    pub(crate) fn move_notice(&mut self, allocation: AllocationId, deadline: Micros) {
        self.get_mut(allocation).notice.as_mut().expect("under notice").deadline = deadline;
        self.emit(Fact::NoticeMoved { node: self.node(allocation), deadline });
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
        self.begin_to_reserve(bid);
        let span = self.new_span(self.bids[&bid].tenant, self.allocations[&allocation].unit.market);
        let claim = Claim { bid, taken: self.claimed, span };
        let notice = self.get_mut(allocation).notice.as_mut().expect("only a notice is claimed");
        let was = notice.claim.replace(claim).map(|was| was.bid);
        self.emit(Fact::Claimed {
            node: self.node(allocation),
            by: self.bidder(bid),
            was: was.map(|was| self.bidder(was)),
            cause,
        });
    }

    /// Drops a claim. It costs a minimum, unless the holder or the provider of the node is the cause (R15).
    pub(crate) fn drop_claim(&mut self, allocation: AllocationId, cause: DropCause) {
        let claim = self.take_claim(allocation, cause);
        match cause {
            DropCause::Rescued
            | DropCause::Lowered
            | DropCause::Shrunk
            | DropCause::Cancelled
            | DropCause::Expired
            | DropCause::Regrouped
            | DropCause::OwnSupply => self.charge_dropped_claim(allocation, &claim),
            DropCause::HolderBack
            | DropCause::HolderRaised
            | DropCause::ReserveRaised
            | DropCause::CapacityWithdrawn
            | DropCause::UnitLost
            | DropCause::StartTimeout => {}
        }
    }

    /// Gives a bid a free unit in place of a claim. It is free of charge if both units are of one provider (R15).
    pub(crate) fn rescue(&mut self, claimed: AllocationId, unit: UnitId) {
        let by = self.allocations[&claimed].claim().expect("claimed").bid;
        let span = self.new_span(self.bids[&by].tenant, unit.market);
        let claim = self.take_claim(claimed, DropCause::Rescued);
        if self.allocations[&claimed].unit.provider != unit.provider {
            self.charge_dropped_claim(claimed, &claim);
        }
        self.allocate(claim.bid, unit, span);
    }

    fn take_claim(&mut self, allocation: AllocationId, cause: DropCause) -> Claim {
        let notice = self.get_mut(allocation).notice.as_mut().expect("only a notice is claimed");
        let claim = notice.claim.take().expect("claimed");
        self.emit(Fact::ClaimDropped { node: self.node(allocation), by: self.bidder(claim.bid), cause });
        claim
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
        self.reserve_again(allocation);
        let offered = self.offer_reserve(unit);
        let from = self.after_notice_and_protection(allocation);
        let a = self.get_mut(allocation);
        a.notice = None;
        a.raise = (offered > reserve).then_some((offered, from));
        let max_nodes = self.bids[&bid].max_nodes;
        self.emit(Fact::NoticeRescinded { node: self.node(allocation), max_nodes });
    }

    /// Ends a node; its unit goes to the claim's bid at once, leaves, rests, or is free (R5, R11).
    pub(crate) fn end(&mut self, allocation: AllocationId, reason: EndReason) {
        match reason {
            EndReason::UnitLost => self.drop_any_claim(allocation, DropCause::UnitLost),
            EndReason::StartTimeout => self.drop_any_claim(allocation, DropCause::StartTimeout),
            EndReason::Outbid
            | EndReason::CapacityWithdrawn
            | EndReason::ReserveRaised
            | EndReason::Funds
            | EndReason::Released
            | EndReason::Regrouped => {}
        }
        let node = self.node(allocation);
        let a = self.allocations[&allocation].clone();
        self.change_max_nodes_at_end(&a, reason);
        self.allocations.remove(&allocation);
        self.emit(Fact::Ended { node, max_nodes: self.bids[&node.bid].max_nodes, reason });
        self.charge_ended(node, &a, reason);
        let closing = self.market_state(node.unit.market) != MarketState::Open;
        let timed_out = reason == EndReason::StartTimeout;
        if reason == EndReason::UnitLost || self.is_leaving(node.unit) || timed_out && closing {
            self.remove_unit(node.unit);
        } else if timed_out {
            self.rest(node.unit);
        } else if let Some(claim) = a.claim() {
            self.allocate(claim.bid, node.unit, claim.span);
        }
        self.close_if_done(node.bid);
    }

    /// Changes `max_nodes` for a node that ends: a release takes one off, so does a loss with `CLOSE` (R7), and
    /// regrouping gives back what a notice took off (R14).
    fn change_max_nodes_at_end(&mut self, a: &Allocation, reason: EndReason) {
        match (&a.notice, reason) {
            (None, EndReason::Released) => self.bids.get_mut(&a.bid).expect("known").max_nodes -= 1,
            (None, EndReason::UnitLost | EndReason::StartTimeout) => {
                self.takes_from_max_nodes(a.bid);
            }
            (Some(notice), EndReason::Regrouped) if notice.raises_max_nodes => {
                self.bids.get_mut(&a.bid).expect("known").max_nodes += 1;
            }
            (None | Some(_), _) => {}
        }
    }

    fn drop_any_claim(&mut self, allocation: AllocationId, cause: DropCause) {
        if self.allocations[&allocation].claim().is_some() {
            self.drop_claim(allocation, cause);
        }
    }

    fn rest(&mut self, unit: UnitId) {
        self.units.get_mut(&unit).expect("known").resting = true;
        self.emit(Fact::UnitResting { unit });
    }

    pub(crate) fn remove_unit(&mut self, unit: UnitId) {
        self.units.remove(&unit);
        self.emit(Fact::UnitRemoved { unit });
    }

    /// Closes a bid that wants no more nodes, if no notice could change that (R14).
    fn close_if_done(&mut self, bid: BidId) {
        let could_rise = self.notices(bid).any(|(_, notice)| notice.raises_max_nodes);
        let bid_now = &self.bids[&bid];
        if bid_now.searching && bid_now.max_nodes == 0 && !could_rise {
            self.close(bid, CloseReason::Done);
        }
    }
}
