//! Funds and reservations: what an account can pay for, and what its nodes and claims set aside (R19).

use crate::event::Bidder;
use crate::exchange::Exchange;
use crate::rules::candidates::{Candidate, CandidateKind};
use crate::state::BidTerms;
use crate::state::account_funds::{AccountFunds, Reservation};
use crate::types::market_rules::MarketRules;
use crate::types::money::{Amount, Bill, Funds, Price};
use crate::types::units::{AccountId, AllocationId, BidId, MarketId, Micros};

impl MarketRules {
    /// Returns the `tail` of R19: the time that is reserved for a notice or for `min_charge`.
    pub(crate) fn tail(&self) -> Micros {
        self.notice.max(self.min_charge)
    }
}

impl Exchange {
    /// Returns the funds of an account; None if it is unlimited.
    pub(crate) fn funds_of(&self, account: AccountId) -> Option<&AccountFunds> {
        self.accounts[account.0 as usize].funds.as_deref()
    }

    /// Changes the funds of an account, if it has any. The books follow before the next step that reads them.
    pub(crate) fn update_funds<T>(
        &mut self,
        account: AccountId,
        change: impl FnOnce(&mut AccountFunds) -> T,
    ) -> Option<T> {
        let funds = self.accounts[account.0 as usize].funds.as_deref_mut()?;
        let changed = change(funds);
        funds.note_covered();
        if !std::mem::replace(&mut funds.is_stale, true) {
            self.stale_funds.push(account);
        }
        if funds.holds_any() != funds.renewal.is_some() {
            self.unrenewed.push(account);
        }
        Some(changed)
    }

    /// Returns the time between renewals that accounts get which have none yet.
    pub(crate) fn renewal_in_force(&self) -> Micros {
        self.renewal.unwrap_or(crate::command::DEFAULT_RENEWAL)
    }

    /// Returns the time between renewals of an account.
    pub(crate) fn renewal_of(&self, funds: &AccountFunds) -> Micros {
        funds.renewal.map_or(self.renewal_in_force(), |renewal| renewal.span)
    }

    /// Returns the time for which a stake of an account in a market is reserved.
    pub(crate) fn stake_span(&self, funds: &AccountFunds, market: MarketId) -> Micros {
        self.renewal_of(funds).after(self.market(market).rules.tail())
    }

    /// Returns `c` of a bid.
    pub(crate) fn highest_ceiling(&self, funds: &AccountFunds, bid: BidId) -> Price {
        funds.highest(bid).unwrap_or(self.bid(bid).terms.ceiling)
    }

    /// Returns `c` times the nodes that a bid needs at once, if it waits or waited with this many.
    pub(crate) fn weight(&self, funds: &AccountFunds, bid: BidId, nodes: u32) -> u128 {
        u128::from(self.highest_ceiling(funds, bid).0) * u128::from(nodes)
    }

    /// Returns true if the account of a bid can pay for what it needs at once in a market.
    #[inline(never)]
    pub(crate) fn takes_part(&self, id: BidId, market: MarketId) -> bool {
        let bid = self.bid(id);
        !bid.is_funded
            || self.funds_of(bid.terms.tenant).is_none_or(|funds| {
                let weight = self.weight(funds, id, bid.gang().unwrap_or(1));
                weight <= funds.limit(self.stake_span(funds, market))
            })
    }

    /// Returns the exact cost so far of all nodes of an account's bids, rounded down once.
    pub(crate) fn cost_so_far(&self, account: AccountId) -> Amount {
        let cost = |id| self.accrued(self.allocation(id), self.now);
        let mut sum = Bill::default();
        match self.funds_of(account) {
            Some(funds) => funds.nodes().into_iter().for_each(|(id, _)| sum += cost(id)),
            None => {
                let bids = self.accounts[account.0 as usize].bids.iter().filter_map(|id| self.bids.get(*id));
                let nodes = bids.flat_map(|bid| bid.live.iter().chain(bid.notices.iter()));
                nodes.for_each(|id| sum += cost(id));
            }
        }
        sum.round()
    }

