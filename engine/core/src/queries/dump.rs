//! Writes the whole state as a [`StateDump`].

use crate::exchange::Exchange;
use crate::state::bids::BidRecord;
use crate::state::{Allocation, BidTerms};
use crate::types::state_dump::{AllocationDump, AllocationState, BidDump, MarketDump, StateDump};
use crate::types::units::{AllocationId, BidId, MarketId, Micros};

impl Exchange {
    pub(crate) fn dump_state(&self) -> StateDump {
        let markets = self.markets.iter().enumerate().map(|(i, market)| MarketDump {
            market: MarketId(i as u32),
            state: market.state,
            numbers: market.numbers.unwrap_or_default(),
            supply: market.supply(),
        });
        StateDump {
            markets: markets.collect(),
            bids: self.bids.iter().map(|(id, record)| dump_bid(id, record)).collect(),
            allocations: self.allocations.iter().map(|(id, a)| self.dump_allocation(id, a)).collect(),
            totals: self.totals,
            funded: self.dump_funded(),
        }
    }

    pub(crate) fn dump_allocation(&self, id: AllocationId, allocation: &Allocation) -> AllocationDump {
        AllocationDump {
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

fn dump_bid(id: BidId, record: BidRecord<'_>) -> BidDump {
    let BidTerms { max_nodes, ceiling, .. } = *record.terms();
    let bid = record.active();
    BidDump {
        bid: id,
        held: bid.map_or(0, |bid| bid.live.len()),
        claimed: bid.map_or(0, |bid| bid.claims.len()),
        unmet: record.unmet(),
        max_nodes,
        ceiling,
        searching: record.searching(),
        ceiling_locked_until: bid
            .filter(|bid| bid.searching)
            .map_or(Micros(0), |bid| bid.ceiling_locked_until),
    }
}
