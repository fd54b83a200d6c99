//! The auditor's bills, exact to the micro-dollar, by an integral of the price that follows from the events (R8, R11,
//! R15).

use super::meter::{Meter, Terms};
use super::nodes::Held;
use super::{Auditor, Violation};
use kubebid_core::event::{Bidder, ChargeReason, DropCause, EndReason, Node, NoticeReason};
use kubebid_core::money::Bill;
use kubebid_core::units::{AccountId, AllocationId, BidId, MarketId, Micros};
use kubebid_core::{Amount, Price};

/// The meter of a node that is ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    since: Micros,
    terms: Terms,
    /// The cost up to the reading `mark` of the meter.
    cost: i128,
    mark: i128,
}

impl Running {
    fn begin(meter: &mut Meter, now: Micros, terms: Terms) -> Running {
        meter.enter(now, terms);
        Running { since: now, terms, cost: 0, mark: meter.reading(now, terms) }
    }

    fn cost(&self, meter: &Meter, now: Micros) -> i128 {
        self.cost + meter.reading(now, self.terms) - self.mark
    }

    fn change(&mut self, meter: &mut Meter, now: Micros, terms: Terms) {
        let cost = self.cost(meter, now);
        meter.enter(now, terms);
        meter.leave(self.terms);
        *self = Running { since: self.since, terms, cost, mark: meter.reading(now, terms) };
    }
}

/// A node has ended: its charge comes next, unless nothing is owed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    node: Node,
    reason: ChargeReason,
    amount: Amount,
}

/// The charges for claims that a command gave up, and the amounts owed for them: either may come first.
#[derive(Debug, Default)]
pub(super) struct ClaimCharges {
    charged: Vec<(AllocationId, AccountId, Amount)>,
    owed: Vec<(AllocationId, AccountId, Amount)>,
}

/// A claim that was given up for a node that comes next (R6).
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenUp {
    bid: BidId,
    /// The provider of the claimed unit.
    provider: AccountId,
    /// The amount that is owed for it, unless the node is of the same provider.
    owed: (AllocationId, AccountId, Amount),
}

impl ClaimCharges {
    fn owe(&mut self, owed: (AllocationId, AccountId, Amount)) {
        if owed.2 > Amount::ZERO {
            self.owed.push(owed);
        }
    }

    /// Takes the claim that a bid gave up for the node that it gets now. It is free of charge if that is a free unit of
    /// the same provider; `provider` is `None` for a node that comes back (R15).
    pub(super) fn given_up_for(
        &mut self,
        given_up: &mut Vec<GivenUp>,
        bid: BidId,
        provider: Option<AccountId>,
    ) {
        let Some(at) = given_up.iter().position(|given_up| given_up.bid == bid) else { return };
        let claim = given_up.remove(at);
        if provider != Some(claim.provider) {
            self.owe(claim.owed);
        }
    }
}

impl Auditor {
    pub(super) fn offer_put(
        &mut self,
        market: MarketId,
        provider: AccountId,
        reserve: Price,
    ) -> Result<(), Violation> {
        let (before, nodes) = self.offers.put(market, provider, reserve);
        for id in nodes {
            let market = &mut self.markets[market.0 as usize];
            let held = self.nodes.known_mut(id)?;
            let ceiling = self.bids.holder(&held.node)?.ceiling;
            match held.claimed() {
                // Under notice a lower reserve counts at once, a higher one not at all (R11).
                Some(claimed) => {
                    if claimed {
                        market.reserves.shift(before, reserve);
                    }
                    held.reserve = held.reserve.min(reserve);
                }
                // A reserve above the ceiling is a notice, which comes next.
                None if reserve > held.reserve => {
                    let at = self.now.after(market.rules.notice).max(held.protected_until);
                    self.nodes.raise(id, (reserve <= ceiling).then_some(at));
                }
                None => {
                    market.reserves.shift(held.reserve, reserve);
                    held.reserve = reserve;
                    self.nodes.raise(id, None);
                }
            }
            self.remeter(id)?;
        }
        Ok(())
    }

    /// Lets a raised reserve count after its delay (R11).
    pub(super) fn reserve_counts(&mut self, id: AllocationId) -> Result<(), Violation> {
        self.nodes.raise(id, None);
        let held = self.nodes.known_mut(id)?;
        let reserve = self.offers.reserve(held.node.unit);
        let market = &mut self.markets[held.node.unit.market.0 as usize];
        market.touched = true;
        market.reserves.shift(held.reserve, reserve);
        held.reserve = reserve;
        self.remeter(id)
    }

    /// Starts the meter of a node.
    pub(super) fn start_meter(&mut self, id: AllocationId) -> Result<(), Violation> {
        let held = self.nodes.known_mut(id)?;
        let terms = held.terms();
        let meter = &mut self.markets[held.node.unit.market.0 as usize].meter;
        held.running = Some(Running::begin(meter, self.now, terms));
        Ok(())
    }

    /// Updates the meter after a change of what a node is billed by: its reserve, a notice.
    pub(super) fn remeter(&mut self, id: AllocationId) -> Result<(), Violation> {
        self.nodes.changed(id);
        let held = self.nodes.known_mut(id)?;
        let terms = held.terms();
        let meter = &mut self.markets[held.node.unit.market.0 as usize].meter;
        if let Some(running) = held.running.as_mut().filter(|running| running.terms != terms) {
            running.change(meter, self.now, terms);
        }
        Ok(())
    }

