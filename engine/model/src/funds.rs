//! Funds: what an account has, what is reserved of it, renewals and budgets (R19).

use crate::apply::Checked;
use crate::reservations::{Budget, Funded, Renewal, Reservation, Span, exact};
use crate::state::{Allocation, Model};
use kubebid_core::command::{DEFAULT_RENEWAL, FUND_MAX, FundChange, RENEWAL_RANGE};
use kubebid_core::event::{Fact, NoticeReason};
use kubebid_core::money::Bill;
use kubebid_core::state_dump::{BudgetDump, FundsDump};
use kubebid_core::units::{AccountId, AllocationId, BidId, MarketId, Micros};
use kubebid_core::{Funds, Price, Reject};
use std::cmp::Reverse;

impl Model {
    fn renewal_in_force(&self) -> Micros {
        self.renewal_set.unwrap_or(DEFAULT_RENEWAL)
    }

    pub(crate) fn nodes_of_account(&self, account: AccountId) -> Vec<AllocationId> {
        let own = |a: &Allocation| self.bids[&a.bid].tenant == account;
        self.allocations.iter().filter(|(_, a)| own(a)).map(|(id, _)| *id).collect()
    }

    /// Returns the nodes under notice on which the bids of an account have claims.
    pub(crate) fn claims_of_account(&self, account: AccountId) -> Vec<AllocationId> {
        let own = |a: &Allocation| a.claim().is_some_and(|claim| self.bids[&claim.bid].tenant == account);
        self.allocations.iter().filter(|(_, a)| own(a)).map(|(id, _)| *id).collect()
    }

    pub(crate) fn has_anything(&self, account: AccountId) -> bool {
        !self.nodes_of_account(account).is_empty() || !self.claims_of_account(account).is_empty()
    }

    fn bid_has_anything(&self, bid: BidId) -> bool {
        !self.held(bid).is_empty() || !self.claims(bid).is_empty()
    }

    /// Returns `c` of a bid.
    pub(crate) fn reserved_ceiling(&self, bid: BidId) -> Price {
        let has = self.bid_has_anything(bid);
        let bid = &self.bids[&bid];
        if has { bid.highest_ceiling } else { bid.ceiling }
    }

    /// Returns `c` of a node.
    pub(crate) fn reserved_ceiling_of(&self, a: &Allocation) -> Price {
        self.reserved_ceiling(a.bid).max(a.highest_frozen)
    }

    fn tail(&self, market: MarketId) -> Micros {
        self.rules(market).notice.max(self.rules(market).min_charge)
    }

    /// Returns the span of a new reservation of an account; None if the account is unlimited.
    pub(crate) fn new_span(&self, account: AccountId, market: MarketId) -> Option<Span> {
        let funded = self.funded.get(&account)?;
        let renewal = funded.renewal.map_or(self.renewal_in_force(), |renewal| renewal.span);
        Some(Span { renewal, tail: self.tail(market) })
    }

    /// Returns what a node reserves: 0 for an unlimited account.
    pub(crate) fn reserved_by_node(&self, a: &Allocation) -> i128 {
        let of = |reservation: Reservation| {
            exact(reservation.base) + reservation.span.at(self.reserved_ceiling_of(a))
        };
        a.reservation.map_or(0, of)
    }

    /// Returns what the claim on a node reserves: 0 for an unlimited account.
    pub(crate) fn reserved_by_claim(&self, claimed: AllocationId) -> i128 {
        let claim = self.allocations[&claimed].claim().expect("claimed");
        claim.span.map_or(0, |span| span.at(self.reserved_ceiling(claim.bid)))
    }

    pub(crate) fn reserved(&self, account: AccountId) -> i128 {
        let nodes = self.nodes_of_account(account).into_iter();
        let nodes: i128 = nodes.map(|node| self.reserved_by_node(&self.allocations[&node])).sum();
        let claims = self.claims_of_account(account).into_iter();
        nodes + claims.map(|claimed| self.reserved_by_claim(claimed)).sum::<i128>()
    }

    /// Returns the funds less all reservations, exactly. None if the account is unlimited.
    pub(crate) fn available(&self, account: AccountId) -> Option<i128> {
        let funded = self.funded.get(&account)?;
        Some(funded.funds * i128::from(Micros::HOUR.0) - self.reserved(account))
    }

    /// Returns true if the account can reserve this much more. Nothing, or less, is always covered.
    pub(crate) fn covers(&self, account: AccountId, amount: i128) -> bool {
        amount <= 0 || self.available(account).is_none_or(|available| amount <= available)
    }

