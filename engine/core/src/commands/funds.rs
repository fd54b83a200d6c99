//! Commands about funds: give an account money, a budget, or no limit (R19).

use crate::command::{FUND_MAX, FundChange, RENEWAL_RANGE};
use crate::event::Fact;
use crate::exchange::Exchange;
use crate::rules::funds::left_to_spend;
use crate::state::account_funds::{AccountFunds, Budget};
use crate::state::timers::Due;
use crate::types::money::Funds;
use crate::types::reject::Reject;
use crate::types::units::{AccountId, Micros};

impl Exchange {
    /// Changes the funds of the caller, which is the account that the command names.
    pub(crate) fn fund(&mut self, change: FundChange, has_key: bool) -> Result<(), Reject> {
        if !has_key {
            return Err(Reject::KeyRequired);
        }
        match change {
            FundChange::Add(amount) if !(-FUND_MAX..=FUND_MAX).contains(&amount) => {
                return Err(Reject::BadAmount);
            }
            FundChange::Set(amount) if !(0..=FUND_MAX).contains(&amount) => return Err(Reject::BadAmount),
            FundChange::Add(_) | FundChange::Set(_) | FundChange::Unlimited => {}
        }

        let account = self.caller;
        let funds = match change {
            FundChange::Add(amount) => {
                // What an unlimited account owes so far is paid for.
                let before = self.funds_of(account).map(AccountFunds::funds);
                let before = before.unwrap_or_else(|| left_to_spend(0, self.cost_so_far(account)));
                Some(Funds(before.0 + i128::from(amount)))
            }
            FundChange::Set(amount) => Some(left_to_spend(amount, self.cost_so_far(account))),
            FundChange::Unlimited => None,
        };
        self.emit(Fact::Funded { account, funds });
        match funds {
            Some(funds) => self.set_funds(account, funds),
            None => self.become_unlimited(account),
        }
        Ok(())
    }

    fn set_funds(&mut self, account: AccountId, funds: Funds) {
        if self.update_funds(account, |account| account.set_funds(funds)).is_none() {
            self.become_funded(account, funds);
        }
    }

    /// Sets or ends the budget of the caller, which is the account that the command names.
    pub(crate) fn set_budget(&mut self, monthly: Option<i64>, roll_over: bool) -> Result<(), Reject> {
        if monthly.is_some_and(|monthly| !(0..=FUND_MAX).contains(&monthly)) {
            return Err(Reject::BadAmount);
        }

        let account = self.caller;
        let budget = monthly.map(|monthly| Budget::new(monthly, roll_over, self.now));
        let before = self.funds_of(account).map(AccountFunds::funds);
        let first = || monthly.map(|monthly| left_to_spend(monthly, self.cost_so_far(account)));
        let funds = before.or_else(first);
        let roll_over = budget.is_some_and(|budget| budget.roll_over);
        self.emit(Fact::BudgetSet { account, monthly, roll_over, funds });
        if let (None, Some(funds)) = (before, funds) {
            self.become_funded(account, funds);
        }
        self.update_funds(account, |funds| funds.budget = budget);
        if let Some(budget) = budget {
            self.timers.set(budget.next_month, Due::Month(account));
        }
        Ok(())
    }

    pub(crate) fn set_renewal(&mut self, renewal: Micros) -> Result<(), Reject> {
        if !RENEWAL_RANGE.contains(&renewal) {
            return Err(Reject::BadRule);
        }

        self.emit(Fact::RenewalSet { renewal });
        self.renewal = Some(renewal);
        self.reindex_all_funds();
        Ok(())
    }

    /// Reindexes all funded accounts, after a change of what a stake is.
    pub(crate) fn reindex_all_funds(&mut self) {
        for account in self.funded.iter().collect::<Vec<AccountId>>() {
            self.update_funds(account, AccountFunds::forget_lacks);
        }
    }
}
