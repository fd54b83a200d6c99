//! Charges: the debits, credits and fees of each node (R15).

use crate::state::{Allocation, Claim, Model};
use kubebid_core::Price;
use kubebid_core::event::{ChargeReason, EndReason, Fact, Node};
use kubebid_core::money::{Amount, Bill};
use kubebid_core::units::{AccountId, AllocationId, BidId, Micros, UnitId};

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
            EndReason::Released | EndReason::Regrouped if a.notice.is_none() => {
                a.bill + self.missing_to_minimum(a)
            }
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
        a.billed.over(self.rules(a.unit.market).min_charge.since(run))
    }

    /// Charges a claim that has ended in a way that costs.
    pub(crate) fn charge_dropped_claim(&mut self, allocation: AllocationId, claim: &Claim) {
        let node = self.node(allocation);
        let price = self.price_of_ended_claim(claim.bid, node.unit);
        let bill = price.over(self.rules(node.unit.market).min_charge);
        self.charge(node, self.bids[&claim.bid].tenant, bill, ChargeReason::ClaimDropped);
    }

    /// Returns what a bid would have paid for a unit as last settled. A bid that was placed since then has the ceiling
    /// that it has now.
    fn price_of_ended_claim(&self, id: BidId, unit: UnitId) -> Price {
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
        self.emit(Fact::Charged { node, tenant, debit, fee, reason });
    }
}
