//! Checks in debug builds, after a command, that the books agree with the state. If a change of the state
//! forgets to call a function of [`super::index`], any test that does it fails here.

use crate::event::Bidder;
use crate::exchange::{Account, Exchange};
use crate::state::Bid;
use crate::state::account_funds::AccountFunds;
use crate::types::money::Bill;
use crate::types::units::{AccountId, AllocationId, BidId, MarketId};

/// The number of first commands after each of which the check runs.
const FIRST: u64 = 256;
/// The number of later commands between two checks, because a check reads the whole state.
const INTERVAL: u64 = 64;

impl Exchange {
    /// Panics if a book does not agree with the state. Does nothing in release builds.
    pub(crate) fn assert_indexed(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        if self.seq.0 > FIRST && !self.seq.0.is_multiple_of(INTERVAL) {
            return;
        }
        self.allocations.iter().for_each(|(id, _)| self.assert_allocation(id));
        let bids = self.bids.iter().filter_map(|(id, record)| Some((id, record.active()?)));
        bids.for_each(|(id, bid)| self.assert_bid(id, bid));
        for (market, id) in self.markets.iter().zip((0..).map(MarketId)) {
            market.offers.keys().for_each(|provider| self.assert_offer(id, *provider));
        }
        self.names.accounts.iter().zip((0..).map(AccountId)).for_each(|(_, id)| self.assert_usage(id));
        self.funded.iter().for_each(|account| self.assert_funds(account));
    }

    /// Compares the sums of an account's funds with the reservations that its nodes and claims should have.
    fn assert_funds(&self, account: AccountId) {
        let funds = self.funds_of(account).expect("a funded account");
        assert!(!funds.is_stale, "the books follow account {account:?}");
        let of_account = |id: &BidId| self.bid(*id).terms.tenant == account;
        let nodes: Vec<_> =
            funds.nodes().into_iter().map(|(id, reservation)| (id, reservation.bid)).collect();
        let held = self.allocations.iter().map(|(id, allocation)| (id, allocation.bid));
        assert_eq!(
            nodes,
            held.filter(|(_, bid)| of_account(bid)).collect::<Vec<_>>(),
            "reservations of nodes"
        );
        let claims: Vec<_> =
            funds.claims().into_iter().map(|(id, reservation)| (id, reservation.bid)).collect();
        let claimed = self.allocations.iter().filter_map(|(id, a)| Some((id, a.claim()?.by.bid)));
        assert_eq!(claims, claimed.filter(|(_, bid)| of_account(bid)).collect::<Vec<_>>(), "those of claims");

        let mut sum = Bill::default();
        for (id, reservation) in funds.nodes() {
            let notice = self.allocation(id).notice;
            assert!(notice.is_none_or(|notice| reservation.floor >= notice.frozen), "{id} is paid for");
            assert!(notice.is_some() || !reservation.is_unfunded, "an unfunded node is under notice: {id}");
            sum += reservation.at(self.highest_ceiling(funds, reservation.bid));
        }
        for (_, reservation) in funds.claims() {
            sum += reservation.at(self.highest_ceiling(funds, reservation.bid));
        }
        assert_eq!(funds.reserved(), sum, "the reservations of account {account:?}");
        let mut holding: Vec<BidId> = nodes.iter().chain(&claims).map(|(_, bid)| *bid).collect();
        holding.sort_unstable();
        holding.dedup();
        let bids: Vec<BidId> = funds.bids().into_iter().map(|(bid, _)| bid).collect();
        assert_eq!(bids, holding, "the bids of account {account:?} that have a node or a claim");
        for (bid, highest) in funds.bids() {
            assert!(highest >= self.bid(bid).terms.ceiling, "the highest ceiling of bid {bid}");
        }
        assert_eq!(funds.renewal.is_some(), funds.holds_any(), "account {account:?} is renewed");
        self.assert_never_overspent(account, funds);
    }

