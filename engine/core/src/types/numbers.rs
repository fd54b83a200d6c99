//! The five numbers of a market, and its supply.

use crate::types::money::Price;

/// The five numbers of a market (R9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    pub market_price: Price,
    /// The entry price for one node; absent if it is impossible to enter.
    pub entry_price: Option<Price>,
    pub floor: Option<Price>,
    pub lowest_accepted: Option<Price>,
    pub highest_losing: Price,
}

/// The number of units of a market in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// Leaving ones too.
    pub total: u64,
    pub free: u64,
    /// Not under notice.
    pub allocated: u64,
    /// Claimed ones too.
    pub notice: u64,
    pub claimed: u64,
}
