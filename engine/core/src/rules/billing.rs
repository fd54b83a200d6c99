//! Bills nodes and claims (R15), with the reserve that counts for them (R11).

use crate::event::{Bidder, ChargeReason, DropCause, EndReason, Fact, NoticeReason};
use crate::exchange::Exchange;
use crate::settlement_details::{ClosedNode, SettlementDetail};
use crate::state::timers::Due;
use crate::state::{Allocation, Running};
use crate::types::money::{Bill, Price};
use crate::types::units::{AccountId, AllocationId, Micros, UnitId};

impl Exchange {
    /// Starts the billing of a node.
    pub(crate) fn start_meter(&mut self, id: AllocationId) {
        let terms = self.allocation(id).terms();
        let (now, market) = (self.now, self.allocation(id).unit.market);
        let meter = &mut self.market_mut(market).meter;
        meter.enter(now, terms);
        let base = -meter.reading(now, terms);
        self.allocation_mut(id).running = Some(Running { terms, base });
    }

    /// Notes the price of a node as last settled. Call it before each change of what determines the price: its
    /// reserve, or the end of a notice.
    pub(crate) fn note_billed(&mut self, id: AllocationId) {
        let billed = self.billed(self.allocation(id));
        self.last_settled.note_billed(id, billed);
    }

    /// Updates the meter after a change of what determines the price of a node.
    pub(crate) fn remeter(&mut self, id: AllocationId) {
        let Some(before) = self.allocation(id).running else { return };
        let terms = self.allocation(id).terms();
        if terms == before.terms {
            return;
        }
        let (now, market) = (self.now, self.allocation(id).unit.market);
        let meter = &mut self.market_mut(market).meter;
        let cost = before.base + meter.reading(now, before.terms);
        meter.enter(now, terms);
        let base = cost - meter.reading(now, terms);
        meter.leave(before.terms);
        self.allocation_mut(id).running = Some(Running { terms, base });
    }

    /// Returns the cost of a node so far. Zero before it is ready.
    pub(crate) fn accrued(&self, allocation: &Allocation, now: Micros) -> Bill {
        let Some(running) = allocation.running else { return Bill::default() };
        let reading = self.market(allocation.unit.market).meter.reading(now, running.terms);
        Bill(u128::try_from(running.base + reading).expect("a meter only runs forward"))
    }

    /// Returns the charge of a node that ends, and ends its metering.
    pub(crate) fn final_charge(&mut self, id: AllocationId, reason: EndReason) -> Option<Fact> {
        let allocation = self.allocation(id);
        let (tenant, unit, running) = (allocation.tenant, allocation.unit, allocation.running);
        let reason_of_notice = allocation.notice.map(|notice| notice.reason);
        let (used, price) = (self.accrued(allocation, self.now), self.billed(allocation));
        let mut missing = Micros(0);
        let mut bill = used;
        match (reason, allocation.ready) {
            // A node that its tenant gives back without a notice is billed for at least `min_charge`, and so is one
            // that its account cannot pay for (R19).
            (EndReason::Released | EndReason::Regrouped | EndReason::Funds, ready)
                if matches!(reason_of_notice, None | Some(NoticeReason::Funds)) =>
            {
                let ran = ready.map_or(Micros(0), |ready| self.now.since(ready));
                let reserved = self.funds_of(tenant).map(|funds| funds.node(id));
                missing = self.min_charge(unit.market, reserved).since(ran);
                bill += price.over(missing);
            }
            // A node that is lost within the minimum runtime is free of charge.
            (EndReason::UnitLost, Some(_)) if self.is_protected(allocation) => bill = Bill::default(),
            _ => {}
        }
        let closed = SettlementDetail::Node(ClosedNode {
            allocation: id,
            start_by: allocation.start_by,
            ready_at: allocation.ready,
            protected_until: allocation.protected_until,
            notice: allocation.notice.map(|notice| (notice.reason, notice.deadline)),
            price,
            used,
            missing,
        });
        self.pending_details.push(closed);
        if let Some(running) = running {
            self.market_mut(unit.market).meter.leave(running.terms);
        }
        self.charge(id, unit, tenant, bill, reason.into())
    }

