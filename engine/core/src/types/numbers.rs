//! The five numbers of a market, and its supply.

use crate::types::money::Price;

/// The five numbers of a market (R9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The market price of R8, in micro-dollars per node-hour; 0 if R8 gives none.
    pub market_price: Price,
    /// The entry price for one node; absent if it is impossible to enter.
    pub entry_price: Option<Price>,
    /// The lowest reserve of the units that are neither leaving nor resting; absent if there are none.
    pub floor: Option<Price>,
    /// The lowest ceiling among live allocations and claims, L of R8; absent if there are none.
    pub lowest_accepted: Option<Price>,
    /// The highest ceiling of eligible plain bids with unmet demand, H of R8 over all tenants; 0 if there is none.
    pub highest_losing: Price,
}

/// The number of units of a market in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// The number of all units, including those that are leaving.
    pub total: u64,
    /// The number of units without an allocation that bids can get.
    pub free: u64,
    /// The number of allocated units that are not under notice.
    pub allocated: u64,
    /// The number of units under notice, including claimed ones.
    pub notice: u64,
    /// The number of units under notice that a bid has a claim on.
    pub claimed: u64,
    /// The number of units that rest until their provider resumes them (R11).
    pub resting: u64,
}