    /// Checks that each reservation covers what its node or claim can cost until a next renewal fails (I24).
    fn assert_never_overspent(&self, account: AccountId, funds: &AccountFunds) {
        let Some(renewal) = funds.renewal else { return };
        for (id, reservation) in funds.nodes() {
            let allocation = self.allocation(id);
            let ceiling = self.bid(reservation.bid).terms.ceiling;
            let price = allocation.notice.map_or(ceiling, |notice| notice.frozen);
            let failed = renewal.next.after(reservation.tail);
            let end = allocation.notice.map_or(failed, |notice| match reservation.is_unfunded {
                true => notice.deadline,
                false => notice.deadline.min(failed),
            });
            let least = self.accrued(allocation, self.now) + price.over(end.since(self.now));
            assert!(
                least <= funds.amount(reservation),
                "node {id} of account {account:?} is covered until {end:?}"
            );
        }
        for (node, claim) in funds.claims() {
            let by = Bidder { bid: claim.bid, tenant: account };
            let (price, span) = self.claim_charge(node, by);
            assert!(price.over(span) <= funds.amount(claim), "the claim on {node} is covered");
        }
    }

    fn assert_allocation(&self, id: AllocationId) {
        let place = self.allocation(id).place;
        assert_eq!(place, Some(self.place_of(id)), "the place of allocation {id} in its book");
    }

    fn assert_bid(&self, id: BidId, bid: &Bid) {
        assert!(!bid.has_ended(), "bid {id} has ended and is kept as active");
        assert_eq!(bid.queued, bid.queue(), "the queue of bid {id}");
        assert_eq!(bid.is_funded, self.funds_of(bid.terms.tenant).is_some(), "bid {id} is funded");
        if bid.queued.is_some() {
            assert_eq!(bid.queued_nodes, bid.unmet(), "the queued nodes of bid {id}");
            assert_eq!(bid.queued_losing, bid.is_losing(&self.allocations), "bid {id} counts in H");
        }
        for (at, market) in self.markets_of(id).iter().enumerate() {
            let waits = bid.queued.filter(|_| self.market(*market).serves(id, bid.terms.tenant));
            let demand = &self.market(*market).book.demand;
            let has = bid.queued.is_some_and(|queued| demand.has(queued, bid.rank(), bid.handle_in(at)));
            let takes_part = waits.is_some() && self.takes_part(id, *market);
            assert_eq!(has, takes_part, "bid {id} takes part in {market:?}");
            if let Some(funds) = self.funds_of(bid.terms.tenant) {
                let weight = waits.map(|queued| self.weight(funds, id, queued.nodes_at_once()));
                assert_eq!(funds.weight(*market, id), weight, "the weight of bid {id} in {market:?}");
            }
        }
        if !bid.rescue_is_stale {
            let mut markets = self.markets_of(id).iter();
            let is_rescuable = markets.any(|market| self.accepts_instead(id, *market).is_some());
            assert_eq!(bid.is_rescuable, is_rescuable, "a free unit can rescue the claimant of bid {id}");
        }
    }

    fn assert_offer(&self, market: MarketId, provider: AccountId) {
        let (offer, book) = (&self.market(market).offers[&provider], &self.market(market).book);
        let free = book.free.get(offer.reserve, offer.place);
        assert_eq!(free, offer.free.len() as u64, "the free units of provider {provider:?} in {market:?}");
    }

    fn assert_usage(&self, account: AccountId) {
        let Account { bids, open, .. } = &self.accounts[account.0 as usize];
        let active = bids.iter().filter_map(|id| self.bids.get(*id));
        let (bids, nodes) = active.fold((0, 0), |(bids, nodes), bid| {
            (bids + u64::from(bid.is_counted), nodes + u64::from(bid.counted_nodes))
        });
        assert_eq!((open.bids, open.nodes), (bids, nodes), "the usage of account {account:?}");
    }
}