    /// Gives an unlimited account its first funds: its nodes and claims get reservations, and its bids take part where
    /// it can pay.
    pub(crate) fn become_funded(&mut self, account: AccountId, funds: Funds) {
        let bids = self.active_bids_of(account);
        self.accounts[account.0 as usize].funds = Some(Box::new(AccountFunds::new(funds)));
        self.funded.insert(account);
        for id in bids {
            self.bid_mut(id).is_funded = true;
            let bid = self.bid(id);
            let (ceiling, queued) = (bid.terms.ceiling, bid.queued);
            let (nodes, claims) = (bid.live.clone(), bid.claims.clone());
            for node in nodes.iter().chain(bid.notices.clone().iter()) {
                let allocation = self.allocation(node);
                let mut reservation = self.new_reservation(account, id, allocation.unit.market);
                reservation.base = self.accrued(allocation, self.now);
                reservation.floor = allocation.notice.map_or(Price::ZERO, |notice| notice.frozen);
                self.update_funds(account, |funds| funds.reserve_node(node, ceiling, reservation));
            }
            for node in claims.iter() {
                self.reserve_claim(node, id);
            }
            if queued.is_some() {
                self.requeue(id, queued);
            }
        }
        self.update_funds(account, |_| ());
    }

    /// Makes an account unlimited: all of its bids take part, and its unfunded nodes may come back.
    pub(crate) fn become_unlimited(&mut self, account: AccountId) {
        let Some(funds) = self.accounts[account.0 as usize].funds.take() else { return };
        self.funded.remove(account);
        for id in self.active_bids_of(account) {
            self.bid_mut(id).is_funded = false;
            let queued = self.bid(id).queued;
            if queued.is_some() {
                self.requeue(id, queued);
            }
        }
        for node in funds.unfunded() {
            self.reindex_allocation(node);
        }
    }

    /// Returns the active bids of an account, and removes the others from its list.
    fn active_bids_of(&mut self, account: AccountId) -> Vec<BidId> {
        let Exchange { accounts, bids, .. } = self;
        let listed = &mut accounts[account.0 as usize].bids;
        listed.retain(|id| bids.get(*id).is_some());
        listed.clone()
    }

    /// Subtracts a charge from the funds of the account that pays it.
    pub(crate) fn pay(&mut self, account: AccountId, debit: Amount) {
        self.update_funds(account, |funds| funds.pay(debit));
    }

    /// Returns the reservation of a claim, or of a node that begins from a free unit.
    fn new_reservation(&self, account: AccountId, bid: BidId, market: MarketId) -> Reservation {
        let funds = self.funds_of(account).expect("a funded account");
        Reservation {
            bid,
            base: Bill::default(),
            renewal: self.renewal_of(funds),
            tail: self.market(market).rules.tail(),
            floor: Price::ZERO,
            is_unfunded: false,
        }
    }

    /// Reserves for a node that begins: anew, or what its claim on the node `claimed` had.
    pub(crate) fn reserve_node(&mut self, id: AllocationId, claimed: Option<AllocationId>) {
        let allocation = self.allocation(id);
        let (account, bid, unit) = (allocation.tenant, allocation.bid, allocation.unit);
        if self.funds_of(account).is_none() {
            return;
        }
        match claimed {
            Some(claimed) => self.update_funds(account, |funds| funds.hand_over(claimed, id)),
            None => {
                let reservation = self.new_reservation(account, bid, unit.market);
                let ceiling = self.bid(bid).terms.ceiling;
                self.update_funds(account, |funds| funds.reserve_node(id, ceiling, reservation))
            }
        };
        // A node that gets a notice at the instant at which it begins has no price as last settled.
        let price = self.price_of_claim(unit, Bidder { bid, tenant: account });
        self.last_settled.note_billed(id, price);
    }

    pub(crate) fn release_node(&mut self, id: AllocationId, account: AccountId) {
        self.update_funds(account, |funds| funds.release_node(id));
    }

    pub(crate) fn reserve_claim(&mut self, node: AllocationId, by: BidId) {
        let terms = self.bid(by).terms;
        if self.funds_of(terms.tenant).is_none() {
            return;
        }
        let reservation = self.new_reservation(terms.tenant, by, self.allocation(node).unit.market);
        self.update_funds(terms.tenant, |funds| funds.reserve_claim(node, terms.ceiling, reservation));
    }

    pub(crate) fn release_claim(&mut self, node: AllocationId, by: Bidder) {
        self.update_funds(by.tenant, |funds| funds.release_claim(node));
    }

    /// Reserves at least the frozen price of a node whose notice begins.
    pub(crate) fn reserve_frozen_price(&mut self, id: AllocationId) {
        let Some(notice) = self.allocation(id).notice else { return };
        self.update_funds(self.allocation(id).tenant, |funds| {
            let reservation = funds.node(id);
            let floor = reservation.floor.max(notice.frozen);
            funds.update_node(id, Reservation { floor, ..reservation });
        });
    }

    /// Returns the most that a node or a claim of an account is billed as `min_charge`, in a market with these rules.
    /// With funds it is at most the tail that was reserved.
    pub(crate) fn min_charge(&self, market: MarketId, reserved: Option<Reservation>) -> Micros {
        let min_charge = self.market(market).rules.min_charge;
        reserved.map_or(min_charge, |reservation| min_charge.min(reservation.tail))
    }

