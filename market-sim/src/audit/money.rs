//! What is owed: each bill by an integral of the price that was announced (R8, R15).

use super::market::Market;
use super::nodes::Held;
use super::{Auditor, Lie};
use kubebid_core::event::{ChargeReason, EndReason, Node};
use kubebid_core::money::Bill;
use kubebid_core::units::{AccountId, MarketId, Micros};
use kubebid_core::{Amount, Price};

/// The meter of a node: what it costs is between its reserve and the price that all pay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) since: Micros,
    /// Reserves that count, or may by now.
    least: Price,
    most: Price,
    /// Up to `mark`, where the reserve last changed.
    least_bill: u128,
    most_bill: u128,
    mark: Micros,
    reading: u128,
    steady: bool,
}

impl Running {
    pub(super) fn begin(market: &mut Market, now: Micros, (least, most): (Price, Price)) -> Running {
        let reading = market.enter(now, most);
        let steady = least == most;
        Running { since: now, least, most, least_bill: 0, most_bill: 0, mark: now, reading, steady }
    }

    fn run(&mut self, market: &Market, now: Micros) {
        let reading = market.reading(now, self.most);
        self.most_bill += reading - self.reading;
        self.least_bill += self.least.over(now.since(self.mark)).0;
        (self.mark, self.reading) = (now, reading);
    }

    /// A lower reserve counts at once, a higher one at some time (R11).
    fn reserve(&mut self, market: &mut Market, now: Micros, reserve: Price) {
        self.run(market, now);
        market.leave(self.most);
        (self.least, self.most) = (self.least.min(reserve), reserve);
        self.reading = market.enter(now, reserve);
        self.steady = false;
    }
}

/// A node has ended: its charge comes next, unless nothing is owed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    node: Node,
    reason: ChargeReason,
    least: Amount,
    most: Amount,
}

impl Auditor {
    pub(super) fn offer_put(
        &mut self,
        market: MarketId,
        provider: AccountId,
        reserve: Price,
    ) -> Result<(), Lie> {
        for node in self.offers.put(market, provider, reserve) {
            let held = self.nodes.known_mut(node)?;
            held.reserve = held.reserve.min(reserve);
            if let Some(running) = &mut held.running {
                running.reserve(&mut self.markets[market.0 as usize], self.now, reserve);
            }
        }
        Ok(())
    }

    pub(super) fn owe(&mut self, held: &Held, reason: EndReason, ceiling: Option<Price>) {
        let node = held.node;
        let market = &mut self.markets[node.unit.market.0 as usize];
        let reserve = self.offers.reserve(node.unit);
        let rate = market.rate();
        let (mut least, mut most, mut ran, mut exact) = (0, 0, Micros(0), false);
        if let Some(mut running) = held.running {
            running.run(market, self.now);
            market.leave(running.most);
            (least, most) = (running.least_bill, running.most_bill);
            ran = self.now.since(running.since);
            let content = self.bids.content_since(node.tenant, running.since);
            exact = content && running.steady && !held.was_under_notice;
        }
        let mut floor = held.running.map_or(Price::ZERO, |running| running.least);
        if reason == EndReason::Released && held.notice.is_none() {
            let missing = market.rules.min_charge.since(ran);
            let top = rate.max(held.running.map_or(reserve, |running| running.most));
            most += top.over(missing).0;
            if held.running.is_none() {
                floor = Price::ZERO;
            }
            least += floor.over(missing).0;
        }
        if let Some(ceiling) = ceiling.filter(|_| held.notice.is_some()) {
            most = most.min(ceiling.over(ran).0.max(least));
        }
        if exact && reason != EndReason::UnitLost {
            least = most;
            self.sums.bills_exact += 1;
        } else {
            self.sums.bills_bounded += 1;
        }
        if reason == EndReason::UnitLost {
            least = 0;
        }
        let (least, most) = (Bill(least).round(), Bill(most).round());
        self.owed = Some(Owed { node, reason: reason.into(), least, most });
    }

    /// The charge follows the end, or nothing was owed.
    pub(super) fn settle_owed(&mut self) -> Result<(), Lie> {
        match self.owed.take() {
            Some(Owed { node, least, .. }) if least > Amount::ZERO => {
                Err(Lie::NotCharged { node: node.allocation, least })
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn charged(
        &mut self,
        node: &Node,
        tenant: AccountId,
        (debit, fee): (Amount, Amount),
        reason: ChargeReason,
    ) -> Result<(), Lie> {
        let market = &self.markets[node.unit.market.0 as usize];
        if fee != debit.fee(market.rules.fee_bps) {
            return Err(Lie::Fee(debit.fee(market.rules.fee_bps)));
        }
        let (least, most) = if reason == ChargeReason::ClaimDropped {
            self.settle_owed()?;
            let market = &self.markets[node.unit.market.0 as usize];
            let price = market.rate().max(self.offers.reserve(node.unit));
            (Amount(1), price.over(market.rules.min_charge).round())
        } else {
            let owed = self.owed.take().ok_or(Lie::NotOwed)?;
            if owed.node != *node || owed.reason != reason || tenant != node.tenant {
                return Err(Lie::NotOwed);
            }
            (owed.least.max(Amount(1)), owed.most)
        };
        if debit < least || debit > most {
            return Err(Lie::Bill { least, most });
        }
        self.sums.debits.0 += debit.0;
        self.sums.fees.0 += fee.0;
        Ok(())
    }
}
