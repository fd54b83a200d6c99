//! Charges: the debits, credits and fees of each node (R15).

use crate::state::{Allocation, Claim, Model};
use kubebid_core::Price;
use kubebid_core::event::{ChargeReason, EndReason, Fact, Node};
use kubebid_core::money::{Amount, Bill};
use kubebid_core::units::{AccountId, AllocationId, Micros};

impl Model {
    /// Nodes that are ready owe for the time until `then`, at the prices last settled.
    pub(crate) fn bill_until(&mut self, then: Micros) {
        let span = then.since(self.now);
        for a in self.allocations.values_mut().filter(|a| a.ready.is_some()) {
            a.bill += a.billed.over(span);
        }
    }

    /// A node that has ended, as it was before.
    pub(crate) fn charge_ended(&mut self, node: Node, a: &Allocation, reason: EndReason) {
        let bill = match reason {
            EndReason::Released if a.notice.is_none() => a.bill + self.missing_to_minimum(a),
            EndReason::UnitLost if a.is_protected(self.now) => Bill::default(),
            EndReason::Released
            | EndReason::UnitLost
            | EndReason::Outbid
            | EndReason::CapacityWithdrawn
            | EndReason::ReserveRaised
            | EndReason::StartTimeout => a.bill,
        };
        self.charge(node, node.tenant, bill, reason.into());
    }

    /// Returns the time billed for a released node: at least `min_charge`.
    fn missing_to_minimum(&self, a: &Allocation) -> Bill {
        let run = a.ready.map_or(Micros(0), |ready| self.now.since(ready));
        a.billed.over(self.rules(a.unit.market).min_charge.since(run))
    }

    pub(crate) fn charge_dropped_claim(&mut self, allocation: AllocationId, claim: &Claim) {
        let node = self.node(allocation);
        let price: Price = claim.would_pay;
        let bill = price.over(self.rules(node.unit.market).min_charge);
        self.charge(node, self.bids[&claim.bid].tenant, bill, ChargeReason::ClaimDropped);
    }

    /// Debit = credit + fee. Rounded down once; no charge of nothing is written.
    fn charge(&mut self, node: Node, tenant: AccountId, bill: Bill, reason: ChargeReason) {
        let debit = bill.round();
        if debit == Amount::ZERO {
            return;
        }
        let fee = debit.fee(self.rules(node.unit.market).fee_bps);
        self.totals.charge(debit, fee);
        self.tell(Fact::Charged { node, tenant, debit, fee, reason });
    }
}