    /// Returns true if the account of a bid can pay for its nodes and claims at a higher ceiling.
    pub(crate) fn covers_raise(&self, id: BidId, ceiling: Price) -> bool {
        let bid = self.bid(id);
        let Some(funds) = self.funds_of(bid.terms.tenant) else { return true };
        let Some(before) = funds.highest(id) else { return true };
        let nodes = bid.live.iter().chain(bid.notices.iter()).map(|node| funds.node(node));
        let claims = bid.claims.iter().map(|node| funds.claim(node));
        let raised = nodes.chain(claims).map(|r| r.at(ceiling.max(before)) - r.at(before));
        funds.covers(signed_bill(raised.fold(Bill::default(), |sum, more| sum + more)))
    }

    /// Raises the reservations of a bid whose ceiling was raised.
    pub(crate) fn raise_reservations(&mut self, id: BidId) {
        let BidTerms { tenant, ceiling, .. } = self.bid(id).terms;
        let before = self.funds_of(tenant).and_then(|funds| funds.highest(id));
        if before.is_some_and(|before| before < ceiling) {
            self.set_highest(id);
        }
    }

    /// Sets `c` of a bid that has nodes or claims to its ceiling.
    pub(super) fn set_highest(&mut self, id: BidId) {
        let BidTerms { tenant, ceiling, .. } = self.bid(id).terms;
        let bid = self.bid(id);
        let (live, notices, claims) = (bid.live.clone(), bid.notices.clone(), bid.claims.clone());
        self.update_funds(tenant, |funds| {
            funds.set_highest(id, ceiling, live.iter().chain(notices.iter()), claims.iter());
        });
    }

    /// Returns true if the account can pay for an unfunded node that would come back, or if the node is not unfunded.
    pub(crate) fn covers_return(&self, id: AllocationId) -> bool {
        let allocation = self.allocation(id);
        let Some(funds) = self.funds_of(allocation.tenant).filter(|funds| funds.node(id).is_unfunded) else {
            return true;
        };
        let bid = self.bid(allocation.bid);
        let mut lacks = self.lacks(funds, id);
        if bid.room() == 0 && !allocation.notice.is_some_and(|notice| notice.returns) {
            let Some(victim) = self.dearest_victim(allocation.bid, None) else { return false };
            lacks += signed_bill(self.most_charged(funds, victim)) - signed_bill(funds.claim_amount(victim));
        }
        funds.covers(lacks)
    }

    /// Returns the most that giving up a claim can cost: `min_charge` at `c`. What it does cost follows the price, which
    /// is another one once settled.
    fn most_charged(&self, funds: &AccountFunds, claimed: AllocationId) -> Bill {
        let reservation = funds.claim(claimed);
        let span = self.min_charge(self.allocation(claimed).unit.market, Some(reservation));
        self.highest_ceiling(funds, reservation.bid).over(span)
    }

    /// Returns what an unfunded node lacks to come back.
    fn lacks(&self, funds: &AccountFunds, id: AllocationId) -> i128 {
        let returned = self.returned(funds, id);
        signed_bill(funds.amount(returned)) - signed_bill(funds.amount(funds.node(id)))
    }

    /// Returns the reservation that an unfunded node would have if it came back.
    fn returned(&self, funds: &AccountFunds, id: AllocationId) -> Reservation {
        let allocation = self.allocation(id);
        Reservation {
            bid: allocation.bid,
            base: self.accrued(allocation, self.now),
            renewal: self.renewal_of(funds),
            tail: self.market(allocation.unit.market).rules.tail(),
            floor: Price::ZERO,
            is_unfunded: false,
        }
    }

    /// Reserves for an unfunded node that comes back.
    pub(crate) fn fund_again(&mut self, id: AllocationId) {
        let account = self.allocation(id).tenant;
        let Some(funds) = self.funds_of(account).filter(|funds| funds.node(id).is_unfunded) else { return };
        let reservation = self.returned(funds, id);
        assert!(funds.covers(self.lacks(funds, id)), "an unfunded node comes back only if it is paid for");
        self.update_funds(account, |funds| funds.update_node(id, reservation));
    }

    /// Returns true if the money of an account decides if this node comes back: it is unfunded.
    pub(crate) fn is_unfunded(&self, id: AllocationId) -> bool {
        let funds = self.funds_of(self.allocation(id).tenant);
        funds.is_some_and(|funds| funds.node(id).is_unfunded)
    }

