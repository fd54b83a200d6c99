//! The invariants of a settled market, checked on the raw state (§4).

mod fold;
mod funds;
mod step;

use crate::state::{Allocation, Model};
use kubebid_core::event::NoticeReason;
use kubebid_core::units::{AllocationId, BidId};
use kubebid_core::{MarketState, Price};

pub use step::check_step;

type Verdict = Result<(), String>;

fn require(condition: bool, broken: impl FnOnce() -> String) -> Verdict {
    if condition { Ok(()) } else { Err(broken()) }
}

/// Checks the invariants of the state after a command.
///
/// # Errors
/// The invariant that is broken, and how.
pub fn check(model: &Model) -> Verdict {
    model.each_unit_is_in_one_state()?;
    for (id, a) in &model.allocations {
        model.allocation_is_sound(*id, a)?;
    }
    for id in model.bids.keys() {
        model.bid_is_sound(*id)?;
    }
    model.nobody_waits_for_what_is_to_be_had()?;
    funds::check(model)?;
    let totals = model.totals;
    require(totals.debits.0 == totals.credits.0 + totals.fees.0, || format!("I5: {totals:?}"))?;
    model.is_settled()
}

impl Model {
    /// Checks I1.
    fn each_unit_is_in_one_state(&self) -> Verdict {
        for unit in self.units.keys() {
            let nodes = self.allocations.values().filter(|a| a.unit == *unit).count();
            require(nodes <= 1, || format!("I1: {nodes} nodes on {unit:?}"))?;
            let noticed = self.on_unit(*unit).is_some_and(|id| self.allocations[&id].notice.is_some());
            require(!self.is_leaving(*unit) || noticed, || format!("R11: {unit:?} leaves without notice"))?;
            let rests = self.units[unit].resting;
            require(!rests || nodes == 0, || format!("I1: {unit:?} rests, and is held"))?;
            let open = self.market_state(unit.market) == MarketState::Open;
            require(!rests || open, || format!("R11: {unit:?} rests in a closed market"))?;
        }
        for market in self.market_ids() {
            let supply = self.supply(market);
            let has_units = supply.total > 0;
            let right = match self.market_state(market) {
                MarketState::Open => true,
                MarketState::Closing(_) => has_units,
                MarketState::Ended => !has_units,
            };
            require(right, || format!("R18: {market:?} is closed with {supply:?}"))?;
            let adds_up = supply.total == supply.free + supply.allocated + supply.notice + supply.resting;
            require(adds_up && supply.claimed <= supply.notice, || format!("I1: {supply:?}"))?;
        }
        Ok(())
    }

    fn allocation_is_sound(&self, id: AllocationId, a: &Allocation) -> Verdict {
        let bid = &self.bids[&a.bid];
        require(self.units.contains_key(&a.unit), || format!("I1: {id} has no unit"))?;
        let within = match &a.notice {
            None => a.reserve <= a.billed && a.billed <= bid.ceiling,
            Some(notice) if matches!(notice.reason, NoticeReason::Outbid | NoticeReason::Funds) => {
                a.billed == notice.frozen_price
            }
            Some(notice) => a.billed <= notice.frozen_price,
        };
        require(within, || format!("I3: {id} is billed {}: {a:?}", a.billed))?;
        let up_to_date = a.billed == self.billed(a);
        require(up_to_date, || format!("I4: {id} is billed {}, not {}", a.billed, self.billed(a)))?;
        require(a.ready.is_some() || self.now < a.start_deadline, || format!("R11: {id} never started"))?;

        let Some(notice) = &a.notice else {
            let affordable = self.offer_reserve(a.unit) <= bid.ceiling;
            return require(affordable, || format!("R11: {id} is held below the reserve"));
        };
        require(self.now < notice.deadline, || format!("I15: {id} is past its deadline"))?;
        let outbid = notice.reason == NoticeReason::Outbid;
        let after_protection = a.ready.is_some() && a.protected_until <= notice.deadline;
        require(!outbid || after_protection, || format!("I12: {id} displaced under protection"))?;
        require(!self.is_orphan(id), || format!("R6: {id} is left an orphan"))?;

        let Some(claim) = &notice.claim else { return Ok(()) };
        let claimer = &self.bids[&claim.bid];
        require(claim.bid != a.bid, || format!("R6: bid {} claims its own node {id}", a.bid))?;
        require(!self.is_leaving(a.unit), || format!("R11: {id} is claimed and leaves"))?;
        let affordable = self.offer_reserve(a.unit) <= claimer.ceiling;
        require(affordable, || format!("R11: the claim on {id} is below the reserve"))?;
        let sells = self.sells_in(claimer.tenant, a.unit.market);
        require(!sells, || format!("I22: {} claims {id} where it sells", claim.bid))
    }

    /// Checks I2, and what an ended search means.
    fn bid_is_sound(&self, id: BidId) -> Verdict {
        let bid = &self.bids[&id];
        let (live, claims) = (self.live(id), self.claims(id).len() as u32);
        require(live + claims <= bid.max_nodes, || format!("I2: bid {id} has {live} and {claims}"))?;
        let expired = bid.searching && bid.expire_at.is_some_and(|at| at <= self.now);
        require(!expired, || format!("R14: bid {id} has expired"))
    }

    /// Checks I6, I7, I11 and I19: no unmet bid could be served, and no claimant rescued.
    fn nobody_waits_for_what_is_to_be_had(&self) -> Verdict {
        for id in self.bids_by_priority() {
            let markets = self.payable_markets(id);
            let ceiling: Price = self.bids[&id].ceiling;
            if self.is_waiting_gang(id) {
                let picks = self.gang_picks(id, &markets);
                require(picks.is_none(), || format!("I6: gang {id} could have {picks:?}"))?;
            } else if self.unmet(id) > 0 {
                let pick = self.book(&markets).pick(ceiling);
                require(pick.is_none(), || format!("I6: bid {id} could have {pick:?}"))?;
            }
            let rescue = self.rescue_of(id);
            require(rescue.is_none(), || format!("I11: bid {id} could let off {rescue:?}"))?;
        }
        Ok(())
    }

    /// Checks I8.
    fn is_settled(&self) -> Verdict {
        let mut again = self.clone();
        again.settle();
        require(again.events.is_empty(), || format!("I8: {:?}", again.events))
    }
}
