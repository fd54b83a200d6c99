//! What an account has open, for whoever limits it. No rule of the market asks.

use crate::state::Bid;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// Those that search.
    pub bids: u64,
    /// The `max_nodes` of these bids in all.
    pub nodes: u64,
}

impl Open {
    /// Counts one of its bids as it is now, and no longer as it was when it was counted last.
    pub(crate) fn count(&mut self, bid: &mut Bid) {
        self.bids -= u64::from(bid.is_counted);
        self.nodes -= u64::from(bid.counted_nodes);
        bid.is_counted = bid.searching;
        bid.counted_nodes = if bid.searching { bid.terms.max_nodes } else { 0 };
        self.bids += u64::from(bid.is_counted);
        self.nodes += u64::from(bid.counted_nodes);
    }
}