    /// Computes the bill of a node that has ended.
    pub(super) fn owe(&mut self, held: &Held, reason: EndReason) -> Result<(), Violation> {
        let node = held.node;
        let market = &mut self.markets[node.unit.market.0 as usize];
        let (mut bill, mut ran) = (0, Micros(0));
        if let Some(running) = held.running {
            bill = running.cost(&market.meter, self.now);
            market.meter.leave(running.terms);
            ran = self.now.since(running.since);
        }
        let given_up = matches!(reason, EndReason::Released | EndReason::Regrouped);
        let for_funds = held.notice.is_some_and(|notice| notice.reason == NoticeReason::Funds);
        // Without a notice, or for want of funds, at least `min_charge` is due (R15, R19).
        if given_up && (held.claimed().is_none() || for_funds) || reason == EndReason::Funds {
            let price = held.settled.price(market.meter.tariff());
            bill += price.over(market.rules.min_charge.since(ran)).0 as i128;
        }
        if reason == EndReason::UnitLost && held.running.is_some() && self.now < held.protected_until {
            bill = 0;
        }
        let amount = Bill(u128::try_from(bill).map_err(|_| Violation::BillBelowZero)?).round();
        self.owed = Some(Owed { node, reason: reason.into(), amount });
        Ok(())
    }

    /// Computes the minimum charge of a claim that ended, at the price that its bid had there as last settled.
    pub(super) fn owe_for_claim(
        &mut self,
        node: &Node,
        by: Bidder,
        cause: DropCause,
    ) -> Result<(), Violation> {
        match cause {
            DropCause::Cancelled
            | DropCause::Lowered
            | DropCause::Shrunk
            | DropCause::Expired
            | DropCause::Regrouped
            | DropCause::Rescued
            | DropCause::OwnSupply => {}
            DropCause::HolderBack
            | DropCause::HolderRaised
            | DropCause::ReserveRaised
            | DropCause::CapacityWithdrawn
            | DropCause::UnitLost
            | DropCause::StartTimeout => return Ok(()),
        }
        let market = &self.markets[node.unit.market.0 as usize];
        let before = self.amended.filter(|(bid, _)| *bid == by.bid).map(|(_, ceiling)| ceiling);
        let ceiling = before.unwrap_or(self.bids.of(by)?.ceiling);
        let reserve = self.offers.settled_reserve(node.unit);
        let price = market.meter.tariff().price_for(by.tenant).max(reserve).min(ceiling);
        let owed = (node.allocation, by.tenant, price.over(market.rules.min_charge).round());
        if cause == DropCause::Rescued {
            let given_up = GivenUp { bid: by.bid, provider: node.unit.provider, owed };
            self.given_up.push(given_up);
        } else {
            self.claim_charges.owe(owed);
        }
        Ok(())
    }

    /// Checks that each claim that was given up has its charge, and each such charge its claim.
    pub(super) fn settle_claim_charges(&mut self) -> Result<(), Violation> {
        // Nothing came in the place of these.
        for claim in self.given_up.drain(..) {
            self.claim_charges.owe(claim.owed);
        }
        let ClaimCharges { mut charged, owed } = std::mem::take(&mut self.claim_charges);
        for claim in owed {
            // A tenant may owe for two of its bids that had claims on one node, at two ceilings and in any order.
            let Some(at) = charged.iter().position(|charge| *charge == claim) else {
                let (node, tenant, owed) = claim;
                let of_another_amount = charged.iter().any(|(n, by, _)| (*n, *by) == (node, tenant));
                return Err(if of_another_amount {
                    Violation::Bill { owed }
                } else {
                    Violation::NotCharged { node, owed }
                });
            };
            charged.swap_remove(at);
            self.sums.bills_exact += 1;
        }
        if charged.is_empty() { Ok(()) } else { Err(Violation::NotOwed) }
    }

    /// Checks that the charge follows the end, or that nothing was owed.
    pub(super) fn settle_owed(&mut self) -> Result<(), Violation> {
        match self.owed.take() {
            Some(Owed { node, amount, .. }) if amount > Amount::ZERO => {
                Err(Violation::NotCharged { node: node.allocation, owed: amount })
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
    ) -> Result<(), Violation> {
        let market = &self.markets[node.unit.market.0 as usize];
        if fee != debit.fee(market.rules.fee_bps) {
            return Err(Violation::Fee(debit.fee(market.rules.fee_bps)));
        }
        if reason == ChargeReason::ClaimDropped {
            self.settle_owed()?;
            self.claim_charges.charged.push((node.allocation, tenant, debit));
        } else {
            let owed =
                self.owed.take().filter(|owed| owed.amount > Amount::ZERO).ok_or(Violation::NotOwed)?;
            if owed.node != *node || owed.reason != reason || tenant != node.tenant {
                return Err(Violation::NotOwed);
            }
            if debit != owed.amount {
                return Err(Violation::Bill { owed: owed.amount });
            }
            self.sums.bills_exact += 1;
        }
        self.sums.debits.0 += debit.0;
        self.sums.fees.0 += fee.0;
        Ok(())
    }
}