    /// Returns true if the account of a bid can pay for one node more in a market, or for the minimum of a gang.
    pub fn takes_part(&self, bid: BidId, market: MarketId) -> bool {
        let account = self.bids[&bid].tenant;
        let Some(span) = self.new_span(account, market) else { return true };
        let nodes = if self.is_waiting_gang(bid) { self.bids[&bid].minimum() } else { 1 };
        self.covers(account, span.at(self.reserved_ceiling(bid)) * i128::from(nodes))
    }

    /// Returns the markets in which a bid may get a node for its unmet demand.
    pub(crate) fn payable_markets(&self, bid: BidId) -> Vec<MarketId> {
        let mut markets = self.eligible_markets(bid);
        markets.retain(|market| self.takes_part(bid, *market));
        markets
    }

    /// Returns what a raise of a ceiling adds to the reservations.
    pub(crate) fn added_by_raise(&self, bid: BidId, ceiling: Price) -> i128 {
        let mut raised = self.clone();
        raised.raise_highest_ceiling(bid, ceiling);
        let account = self.bids[&bid].tenant;
        raised.reserved(account) - self.reserved(account)
    }

    pub(crate) fn raise_highest_ceiling(&mut self, bid: BidId, ceiling: Price) {
        let bid = self.bids.get_mut(&bid).expect("known");
        bid.highest_ceiling = bid.highest_ceiling.max(ceiling);
    }

    /// Notes that a bid gets a node or a claim that it does not get in place of a claim. If it had nothing, its earlier
    /// ceilings do not count.
    pub(crate) fn begin_to_reserve(&mut self, bid: BidId) {
        if !self.bid_has_anything(bid) {
            let bid = self.bids.get_mut(&bid).expect("known");
            bid.highest_ceiling = bid.ceiling;
        }
    }

    /// Begins the renewals of the accounts that came to have a node or a claim, and ends those of the accounts that have
    /// neither. Returns true if there was one.
    pub(crate) fn begin_and_end_renewals(&mut self) -> bool {
        let span = self.renewal_in_force();
        let first = Renewal { span, next: self.now.after(span) };
        let changed = |(account, funded): &(&AccountId, &Funded)| {
            self.has_anything(**account) != funded.renewal.is_some()
        };
        let Some(account) = self.funded.iter().find(changed).map(|(account, _)| *account) else {
            return false;
        };
        let funded = self.funded.get_mut(&account).expect("just found");
        funded.renewal = if funded.renewal.is_none() { Some(first) } else { None };
        true
    }

    /// Returns what a node lacks to come back: 0 if it is not unfunded.
    pub(crate) fn lacks_to_come_back(&self, node: AllocationId) -> i128 {
        let a = &self.allocations[&node];
        let unfunded = a.reservation.is_some_and(|reservation| reservation.unfunded);
        let account = self.bids[&a.bid].tenant;
        match self.new_span(account, a.unit.market) {
            Some(span) if unfunded => {
                exact(a.bill) + span.at(self.reserved_ceiling(a.bid)) - self.reserved_by_node(a)
            }
            Some(_) | None => 0,
        }
    }

    /// Returns what a rescue lacks: the new stake and the charge, less what the claim reserves.
    pub(crate) fn lacks_to_be_rescued(
        &self,
        claimed: AllocationId,
        by: BidId,
        market: MarketId,
        charge: i128,
    ) -> i128 {
        let account = self.bids[&by].tenant;
        let Some(span) = self.new_span(account, market) else { return 0 };
        span.at(self.reserved_ceiling(by)) + charge - self.reserved_by_claim(claimed)
    }

    /// Reserves what a node needs that comes back (R6).
    pub(crate) fn reserve_again(&mut self, node: AllocationId) {
        let a = &self.allocations[&node];
        if a.reservation.is_some_and(|reservation| reservation.unfunded) {
            let (base, span) = (a.bill, self.new_span(self.bids[&a.bid].tenant, a.unit.market));
            let a = self.allocations.get_mut(&node).expect("not ended");
            a.highest_frozen = Price::ZERO;
            a.reservation = span.map(|span| Reservation { base, span, unfunded: false });
        }
    }

    /// Returns the cost so far of the account's nodes, rounded down once.
    fn cost_so_far(&self, account: AccountId) -> i128 {
        let nodes = self.nodes_of_account(account).into_iter();
        let bills = nodes.map(|node| self.allocations[&node].bill);
        exact(Bill(bills.map(|bill| bill.0).sum())) / i128::from(Micros::HOUR.0)
    }

    pub(crate) fn check_fund(&self, has_key: bool, change: FundChange) -> Checked<()> {
        let fits = match change {
            FundChange::Add(amount) => (-FUND_MAX..=FUND_MAX).contains(&amount),
            FundChange::Set(amount) => (0..=FUND_MAX).contains(&amount),
            FundChange::Unlimited => true,
        };
        if !has_key {
            return Err(Reject::KeyRequired);
        }
        if fits { Ok(()) } else { Err(Reject::BadAmount) }
    }