    /// Charges a claim that ends: `min_charge` at the price that its bid would have paid there, as last settled.
    pub(crate) fn charge_for_claim(&mut self, node: AllocationId, by: Bidder) {
        let unit = self.allocation(node).unit;
        let (price, span) = self.claim_charge(node, by);
        if let Some(charge) = self.charge(node, unit, by.tenant, price.over(span), ChargeReason::ClaimDropped)
        {
            self.pending_details.push(SettlementDetail::Claim { allocation: node, price, span });
            self.emit(charge);
        }
    }

    /// Returns what a claim costs that is given up: a price, and the time at that price.
    pub(crate) fn claim_charge(&self, node: AllocationId, by: Bidder) -> (Price, Micros) {
        let unit = self.allocation(node).unit;
        let span = self.min_charge(unit.market, self.funds_of(by.tenant).map(|funds| funds.claim(node)));
        (self.price_of_claim(unit, by), span)
    }

    /// Returns the price that a bid would have paid for a unit, as last settled.
    pub(crate) fn price_of_claim(&self, unit: UnitId, by: Bidder) -> Price {
        let ceiling = self.last_settled.ceiling(by.bid, self.bid(by.bid).terms.ceiling);
        let reserve = self.last_settled.reserve(unit.market, unit.provider, self.offer(unit).reserve);
        let price = self.market(unit.market).meter.tariff().price_for(by.tenant).max(reserve);
        ceiling.min(price)
    }

    /// Charges a tenant. The debit is credit plus fee. A debit of 0 is not charged.
    fn charge(
        &mut self,
        id: AllocationId,
        unit: UnitId,
        tenant: AccountId,
        bill: Bill,
        reason: ChargeReason,
    ) -> Option<Fact> {
        let debit = bill.round();
        if debit.0 == 0 {
            return None;
        }
        let fee = debit.fee(self.market(unit.market).rules.fee_bps);
        self.totals.charge(debit, fee);
        if !self.funded.is_empty() {
            self.pay(tenant, debit);
        }
        Some(Fact::Charged { node: self.node(id), tenant, debit, fee, reason })
    }

    /// Starts the delay after which a live node pays the higher reserve of its offer: a notice and
    /// the rest of its protection. Each call starts the delay anew (R11).
    pub(crate) fn delay_raise(&mut self, id: AllocationId) {
        let allocation = self.allocation(id);
        let raised = self.offer(allocation.unit).reserve > allocation.reserve;
        let notice = self.market(allocation.unit.market).rules.notice;
        let at = self.now.after(notice).max(allocation.protected_until);
        self.allocation_mut(id).raise_at = raised.then_some(at);
        if raised {
            self.timers.set(at, Due::ReserveCounts(id));
        }
    }

    /// Ends that delay: the offer's reserve counts from now on.
    pub(crate) fn reserve_counts(&mut self, id: AllocationId) {
        self.note_billed(id);
        let reserve = self.offer(self.allocation(id).unit).reserve;
        let allocation = self.allocation_mut(id);
        allocation.raise_at = None;
        allocation.reserve = reserve;
        self.remeter(id);
        self.reindex_allocation(id);
    }
}

impl DropCause {
    /// Returns true if a claim that ends for this cause costs `min_charge` (R15). Only a rescue by a free unit of the same
    /// provider is free of charge, although its cause is [`DropCause::Rescued`].
    pub(crate) fn is_charged(self) -> bool {
        match self {
            DropCause::Rescued
            | DropCause::Lowered
            | DropCause::Shrunk
            | DropCause::Cancelled
            | DropCause::Expired
            | DropCause::Regrouped
            | DropCause::OwnSupply => true,
            DropCause::HolderBack
            | DropCause::HolderRaised
            | DropCause::ReserveRaised
            | DropCause::CapacityWithdrawn
            | DropCause::UnitLost
            | DropCause::StartTimeout => false,
        }
    }
}
