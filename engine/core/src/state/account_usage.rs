//! Account usage: the open bids of an account, and the nodes they want. Limits use it; no rule of the market does.

use crate::state::Bid;

/// The open bids of one account and the nodes they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountUsage {
    /// The number of bids that search.
    pub bids: u64,
    /// The sum of the `max_nodes` of these bids, and of what the other bids still hold or claim. A
    /// node under notice counts in addition if a rescission would raise `max_nodes` again (R7).
    pub nodes: u64,
}

impl AccountUsage {
    /// Counts a bid as it is now instead of as it was counted last.
    pub(crate) fn count(&mut self, bid: &mut Bid) {
        self.bids -= u64::from(bid.is_counted);
        self.nodes -= u64::from(bid.counted_nodes);
        bid.is_counted = bid.searching;
        bid.counted_nodes = match (bid.searching, bid.terms.closes) {
            (true, false) => bid.terms.max_nodes,
            (true, true) => bid.terms.max_nodes + bid.notices.len(),
            (false, _) => bid.live.len() + bid.notices.len() + bid.claims.len(),
        };
        self.bids += u64::from(bid.is_counted);
        self.nodes += u64::from(bid.counted_nodes);
    }
}
