//! The whole state of the market in a form that two implementations can compare.

use crate::types::market_state::MarketState;
use crate::types::money::{Bill, Funds, Price, Totals};
use crate::types::numbers::{Numbers, Supply};
use crate::types::units::{AccountId, AllocationId, BidId, MarketId, Micros, UnitId};

/// The whole state, in the order of the ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateDump {
    /// All markets, in the order in which they were opened.
    pub markets: Vec<MarketDump>,
    /// All bids ever placed.
    pub bids: Vec<BidDump>,
    /// Allocations that have not ended.
    pub allocations: Vec<AllocationDump>,
    /// The totals of all charges.
    pub totals: Totals,
    /// The funded accounts, in the order of their numbers (R19).
    pub funded: Vec<FundsDump>,
}

/// The funds of a funded account (R19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FundsDump {
    /// The number of the account.
    pub account: AccountId,
    /// The funds, in whole micro-dollars.
    pub funds: Funds,
    /// The sum of all reservations, exactly.
    pub reserved: Bill,
    /// The instant of the next renewal; None if the account has neither a node nor a claim.
    pub next_renewal: Option<Micros>,
    /// The budget.
    pub budget: Option<BudgetDump>,
}

/// The monthly budget of an account (R19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetDump {
    /// The amount of each month, in micro-dollars.
    pub monthly: i64,
    /// True if it is added to what is left.
    pub roll_over: bool,
    /// The first instant of the next month in UTC.
    pub next_month: Micros,
}

impl FundsDump {
    /// Returns all reservations in micro-dollars, rounded up.
    pub fn reserved_amount(&self) -> i128 {
        i128::try_from(self.reserved.0.div_ceil(u128::from(Micros::HOUR.0))).unwrap_or(i128::MAX)
    }

    /// Returns what is neither spent nor reserved, in micro-dollars, rounded down; negative after a cut.
    pub fn available(&self) -> i128 {
        self.funds.0.saturating_sub(self.reserved_amount())
    }
}

/// One market as last settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarketDump {
    /// The number of the market.
    pub market: MarketId,
    /// The state of the market (R18).
    pub state: MarketState,
    /// The five numbers (R9).
    pub numbers: Numbers,
    /// The number of units in each state.
    pub supply: Supply,
}

/// One bid, also one that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BidDump {
    /// The number of the bid.
    pub bid: BidId,
    /// The number of its live nodes.
    pub held: u32,
    /// The number of its claims.
    pub claimed: u32,
    /// The unmet demand; 0 if the bid does not search.
    pub unmet: u32,
    /// The highest number of its live nodes and claims.
    pub max_nodes: u32,
    /// The ceiling, in micro-dollars per node-hour.
    pub ceiling: Price,
    /// True until the search ends (R14).
    pub searching: bool,
    /// The time until which a raise under notice keeps the ceiling from falling (R2); 0 if there was none, or if the bid
    /// does not search.
    pub ceiling_locked_until: Micros,
}

/// One allocation that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationDump {
    /// The number of the allocation.
    pub allocation: AllocationId,
    /// The bid that holds it.
    pub bid: BidId,
    /// The unit that is held.
    pub unit: UnitId,
    /// The state, with the notice as a state of its own.
    pub state: AllocationState,
    /// The deadline of the notice.
    pub deadline: Option<Micros>,
    /// The bid that gets the unit when the notice ends; None if no bid has a claim on it.
    pub claim: Option<BidId>,
    /// Price in force, per node-hour.
    pub billed: Price,
    /// The end of the protection. While starting, it is the start time-out plus the minimum runtime.
    pub protected_until: Micros,
}

/// The state of an allocation that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationState {
    /// The node is not reported ready yet.
    Starting,
    /// The node is ready, and is billed (R15).
    Active,
    /// The node is under notice, ready or not.
    Notice,
}

impl AllocationState {
    /// Returns the name of the state, as in `Starting`.
    pub fn word(self) -> &'static str {
        match self {
            AllocationState::Starting => "Starting",
            AllocationState::Active => "Active",
            AllocationState::Notice => "Notice",
        }
    }
}
