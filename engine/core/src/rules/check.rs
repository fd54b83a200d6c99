//! Checks in debug builds, after a command, that the books agree with the state. If a change of the state
//! forgets to call a function of [`super::index`], any test that does it fails here.

use crate::exchange::{Account, Exchange};
use crate::state::Bid;
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
    }

    fn assert_allocation(&self, id: AllocationId) {
        let place = self.allocation(id).place;
        assert_eq!(place, Some(self.place_of(id)), "the place of allocation {id} in its book");
    }

    fn assert_bid(&self, id: BidId, bid: &Bid) {
        assert!(!bid.has_ended(), "bid {id} has ended and is kept as active");
        assert_eq!(bid.queued, bid.queue(), "the queue of bid {id}");
        if bid.queued.is_some() {
            assert_eq!(bid.queued_nodes, bid.unmet(), "the queued nodes of bid {id}");
            assert_eq!(bid.queued_losing, self.is_losing(bid), "bid {id} counts in H");
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
