//! The whole state as a picture.

use crate::bids::Kept;
use crate::exchange::Exchange;
use crate::picture::{AllocationPicture, AllocationState, BidPicture, MarketPicture, Picture};
use crate::state::{Allocation, BidTerms};
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
            bids: self.bids.iter().map(|(id, kept)| draw_bid(id, kept)).collect(),
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

fn draw_bid(id: BidId, kept: Kept<'_>) -> BidPicture {
    let BidTerms { max_nodes, ceiling, .. } = *kept.terms();
    let bid = kept.counting();
    BidPicture {
        bid: id,
        held: bid.map_or(0, |bid| bid.live.len()),
        claimed: bid.map_or(0, |bid| bid.claims.len()),
        unmet: kept.unmet(),
        max_nodes,
        ceiling,
        searching: kept.searching(),
    }
}
