//! The state of a market: open, closing or ended (R18).

use crate::types::units::{BidId, Seq};

/// The state of a market (R18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MarketState {
    /// The market takes new bids and offers.
    #[default]
    Open,
    /// The market was closed by this command. Bids placed before it go on; capacities only shrink.
    Closing(Seq),
    /// The market was closed and has no units left. No bid searches in it.
    Ended,
}

impl MarketState {
    /// Returns true if a bid may search in the market. The number of a bid is that of the command that placed it.
    pub fn admits(self, bid: BidId) -> bool {
        match self {
            MarketState::Open => true,
            MarketState::Closing(by) => bid.0 < by.0,
            MarketState::Ended => false,
        }
    }

    /// Returns the name of the state, as in `CLOSING`.
    pub fn word(self) -> &'static str {
        match self {
            MarketState::Open => "OPEN",
            MarketState::Closing(_) => "CLOSING",
            MarketState::Ended => "ENDED",
        }
    }
}
