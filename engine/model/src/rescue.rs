//! Free units for claimants, and notices that no bid claims (R6).

use crate::displace::{What, needed_ceiling};
use crate::state::Model;
use kubebid_core::Price;
use kubebid_core::event::ClaimCause;
use kubebid_core::units::{AllocationId, BidId, UnitId};
use std::cmp::Reverse;

impl Model {
    /// Returns the ceiling that R4 needs against the holder of a node under notice.
    pub(crate) fn ceiling_needed_against_holder(&self, node: AllocationId) -> Price {
        let unit = self.allocations[&node].unit;
        needed_ceiling(self.holder_ceiling(node), self.offer_reserve(unit), self.rules(unit.market))
    }

    /// Returns true if the bid of a node under notice would keep it if no bid claimed it: its unit
    /// stays and is not too dear, and there is room for it, or a claim that the bid gives up for it.
    pub(crate) fn wants_back(&self, node: AllocationId) -> bool {
        let a = &self.allocations[&node];
        let raises = a.notice.as_ref().is_some_and(|notice| notice.raises_max_nodes);
        let lacks = self.lacks_to_come_back(node);
        let tenant = self.bids[&a.bid].tenant;
        let payable = if raises || self.room(a.bid) > 0 {
            self.covers(tenant, lacks)
        } else if let Some(claimed) = self.claim_to_give_up(a.bid) {
            let given_up = self.reserved_by_claim(claimed) - self.highest_charge_of_claim(claimed);
            self.covers(tenant, lacks - given_up)
        } else {
            false
        };
        let affordable = self.offer_reserve(a.unit) <= self.holder_ceiling(node);
        !self.is_leaving(a.unit) && affordable && payable
    }

    fn is_unclaimed_notice(&self, node: AllocationId) -> bool {
        self.allocations[&node].notice.as_ref().is_some_and(|notice| notice.claim.is_none())
    }

    /// Returns true for a notice without a claim whose holder wants its node back.
    pub(crate) fn is_orphan(&self, node: AllocationId) -> bool {
        self.is_unclaimed_notice(node) && self.wants_back(node)
    }

    /// Returns true for a notice without a claim that any bid may claim.
    pub(crate) fn stands(&self, node: AllocationId) -> bool {
        let leaving = self.is_leaving(self.allocations[&node].unit);
        self.is_unclaimed_notice(node) && !leaving && !self.wants_back(node)
    }

    fn orphans(&self) -> Vec<AllocationId> {
        self.allocations.keys().copied().filter(|node| self.is_orphan(*node)).collect()
    }

    /// Returns the number of a bid's orphans that use up its demand when they come back, which are
    /// those that do not raise `max_nodes`.
    pub(crate) fn own_orphans(&self, bid: BidId) -> u32 {
        let own = self.orphans().into_iter().filter(|node| {
            let a = &self.allocations[node];
            a.bid == bid && !a.notice.as_ref().is_some_and(|notice| notice.raises_max_nodes)
        });
        own.count() as u32
    }

    /// Returns true if the bid wants more nodes than those that come back to it.
    fn wants_beyond_orphans(&self, bid: BidId) -> bool {
        self.unmet(bid) > self.own_orphans(bid)
    }

    /// §3 (2): passes on an orphan, the one with the lowest ceiling first, then the newest.
    pub(crate) fn pass_on_an_orphan(&mut self) -> bool {
        let mut orphans = self.orphans();
        orphans.sort_by_key(|node| (self.holder_ceiling(*node), Reverse(*node)));
        for orphan in orphans {
            if let Some(bid) = self.heir(orphan) {
                self.make_claim(bid, orphan, ClaimCause::PassedOn);
                return true;
            }
        }
        false
    }

