//! The state of the market as anyone may compare it: numbers, bids, allocations, money.

use crate::money::{Price, Totals};
use crate::units::{AllocationId, BidId, MarketId, Micros, UnitId};

/// The five numbers of a market (R9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    pub market_price: Price,
    /// For one node; absent when impossible.
    pub entry_price: Option<Price>,
    pub floor: Option<Price>,
    pub lowest_accepted: Option<Price>,
    pub highest_losing: Price,
}

/// How many units a market has, and in which state.
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

/// Everything, in the order of the ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    pub markets: Vec<MarketPicture>,
    /// All bids ever placed.
    pub bids: Vec<BidPicture>,
    /// Those not ended.
    pub allocations: Vec<AllocationPicture>,
    pub totals: Totals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarketPicture {
    pub market: MarketId,
    pub numbers: Numbers,
    pub supply: Supply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BidPicture {
    pub bid: BidId,
    /// Live nodes.
    pub held: u32,
    pub claimed: u32,
    pub unmet: u32,
    pub max_nodes: u32,
    pub ceiling: Price,
    pub searching: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationPicture {
    pub allocation: AllocationId,
    pub bid: BidId,
    pub unit: UnitId,
    pub state: AllocationState,
    /// Of the notice.
    pub deadline: Option<Micros>,
    pub claim: Option<BidId>,
    /// Price in force, per node-hour.
    pub billed: Price,
    /// While starting: start time-out + minimum runtime.
    pub protected_until: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationState {
    Starting,
    Active,
    /// Either of the two, under notice.
    Notice,
}

impl AllocationState {
    pub fn word(self) -> &'static str {
        match self {
            AllocationState::Starting => "Starting",
            AllocationState::Active => "Active",
            AllocationState::Notice => "Notice",
        }
    }
}
