//! The whole state of the market in a form that two implementations can compare.

use crate::types::money::{Price, Totals};
use crate::types::numbers::{Numbers, Supply};
use crate::types::units::{AllocationId, BidId, MarketId, Micros, UnitId};

/// Everything, in the order of the ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateDump {
    pub markets: Vec<MarketDump>,
    /// All bids ever placed.
    pub bids: Vec<BidDump>,
    /// Allocations that have not ended.
    pub allocations: Vec<AllocationDump>,
    pub totals: Totals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarketDump {
    pub market: MarketId,
    pub numbers: Numbers,
    pub supply: Supply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BidDump {
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
pub struct AllocationDump {
    pub allocation: AllocationId,
    pub bid: BidId,
    pub unit: UnitId,
    pub state: AllocationState,
    /// The deadline of the notice.
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
