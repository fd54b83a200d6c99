//! Details of ended nodes and charged claims that their events leave out. The read model keeps them.

use crate::event::NoticeReason;
use crate::types::money::{Bill, Price};
use crate::types::units::{AllocationId, Micros};

/// One for each `Ended`, and one for each `Charged` with `CLAIM_DROPPED`, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettlementDetail {
    Node(ClosedNode),
    /// The least that a claim costs: `span` at `price`.
    Claim {
        allocation: AllocationId,
        price: Price,
        span: Micros,
    },
}

/// An allocation as it was when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedNode {
    pub allocation: AllocationId,
    pub start_by: Micros,
    pub ready_at: Option<Micros>,
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
