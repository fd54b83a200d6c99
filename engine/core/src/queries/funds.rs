//! The funds of one account, as the account and administrators see them (R19).

use crate::exchange::Exchange;
use crate::state::account_funds::AccountFunds;
use crate::types::money::{Amount, Bill, Funds, Price};
use crate::types::state_dump::{BudgetDump, FundsDump};
use crate::types::units::{AccountId, AccountName, MarketId, Micros};

/// The funds of a funded account. Reservations are exact in price × time; here they are rounded up, so that what is
/// available is rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FundsView {
    /// The number of the account.
    pub account: AccountId,
    /// The amount that it was given less what it was charged, in micro-dollars; negative after a cut.
    pub funds: Funds,
    /// The sum of all reservations, in micro-dollars, rounded up.
    pub reserved: Amount,
    /// The funds less the reservations, in micro-dollars, rounded down; negative after a cut.
    pub available: Funds,
    /// The cost of its nodes until now that was not charged yet, in micro-dollars, rounded down.
    pub cost_so_far: Amount,
    /// The sum of the prices of its running nodes, in micro-dollars per hour.
    pub cost_per_hour: Amount,
    /// The time until a node gets a notice for want of funds, if no price and no node changes, in microseconds. None if
    /// nothing runs.
    pub runway: Option<Micros>,
    /// The number of its nodes that were not renewed, and end by their deadlines.
    pub unfunded: u64,
    /// The time between its renewals, in microseconds.
    pub renewal: Micros,
    /// The next renewal, in microseconds since 1970; None if it has neither a node nor a claim.
    pub next_renewal: Option<Micros>,
    /// Its monthly budget.
    pub budget: Option<BudgetDump>,
}

impl Exchange {
    /// Returns the funds of an account; None if it is unlimited, or if no command has named it.
    pub fn account_funds(&self, account: &AccountName) -> Option<FundsView> {
        let account = self.account_id(account)?;
        let funds = self.funds_of(account)?;
        let dump = dump_funds(account, funds);
        let (mut cost, mut spans, mut per_hour) = (Bill::default(), Bill::default(), Amount::ZERO);
        for (id, reservation) in funds.nodes() {
            let allocation = self.allocation(id);
            cost += self.accrued(allocation, self.now);
            spans += funds.amount(reservation) - reservation.base;
            if allocation.running.is_some() {
                per_hour.0 += u128::from(self.billed(allocation).0);
            }
        }
        for (_, reservation) in funds.claims() {
            spans += funds.amount(reservation);
        }
        let unspent = exact_left(funds, cost + spans);
        let runway = unspent.checked_div(per_hour.0);
        Some(FundsView {
            account,
            funds: dump.funds,
            reserved: Amount(dump.reserved_amount().unsigned_abs()),
            available: Funds(dump.available()),
            cost_so_far: cost.round(),
            cost_per_hour: per_hour,
            runway: runway.map(|runway| Micros(u64::try_from(runway).unwrap_or(u64::MAX))),
            unfunded: funds.unfunded().len() as u64,
            renewal: self.renewal_of(funds),
            next_renewal: dump.next_renewal,
            budget: dump.budget,
        })
    }

    /// Returns how many new nodes an account can pay for in a market, with a bid that has none yet; None if it is
    /// unlimited.
    pub(crate) fn affordable_nodes(
        &self,
        account: &AccountName,
        market: MarketId,
        ceiling: Price,
    ) -> Option<u32> {
        let funds = self.funds_of(self.account_id(account)?)?;
        let limit = funds.limit(self.stake_span(funds, market));
        Some(u32::try_from(limit / u128::from(ceiling.0.max(1))).unwrap_or(u32::MAX))
    }

    pub(crate) fn dump_funded(&self) -> Vec<FundsDump> {
        let funded = self.funded.iter().filter_map(|account| Some((account, self.funds_of(account)?)));
        funded.map(|(account, funds)| dump_funds(account, funds)).collect()
    }
}

/// Returns the funds less a cost, in price × time; 0 if they are less.
fn exact_left(funds: &AccountFunds, cost: Bill) -> u128 {
    let all = crate::state::account_funds::exactly(funds.funds().0);
    u128::try_from(all).map_or(0, |all| all.saturating_sub(cost.0))
}

fn dump_funds(account: AccountId, funds: &AccountFunds) -> FundsDump {
    FundsDump {
        account,
        funds: funds.funds(),
        reserved: funds.reserved(),
        next_renewal: funds.renewal.map(|renewal| renewal.next),
        budget: funds.budget.map(|budget| BudgetDump {
            monthly: budget.monthly,
            roll_over: budget.roll_over,
            next_month: budget.next_month,
        }),
    }
}