    /// Returns the best unmet plain bid for which that allocation, if it were back in place, would be
    /// R4's candidate. None while that bid would rather take a free unit.
    fn heir(&self, orphan: AllocationId) -> Option<BidId> {
        let market = self.allocations[&orphan].unit.market;
        for id in self.bids_by_priority() {
            let markets = self.payable_markets(id);
            let plain = !self.is_waiting_gang(id);
            if !plain || !markets.contains(&market) || !self.wants_beyond_orphans(id) {
                continue;
            }
            let ceiling = self.bids[&id].ceiling;
            let book = self.book_with(&markets, Some(orphan));
            let victim = book.displacement(ceiling).map(|pick| pick.what);
            if victim == Some(What::Place(orphan)) {
                let rather = book.pick(ceiling).map(|pick| pick.what);
                return if matches!(rather, Some(What::Free(_))) { None } else { Some(id) };
            }
        }
        None
    }

    /// §3 (3): gives a free unit to the first bid in R2 order. Stops at the first bid that (5) could
    /// serve.
    pub(crate) fn give_a_free_unit(&mut self) -> bool {
        for id in self.bids_by_priority() {
            let markets = self.payable_markets(id);
            if self.is_waiting_gang(id) {
                if self.gang_picks(id, &markets).is_some() {
                    return false;
                }
                continue;
            }
            if self.wants_beyond_orphans(id) {
                match self.book(&markets).pick(self.bids[&id].ceiling).map(|pick| pick.what) {
                    Some(What::Free(unit)) => {
                        self.take_free(id, unit);
                        return true;
                    }
                    Some(What::Standing(_) | What::Place(_) | What::Claim(_)) => return false,
                    None => {}
                }
            }
            if let Some((claimed, unit)) = self.rescue_of(id) {
                self.rescue(claimed, unit);
                return true;
            }
        }
        false
    }

    /// Returns the claim that a bid gives up, and the free unit that it takes instead. The unit's
    /// reserve is at most the ceiling that R4 needed against the victim of the claim.
    pub(crate) fn rescue_of(&self, id: BidId) -> Option<(AllocationId, UnitId)> {
        let bid = &self.bids[&id];
        let claims = self.claims(id);
        if self.unmet(id) + claims.len() as u32 <= self.own_orphans(id) {
            return None;
        }
        let markets = self.eligible_markets(id);
        let mut free: Vec<UnitId> = self.free_units().collect();
        free.retain(|unit| markets.contains(&unit.market) && self.offer_reserve(*unit) <= bid.ceiling);
        free.sort_by_key(|unit| self.unit_priority(*unit));
        free.into_iter().find_map(|unit| {
            let mut there = claims.clone();
            // R12: a gang stays in the market of its claims.
            there.retain(|node| bid.minimum() == 1 || self.allocations[node].unit.market == unit.market);
            let claimed = self.dearest_victim(there)?;
            let accepts = self.offer_reserve(unit) <= self.ceiling_needed_against_holder(claimed);
            let same_provider = self.allocations[&claimed].unit.provider == unit.provider;
            let charge = if same_provider { 0 } else { self.highest_charge_of_claim(claimed) };
            let lacks = self.lacks_to_be_rescued(claimed, id, unit.market, charge);
            (accepts && self.covers(bid.tenant, lacks)).then_some((claimed, unit))
        })
    }

    /// Returns the claim that goes if a bid has one too many: the one with the dearest victim first,
    /// then the oldest (R2, R6).
    pub(crate) fn claim_to_give_up(&self, bid: BidId) -> Option<AllocationId> {
        self.dearest_victim(self.claims(bid))
    }

    fn dearest_victim(&self, claims: Vec<AllocationId>) -> Option<AllocationId> {
        claims.into_iter().min_by_key(|node| (Reverse(self.holder_ceiling(*node)), *node))
    }

    /// §3 (4): rescinds the notice of an orphan, that of the dearest holder first, then the oldest.
    pub(crate) fn rescind_an_orphan(&mut self) -> bool {
        match self.dearest_victim(self.orphans()) {
            Some(orphan) => {
                self.rescind(orphan);
                true
            }
            None => false,
        }
    }
}