    /// Returns the first free unit of a market for which a bid could give up its claim on `victim` (R6): the new
    /// stake and the most that giving it up can cost, less its reservation, must be covered.
    pub(crate) fn free_unit_instead(
        &self,
        id: BidId,
        market: MarketId,
        victim: AllocationId,
    ) -> Option<Candidate> {
        let first = self.free_unit(market)?;
        let tenant = self.bid(id).terms.tenant;
        let Some(funds) = self.funds_of(tenant) else { return Some(first) };
        let CandidateKind::Free(_, provider) = first.kind else { return Some(first) };
        let stake = self.highest_ceiling(funds, id).over(self.stake_span(funds, market));
        let lacks = signed_bill(stake) - signed_bill(funds.claim_amount(victim));
        let covers = |charge: Bill| funds.covers(lacks + signed_bill(charge));
        // A unit of the same provider costs nothing (R15).
        let same = self.allocation(victim).unit.provider;
        if provider == same && covers(Bill::default()) || covers(self.most_charged(funds, victim)) {
            return Some(first);
        }
        let offer = self.market(market).offers.get(&same).filter(|offer| !offer.free.is_empty())?;
        let candidate = Candidate { kind: CandidateKind::Free(market, same), needed: offer.reserve };
        covers(Bill::default()).then_some(candidate)
    }

    /// Notes a bid of a funded account whose claim money may keep from being given up.
    pub(crate) fn note_short(&mut self, id: BidId) {
        let tenant = self.bid(id).terms.tenant;
        if let Some(funds) = self.accounts[tenant.0 as usize].funds.as_deref_mut() {
            funds.short.insert(id);
            self.short_accounts.insert(tenant);
        }
    }

    /// Looks at the noted bids again, because another claim may be the one that they give up.
    pub(crate) fn retry_short(&mut self) {
        for account in std::mem::take(&mut self.short_accounts) {
            let Some(funds) = self.accounts[account.0 as usize].funds.as_deref_mut() else { continue };
            let mut short = std::mem::take(&mut funds.short);
            short.retain(|id| self.bids.get(*id).is_some());
            for id in short {
                for at in 0..self.markets_of(id).len() {
                    self.dirty.insert(self.markets_of(id)[at]);
                }
                self.reindex_bid(id);
            }
        }
    }

    /// Makes the books follow what accounts can pay for.
    pub(crate) fn refresh_funds(&mut self) {
        while let Some(account) = self.stale_funds.pop() {
            let Some(funds) = self.accounts[account.0 as usize].funds.as_deref_mut() else { continue };
            funds.is_stale = false;
            for market in funds.waiting_markets() {
                self.refresh_limit(account, market);
            }
            self.refresh_unfunded(account);
        }
    }

    fn refresh_limit(&mut self, account: AccountId, market: MarketId) {
        let funds = self.funds_of(account).expect("a funded account");
        let limit = funds.limit(self.stake_span(funds, market));
        let funds = self.accounts[account.0 as usize].funds.as_deref_mut().expect("just seen");
        for bid in funds.set_limit(market, limit) {
            self.reindex_taking_part(bid, market);
        }
    }

    /// Decides anew which unfunded nodes of an account are wanted back.
    fn refresh_unfunded(&mut self, account: AccountId) {
        let funds = self.funds_of(account).expect("a funded account");
        let nodes = if funds.lacks_are_unknown(self.now) {
            let nodes = funds.unfunded();
            let lacks: Vec<_> = nodes.iter().map(|id| (self.lacks(funds, *id), *id)).collect();
            let now = self.now;
            let funds = self.accounts[account.0 as usize].funds.as_deref_mut().expect("just seen");
            funds.set_lacks(now, lacks.into_iter());
            nodes
        } else {
            let funds = self.accounts[account.0 as usize].funds.as_deref_mut().expect("just seen");
            funds.changed_unfunded()
        };
        for id in nodes {
            if self.allocations.get(id).is_some() {
                self.reindex_allocation(id);
            }
        }
        let funds = self.accounts[account.0 as usize].funds.as_deref_mut().expect("just seen");
        let short: Vec<BidId> = funds.short.iter().copied().collect();
        for id in short {
            if self.bids.get(id).is_some() {
                self.reindex_notices(id);
            }
        }
    }
}

/// Returns the funds with which this much is left to spend.
pub(crate) fn left_to_spend(amount: i64, cost_so_far: Amount) -> Funds {
    Funds(i128::from(amount) + signed(cost_so_far))
}

fn signed(amount: Amount) -> i128 {
    i128::try_from(amount.0).unwrap_or(i128::MAX)
}

pub(crate) fn signed_bill(bill: Bill) -> i128 {
    i128::try_from(bill.0).unwrap_or(i128::MAX)
}
