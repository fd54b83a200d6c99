//! Details of ended nodes and charged claims that their events leave out. The read model keeps them.

use crate::event::NoticeReason;
use crate::types::money::{Bill, Price};
use crate::types::units::{AllocationId, Micros};

/// A detail of each `Ended`, and of each `Charged` with `CLAIM_DROPPED`, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettlementDetail {
    /// The allocation that an `Ended` names.
    Node(ClosedNode),
    /// The least that a claim costs: `span` at `price`.
    Claim {
        /// The allocation that was claimed.
        allocation: AllocationId,
        /// The price that the claim's bid would have paid there as last settled, in micro-dollars per node-hour.
        price: Price,
        /// The `min_charge` of the market, in microseconds.
        span: Micros,
    },
}

/// An allocation as it was when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedNode {
    /// The number of the allocation.
    pub allocation: AllocationId,
    /// The time by which it had to be ready, in microseconds since 1970 (R11).
    pub start_by: Micros,
    /// The time of the first ready report, in microseconds since 1970; None if it was never ready.
    pub ready_at: Option<Micros>,
    /// The end of its protection, in microseconds since 1970 (R4).
    pub protected_until: Micros,
    /// The reason and the deadline of the notice it was under.
    pub notice: Option<(NoticeReason, Micros)>,
    /// The price in force at the end, per node-hour.
    pub price: Price,
    /// The reading of its meter, also if it is free of charge.
    pub used: Bill,
    /// The time that the minimum charge adds to the time used, at `price`.
    pub missing: Micros,
}
