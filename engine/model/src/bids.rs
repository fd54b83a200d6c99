//! The commands of tenants: place, amend, cancel, release (R2, R14).

use crate::state::{Bid, Model};
use kubebid_core::Price;
use kubebid_core::command::{CancelMode, PlaceBid};
use kubebid_core::event::{CloseReason, DropCause, EndReason, Fact, Scope};
use kubebid_core::units::{AllocationId, BidId, Micros};

impl Model {
    pub(crate) fn place_bid(&mut self, placed: &PlaceBid, scope: Scope) {
        let id = BidId(self.seq.0);
        let bid = Bid {
            tenant: self.find_account(&placed.tenant).expect("the command has named it"),
            scope: scope.clone(),
            ceiling: placed.ceiling,
            min_nodes: placed.min_nodes,
            max_nodes: placed.max_nodes,
            seq: self.seq,
            time_in_force: placed.time_in_force.clone(),
            expire_at: placed.expire_at,
            on_preemption: placed.on_preemption.clone(),
            searching: true,
            ceiling_locked_until: Micros(0),
            highest_ceiling: placed.ceiling,
        };
        self.bids.insert(id, bid);
        self.emit(Fact::BidPlaced {
            bidder: self.bidder(id),
            scope,
            ceiling: placed.ceiling,
            min_nodes: placed.min_nodes,
            max_nodes: placed.max_nodes,
        });
    }

    /// Amends a bid (R2). The ceiling comes first, then the number of nodes.
    pub(crate) fn amend_bid(&mut self, id: BidId, ceiling: Option<Price>, max_nodes: Option<u32>) {
        let seq = self.seq;
        let bid = self.bids.get_mut(&id).expect("checked");
        let (old_ceiling, old_max_nodes) = (bid.ceiling, bid.max_nodes);
        bid.ceiling = ceiling.unwrap_or(old_ceiling);
        bid.max_nodes = max_nodes.unwrap_or(old_max_nodes);
        if bid.ceiling != old_ceiling || bid.max_nodes > old_max_nodes {
            bid.seq = seq;
        }
        let (ceiling, max_nodes, bid_seq) = (bid.ceiling, bid.max_nodes, bid.seq);
        self.emit(Fact::BidAmended { bidder: self.bidder(id), ceiling, max_nodes, bid_seq });

        if max_nodes != old_max_nodes {
            self.forget_what_close_took(id);
        }
        if ceiling > old_ceiling {
            self.lock_ceiling(id);
            self.raise_highest_ceiling(id, ceiling);
        }
        if ceiling < old_ceiling {
            self.drop_claims_not_allowed_to(id);
        }
        self.give_up_claims_beyond(id);
        // The number of nodes that the bid wants back is known only now.
        if ceiling > old_ceiling {
            self.drop_claims_not_allowed_against(id);
        }
    }

    /// Keeps the ceiling of a bid from falling for a time, if one of its nodes is under notice (R2).
    fn lock_ceiling(&mut self, id: BidId) {
        let longest = self.notices(id).map(|(unit, _)| self.rules(unit.market).min_runtime).max();
        let Some(longest) = longest else { return };
        let end = self.now.after(longest);
        let bid = self.bids.get_mut(&id).expect("known");
        bid.ceiling_locked_until = bid.ceiling_locked_until.max(end);
    }

    /// Makes rescissions from now on leave `max_nodes` as it is (R7).
    fn forget_what_close_took(&mut self, bid: BidId) {
        for a in self.allocations.values_mut().filter(|a| a.bid == bid) {
            if let Some(notice) = &mut a.notice {
                notice.raises_max_nodes = false;
            }
        }
    }

    /// Drops the claims of a lowered bid on units with a higher reserve, and those that R4 would not
    /// allow against a holder that wants its node back (R2).
    fn drop_claims_not_allowed_to(&mut self, bid: BidId) {
        let ceiling = self.bids[&bid].ceiling;
        for claimed in self.claims(bid) {
            let too_dear = self.offer_reserve(self.allocations[&claimed].unit) > ceiling;
            let not_allowed =
                self.ceiling_needed_against_holder(claimed) > ceiling && self.wants_back(claimed);
            if too_dear || not_allowed {
                self.drop_claim(claimed, DropCause::Lowered);
            }
        }
    }

    /// Drops the claims on the nodes of a holder that wants them back and has raised its ceiling
    /// (R6).
    fn drop_claims_not_allowed_against(&mut self, bid: BidId) {
        for held in self.held(bid) {
            let Some(claim) = self.allocations[&held].claim() else { continue };
            let claimers = self.bids[&claim.bid].ceiling;
            if self.ceiling_needed_against_holder(held) > claimers && self.wants_back(held) {
                self.drop_claim(held, DropCause::HolderRaised);
            }
        }
    }

    /// Gives up claims until fewer nodes are enough: the one with the dearest victim first, then the
    /// oldest (R2).
    fn give_up_claims_beyond(&mut self, bid: BidId) {
        let wanted = self.bids[&bid].max_nodes;
        while self.live(bid) + self.claims(bid).len() as u32 > wanted {
            let claimed = self.claim_to_give_up(bid).expect("not below the live nodes");
            self.drop_claim(claimed, DropCause::Shrunk);
        }
    }

    /// Cancels a bid. With `RELEASE` its nodes and claims end as well, even if the bid was closed
    /// before. With `REGROUP` they end, and the search goes on (R14).
    pub(crate) fn cancel_bid(&mut self, bid: BidId, mode: &CancelMode) {
        if *mode == CancelMode::Regroup {
            self.regroup(bid);
            return;
        }
        if self.bids[&bid].searching {
            self.close(bid, CloseReason::Cancelled);
        }
        for claimed in self.claims(bid) {
            self.drop_claim(claimed, DropCause::Cancelled);
        }
        if *mode == CancelMode::Release {
            for held in self.held(bid) {
                self.end(held, EndReason::Released);
            }
        }
    }

    fn regroup(&mut self, bid: BidId) {
        for claimed in self.claims(bid) {
            self.drop_claim(claimed, DropCause::Regrouped);
        }
        for held in self.held(bid) {
            self.end(held, EndReason::Regrouped);
        }
    }

    pub(crate) fn release(&mut self, allocation: AllocationId) {
        self.end(allocation, EndReason::Released);
    }

    /// Ends the search of a bid at its expiry and drops its claims. Its nodes stay (R14).
    pub(crate) fn expire(&mut self, bid: BidId) {
        self.close(bid, CloseReason::Expired);
        for claimed in self.claims(bid) {
            self.drop_claim(claimed, DropCause::Expired);
        }
    }

    /// Ends the search of a bid.
    pub(crate) fn close(&mut self, bid: BidId, reason: CloseReason) {
        let closed = self.bids.get_mut(&bid).expect("known");
        closed.searching = false;
        let max_nodes = closed.max_nodes;
        self.emit(Fact::BidClosed { bidder: self.bidder(bid), max_nodes, reason });
    }
}