    pub(crate) fn check_budget(&self, monthly: Option<i64>) -> Checked<()> {
        let fits = monthly.is_none_or(|monthly| (0..=FUND_MAX).contains(&monthly));
        if fits { Ok(()) } else { Err(Reject::BadAmount) }
    }

    pub(crate) fn check_renewal(&self, renewal: Micros) -> Checked<()> {
        if RENEWAL_RANGE.contains(&renewal) { Ok(()) } else { Err(Reject::BadRule) }
    }

    pub(crate) fn fund(&mut self, account: AccountId, change: FundChange) {
        match change {
            FundChange::Add(amount) => {
                let before = self.funded.get(&account).map(|funded| funded.funds);
                let before = before.unwrap_or_else(|| self.cost_so_far(account));
                self.set_funds(account, before + i128::from(amount));
            }
            FundChange::Set(amount) => {
                self.set_funds(account, i128::from(amount) + self.cost_so_far(account));
            }
            FundChange::Unlimited => self.make_unlimited(account),
        }
        self.emit(Fact::Funded { account, funds: self.funds_of(account) });
    }

    fn funds_of(&self, account: AccountId) -> Option<Funds> {
        self.funded.get(&account).map(|funded| Funds(funded.funds))
    }

    /// Sets the funds. An account that was unlimited begins to reserve.
    fn set_funds(&mut self, account: AccountId, funds: i128) {
        if let Some(funded) = self.funded.get_mut(&account) {
            funded.funds = funds;
            return;
        }
        self.funded.insert(account, Funded { funds, budget: None, renewal: None });
        for bid in self.bids.values_mut().filter(|bid| bid.tenant == account) {
            bid.highest_ceiling = bid.ceiling;
        }
        self.forget_earlier_frozen_prices(account);
        for node in self.nodes_of_account(account) {
            let span = self.new_span(account, self.allocations[&node].unit.market).expect("funded");
            let a = self.allocations.get_mut(&node).expect("listed");
            a.reservation = Some(Reservation { base: a.bill, span, unfunded: false });
        }
        for claimed in self.claims_of_account(account) {
            let span = self.new_span(account, self.allocations[&claimed].unit.market);
            self.claim_mut(claimed).span = span;
        }
    }

    fn forget_earlier_frozen_prices(&mut self, account: AccountId) {
        for node in self.nodes_of_account(account) {
            let a = self.allocations.get_mut(&node).expect("listed");
            a.highest_frozen = a.notice.as_ref().map_or(Price::ZERO, |notice| notice.frozen_price);
        }
    }

    fn make_unlimited(&mut self, account: AccountId) {
        self.funded.remove(&account);
        for node in self.nodes_of_account(account) {
            self.allocations.get_mut(&node).expect("listed").reservation = None;
        }
        for claimed in self.claims_of_account(account) {
            self.claim_mut(claimed).span = None;
        }
    }

    /// Sets or ends a budget. It begins with the next month, but an unlimited account is funded at once.
    pub(crate) fn set_budget(&mut self, account: AccountId, monthly: Option<i64>, roll_over: bool) {
        if let Some(monthly) = monthly
            && !self.funded.contains_key(&account)
        {
            self.set_funds(account, i128::from(monthly) + self.cost_so_far(account));
        }
        let next_month = next_month(self.now);
        let budget = monthly.map(|monthly| Budget { monthly, roll_over, next_month });
        if let Some(funded) = self.funded.get_mut(&account) {
            funded.budget = budget;
        }
        let (roll_over, funds) = (roll_over && monthly.is_some(), self.funds_of(account));
        self.emit(Fact::BudgetSet { account, monthly, roll_over, funds });
    }

    pub(crate) fn set_renewal(&mut self, renewal: Micros) {
        self.renewal_set = Some(renewal);
        self.emit(Fact::RenewalSet { renewal });
    }

    pub(crate) fn due_month(&self) -> Option<AccountId> {
        let due = |budget: &Budget| budget.next_month <= self.now;
        self.funded.iter().find(|(_, funded)| funded.budget.as_ref().is_some_and(due)).map(|(id, _)| *id)
    }

    /// Gives an account the budget of the month that begins.
    pub(crate) fn begin_month(&mut self, account: AccountId) {
        let (now, cost) = (self.now, self.cost_so_far(account));
        let funded = self.funded.get_mut(&account).expect("due");
        let budget = funded.budget.as_mut().expect("due");
        let monthly = i128::from(budget.monthly);
        funded.funds = monthly + if budget.roll_over { funded.funds } else { cost };
        budget.next_month = next_month(now);
        let funds = Funds(funded.funds);
        self.emit(Fact::BudgetRenewed { account, funds });
    }

