//! Renewals of reservations, and monthly budgets (R19).

use crate::event::{Fact, NoticeReason};
use crate::exchange::Exchange;
use crate::rules::funds::left_to_spend;
use crate::rules::funds::signed_bill;
use crate::state::account_funds::{Budget, Renewal, Reservation};
use crate::state::timers::Due;
use crate::types::calendar::next_month;
use crate::types::money::Price;
use crate::types::units::{AccountId, AllocationId, Micros};
use std::cmp::Reverse;

impl Exchange {
    /// Renews the reservations of an account. The nodes for which the rest is not there get notices, or earlier
    /// deadlines, in the order of their numbers.
    pub(crate) fn renew(&mut self, account: AccountId) {
        let funds = self.funds_of(account).expect("a funded account is renewed");
        let in_force = self.renewal_in_force();
        let span = funds.shortest_claim().map_or(in_force, |shortest| shortest.min(in_force));
        let (bids, nodes) = (funds.bids(), funds.nodes());
        let next = self.now.after(span);
        self.update_funds(account, |funds| {
            funds.renewal = Some(Renewal { span, next });
            funds.forget_lacks();
        });
        self.timers.set(next, Due::Renewal(account));
        for (bid, _) in bids {
            self.set_highest(bid);
            self.update_weight(bid);
        }
        let mut order = Vec::new();
        for (id, reservation) in nodes.into_iter().filter(|(_, reservation)| !reservation.is_unfunded) {
            let allocation = self.allocation(id);
            let base = self.accrued(allocation, self.now);
            let floor = allocation.notice.map_or(Price::ZERO, |notice| notice.frozen);
            let ceiling = self.bid(allocation.bid).terms.ceiling;
            order.push((allocation.notice.is_some(), Reverse(ceiling), id));
            let least = Reservation { base, renewal: Micros(0), floor, ..reservation };
            self.update_funds(account, |funds| funds.update_node(id, least));
        }
        order.sort_unstable();
        let mut unfunded = Vec::new();
        for (.., id) in order {
            if !self.renew_node(account, id, span) {
                unfunded.push(id);
            }
        }
        unfunded.sort_unstable();
        for id in unfunded {
            self.end_unfunded(account, id);
        }
    }

    /// Reserves for a node until the renewal after the next one. Returns false if that is not covered: the node is
    /// unfunded.
    fn renew_node(&mut self, account: AccountId, id: AllocationId, renewal: Micros) -> bool {
        let tail = self.market(self.allocation(id).unit.market).rules.tail();
        let is_renewed = self.update_funds(account, |funds| {
            let least = funds.node(id);
            let renewed = Reservation { renewal, tail, ..least };
            let lacks = signed_bill(funds.amount(renewed)) - signed_bill(funds.amount(least));
            let is_covered = funds.covers(lacks);
            let kept = Reservation { is_unfunded: true, ..least };
            funds.update_node(id, if is_covered { renewed } else { kept });
            is_covered
        });
        is_renewed.expect("a funded account")
    }

    /// Gives a node that has become unfunded a notice, or an earlier deadline, within the tail that is reserved.
    fn end_unfunded(&mut self, account: AccountId, id: AllocationId) {
        let notice = self.market(self.allocation(id).unit.market).rules.notice;
        let tail = self.funds_of(account).expect("a funded account").node(id).tail;
        let end = self.now.after(notice.min(tail));
        match self.allocation(id).notice {
            None => self.start_notice_until(id, NoticeReason::Funds, end),
            Some(notice) if notice.deadline > end => self.move_deadline(id, end),
            Some(_) => {}
        }
    }

    /// Starts the renewals of accounts that came to have a node or a claim, and ends those of accounts that have none.
    /// Returns true if a stake may have changed with that.
    pub(crate) fn start_and_end_renewals(&mut self) -> bool {
        let (now, in_force) = (self.now, self.renewal_in_force());
        let mut has_changed = false;
        while let Some(account) = self.unrenewed.pop() {
            let Some(funds) = self.accounts[account.0 as usize].funds.as_deref_mut() else { continue };
            match (funds.holds_any(), funds.renewal) {
                (true, None) => {
                    let next = now.after(in_force);
                    funds.renewal = Some(Renewal { span: in_force, next });
                    self.timers.set(next, Due::Renewal(account));
                }
                (false, Some(renewal)) => {
                    funds.renewal = None;
                    if renewal.span != in_force {
                        has_changed = true;
                        self.update_funds(account, |_| ());
                    }
                }
                (true, Some(_)) | (false, None) => {}
            }
        }
        has_changed
    }

    /// Gives an account the budget of a month that begins.
    pub(crate) fn begin_month(&mut self, account: AccountId) {
        let cost = self.cost_so_far(account);
        let next_month = next_month(self.now);
        let funds = self.update_funds(account, |funds| {
            let budget = funds.budget.as_mut().expect("a month is due for a budget");
            budget.next_month = next_month;
            let Budget { monthly, roll_over, .. } = *budget;
            if roll_over {
                funds.add_funds(monthly);
            } else {
                funds.set_funds(left_to_spend(monthly, cost));
            }
            funds.funds()
        });
        // The last month that the clock can count has no next one.
        if next_month > self.now {
            self.timers.set(next_month, Due::Month(account));
        }
        self.emit(Fact::BudgetRenewed { account, funds: funds.expect("a funded account") });
    }
}
