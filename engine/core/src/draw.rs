//! The whole state as a picture.

use crate::exchange::Exchange;
use crate::picture::{AllocationPicture, AllocationState, BidPicture, MarketPicture, Picture};
use crate::state::{Allocation, Bid};
use crate::units::{AllocationId, BidId, MarketId};

impl Exchange {
    pub(crate) fn draw(&self) -> Picture {
        let markets = self.markets.iter().enumerate().map(|(i, market)| MarketPicture {
            market: MarketId(i as u32),
            numbers: market.numbers.unwrap_or_default(),
            supply: market.supply(),
        });
        Picture {
            markets: markets.collect(),
            bids: self.bids.iter().map(|(id, bid)| draw_bid(id, bid)).collect(),
            allocations: self.allocations.iter().map(|(id, a)| self.draw_allocation(id, a)).collect(),
            totals: self.totals,
        }
    }

    pub(crate) fn draw_allocation(&self, id: AllocationId, allocation: &Allocation) -> AllocationPicture {
        AllocationPicture {
            allocation: id,
            bid: allocation.bid,
            unit: allocation.unit,
            state: match (allocation.notice, allocation.ready) {
                (Some(_), _) => AllocationState::Notice,
                (None, Some(_)) => AllocationState::Active,
                (None, None) => AllocationState::Starting,
            },
            deadline: allocation.notice.map(|notice| notice.deadline),
            claim: allocation.claim().map(|claim| claim.by.bid),
            billed: self.billed(allocation),
            protected_until: allocation.protected_until,
        }
    }
}

pub(crate) fn draw_bid(id: BidId, bid: &Bid) -> BidPicture {
    BidPicture {
        bid: id,
        held: bid.live.len(),
        claimed: bid.claims.len(),
        unmet: bid.unmet(),
        max_nodes: bid.max_nodes,
        ceiling: bid.ceiling,
        searching: bid.searching,
    }
}
