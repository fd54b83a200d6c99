//! A bid with a minimum gets all of it at once, in one market, or nothing (R12).

use crate::displace::{Book, Pick};
use crate::state::Model;
use kubebid_core::Price;
use kubebid_core::units::{BidId, MarketId};

impl Book {
    /// Returns `nodes` picks for this ceiling, one after the other as R3 and R4 would give them. None
    /// if there are fewer.
    pub(crate) fn all_or_nothing(&self, ceiling: Price, nodes: u32) -> Option<Vec<Pick>> {
        let mut rest = self.clone();
        let mut picks = Vec::new();
        for _ in 0..nodes {
            let pick = rest.pick(ceiling)?;
            rest = rest.without(pick);
            picks.push(pick);
        }
        Some(picks)
    }
}

impl Model {
    /// Returns where and how a waiting gang can be placed among these markets: the fewest displacements, then the
    /// lowest needed ceiling (the highest over its nodes), then the first market.
    pub(crate) fn gang_picks(&self, id: BidId, markets: &[MarketId]) -> Option<Vec<Pick>> {
        let bid = &self.bids[&id];
        let plans = markets.iter().filter_map(|market| {
            let picks = self.book(&[*market]).all_or_nothing(bid.ceiling, bid.minimum())?;
            let displacements = picks.iter().filter(|pick| pick.what.is_displacement()).count();
            let needed = picks.iter().map(|pick| pick.needed).max();
            Some((displacements, needed, *market, picks))
        });
        let best = plans.min_by_key(|(displacements, needed, market, _)| (*displacements, *needed, *market));
        best.map(|(_, _, _, picks)| picks)
    }
}
