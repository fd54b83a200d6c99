//! Charges: the debits, credits and fees of each node (R15).

use crate::reservations::{Span, exact};
use crate::state::{Allocation, Claim, Model};
use kubebid_core::Price;
use kubebid_core::event::{ChargeReason, EndReason, Fact, Node, NoticeReason};
use kubebid_core::money::{Amount, Bill};
use kubebid_core::units::{AccountId, AllocationId, BidId, Micros, UnitId};

/// Returns true if the holder of a node may give it up for less than `min_charge`: it is under a notice that is not for want of
/// funds.
fn is_excused(a: &Allocation) -> bool {
    a.notice.as_ref().is_some_and(|notice| notice.reason != NoticeReason::Funds)
}

impl Model {
    /// Adds the time until `then` to the bills of the nodes that are ready, at the prices last
    /// settled.
    pub(crate) fn bill_until(&mut self, then: Micros) {
        let span = then.since(self.now);
        for a in self.allocations.values_mut().filter(|a| a.ready.is_some()) {
            a.bill += a.billed.over(span);
        }
    }

    /// Charges a node that has ended. `a` is the allocation as it was before.
    pub(crate) fn charge_ended(&mut self, node: Node, a: &Allocation, reason: EndReason) {
        let bill = match reason {
            EndReason::Released | EndReason::Regrouped if !is_excused(a) => {
                a.bill + self.missing_to_minimum(a)
            }
            EndReason::Funds => a.bill + self.missing_to_minimum(a),
            EndReason::UnitLost if a.is_protected(self.now) => Bill::default(),
            EndReason::Released
            | EndReason::Regrouped
            | EndReason::UnitLost
            | EndReason::Outbid
            | EndReason::CapacityWithdrawn
            | EndReason::ReserveRaised
            | EndReason::StartTimeout => a.bill,
        };
        self.charge(node, node.tenant, bill, reason.into());
    }

    /// Returns what a released node lacks of the bill of `min_charge`.
    fn missing_to_minimum(&self, a: &Allocation) -> Bill {
        let run = a.ready.map_or(Micros(0), |ready| self.now.since(ready));
        let least = self.least_charge(a.unit, a.reservation.map(|reservation| reservation.span));
        a.billed.over(least.since(run))
    }

    /// Returns the `min_charge` that is in force, or what is reserved of it (R19).
    pub(crate) fn least_charge(&self, unit: UnitId, reserved: Option<Span>) -> Micros {
        let least = self.rules(unit.market).min_charge;
        reserved.map_or(least, |span| least.min(span.tail))
    }

    /// Charges a claim that has ended in a way that costs.
    pub(crate) fn charge_dropped_claim(&mut self, allocation: AllocationId, claim: &Claim) {
        let node = self.node(allocation);
        let price = self.price_of_ended_claim(claim.bid, node.unit);
        let bill = price.over(self.least_charge(node.unit, claim.span));
        self.charge(node, self.bids[&claim.bid].tenant, bill, ChargeReason::ClaimDropped);
    }

    /// Returns the most that a claim can cost if its bid gives it up. The price last settled is not used here: with it, settling again
    /// could rescue a claim for which no money was there before (I8, R19).
    pub(crate) fn highest_charge_of_claim(&self, claimed: AllocationId) -> i128 {
        let claim = self.allocations[&claimed].claim().expect("claimed");
        let least = self.least_charge(self.allocations[&claimed].unit, claim.span);
        exact(self.reserved_ceiling(claim.bid).over(least))
    }

    /// Returns what a bid would have paid for a unit as last settled. A bid that was placed since then has the ceiling
    /// that it has now.
    pub(crate) fn price_of_ended_claim(&self, id: BidId, unit: UnitId) -> Price {
        let settled = self.settled.as_deref().expect("the holder of the unit has got it in a settling");
        let bid = settled.bids.get(&id).unwrap_or(&self.bids[&id]);
        settled.would_pay(bid, unit)
    }

    /// Charges a bill. The debit is credit plus fee, rounded down once. A debit of 0 is not charged.
    fn charge(&mut self, node: Node, tenant: AccountId, bill: Bill, reason: ChargeReason) {
        let debit = bill.round();
        if debit == Amount::ZERO {
            return;
        }
        let fee = debit.fee(self.rules(node.unit.market).fee_bps);
        self.totals.charge(debit, fee);
        if let Some(funded) = self.funded.get_mut(&tenant) {
            funded.funds -= i128::try_from(debit.0).expect("a charge has bounds");
        }
        self.emit(Fact::Charged { node, tenant, debit, fee, reason });
    }
}