    pub(crate) fn due_renewal(&self) -> Option<AccountId> {
        let due = |funded: &Funded| funded.renewal.is_some_and(|renewal| renewal.next <= self.now);
        self.funded.iter().find(|(_, funded)| due(funded)).map(|(id, _)| *id)
    }

    /// Returns the instants at which the accounts are due.
    pub(crate) fn due_of_accounts(&self) -> impl Iterator<Item = Micros> {
        let months = self.funded.values().filter_map(|funded| funded.budget).map(|budget| budget.next_month);
        let renewals = self.funded.values().filter_map(|funded| funded.renewal);
        months.chain(renewals.map(|renewal| renewal.next))
    }

    /// Renews the reservations of an account. Nodes that it cannot pay for get notice.
    pub(crate) fn renew(&mut self, account: AccountId) {
        let claimed = self.claims_of_account(account).into_iter();
        let spans = claimed.filter_map(|claimed| self.allocations[&claimed].claim()?.span);
        let span = spans.map(|span| span.renewal).fold(self.renewal_in_force(), Micros::min);
        let renewal = Renewal { span, next: self.now.after(span) };
        self.funded.get_mut(&account).expect("due").renewal = Some(renewal);
        for bid in self.bids.values_mut().filter(|bid| bid.tenant == account) {
            bid.highest_ceiling = bid.ceiling;
        }
        self.forget_earlier_frozen_prices(account);

        let mut nodes = self.nodes_of_account(account);
        nodes.retain(|node| !self.allocations[node].reservation.expect("funded").unfunded);
        for node in &nodes {
            let a = self.allocations.get_mut(node).expect("listed");
            let tail = a.reservation.expect("funded").span.tail;
            let span = Span { renewal: Micros(0), tail };
            a.reservation = Some(Reservation { base: a.bill, span, unfunded: true });
        }
        nodes.sort_by_key(|node| {
            let under_notice = self.allocations[node].notice.is_some();
            (under_notice, Reverse(self.holder_ceiling(*node)), *node)
        });
        nodes.retain(|node| !self.renew_node(*node));
        nodes.sort();
        for node in nodes {
            self.give_notice_for_want_of_funds(node);
        }
    }

    /// Reserves a full stake for a node, if that is covered. Returns true if it is.
    fn renew_node(&mut self, node: AllocationId) -> bool {
        let mut renewed = self.allocations[&node].clone();
        let account = self.bids[&renewed.bid].tenant;
        let span = self.new_span(account, renewed.unit.market).expect("funded");
        renewed.reservation = Some(Reservation { base: renewed.bill, span, unfunded: false });
        let lacks = self.reserved_by_node(&renewed) - self.reserved_by_node(&self.allocations[&node]);
        let covered = self.covers(account, lacks);
        if covered {
            self.allocations.insert(node, renewed);
        }
        covered
    }

    /// Ends a node no later than its reserved tail allows.
    fn give_notice_for_want_of_funds(&mut self, node: AllocationId) {
        let a = &self.allocations[&node];
        let tail = a.reservation.expect("funded").span.tail;
        let deadline = self.now.after(self.rules(a.unit.market).notice.min(tail));
        match &a.notice {
            None => self.start_notice(node, deadline, NoticeReason::Funds),
            Some(notice) if notice.deadline > deadline => self.move_notice(node, deadline),
            Some(_) => {}
        }
    }

    pub(crate) fn fund_pictures(&self) -> Vec<FundsDump> {
        let picture = |(account, funded): (&AccountId, &Funded)| FundsDump {
            account: *account,
            funds: Funds(funded.funds),
            reserved: Bill(u128::try_from(self.reserved(*account)).expect("reservations are not negative")),
            next_renewal: funded.renewal.map(|renewal| renewal.next),
            budget: funded.budget.map(|Budget { monthly, roll_over, next_month }| BudgetDump {
                monthly,
                roll_over,
                next_month,
            }),
        };
        self.funded.iter().map(picture).collect()
    }
}

/// Returns the first instant of the next month in UTC.
fn next_month(now: Micros) -> Micros {
    let (mut day, mut year, mut month) = (0, 1970, 0);
    let first_day_after = now.0 / Micros::DAY.0 + 1;
    while day < first_day_after {
        day += days_of(year, month);
        (year, month) = if month == 11 { (year + 1, 0) } else { (year, month + 1) };
    }
    Micros(day.saturating_mul(Micros::DAY.0))
}

/// Returns the number of days of a month, counted from 0.
fn days_of(year: u64, month: usize) -> u64 {
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let february = if leap { 29 } else { 28 };
    [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month]
}
