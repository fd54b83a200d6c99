//! Violations: what contradicts the events before, and the rule that is broken.

use kubebid_core::event::{EndReason, NoticeReason};
use kubebid_core::numbers::Supply;
use kubebid_core::units::{AllocationId, BidId, Micros, UnitId};
use kubebid_core::{Amount, Price};

/// A contradiction between an event and the events before it, with the rule that is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each has a message that says it")]
pub enum Violation {
    #[error("it is {now} already (R1)")]
    TimeRunsBack { now: Micros },
    #[error("no such market was opened")]
    UnknownMarket,
    #[error("the market is open already")]
    MarketTwice,
    #[error("the market is closed already")]
    ClosedTwice,
    #[error("the market ended while it was open, or had units")]
    EndedEarly,

    #[error("no such unit is on offer")]
    UnknownUnit,
    #[error("unit numbers are never given twice, and come in order")]
    UnitNumber,
    #[error("the unit came at a reserve of {0}, its offer asks another")]
    UnitReserve(Price),
    #[error("the unit is held by allocation {0}")]
    UnitHeld(AllocationId),
    #[error("the unit is leaving (R11)")]
    UnitLeaves,
    #[error("the unit is not leaving")]
    UnitStays,
    #[error("the unit rests until its provider resumes it (R11)")]
    UnitRests,
    #[error("the unit does not rest (R11)")]
    UnitDoesNotRest,
    #[error("a unit rests if its node was not ready in time, and only then (R11)")]
    NotTimedOut,
    #[error("the offer has {ours} units that stay, and says {theirs} (R11)")]
    Capacity { ours: u64, theirs: u64 },
    #[error("units were counted {ours:?}, and are said to be {theirs:?} (I1)")]
    Count { ours: Supply, theirs: Supply },

    #[error("no such bid is open")]
    UnknownBid,
    #[error("the bid was placed before")]
    BidTwice,
    #[error("the bid is another tenant's")]
    NotItsTenant,
    #[error("the bid no longer searches (R14)")]
    NotSearching,
    #[error("the bid wants {max_nodes} nodes in all, and has {live} and {claims} claims (I2)")]
    TooManyNodes { max_nodes: u32, live: u32, claims: u32 },
    #[error("the bid wanted {before} nodes in all: it cannot be {after} after this (R7)")]
    MaxNodes { before: u32, after: u32 },
    #[error("the ceiling was raised under notice: it is not lowered before {0} (R2)")]
    Locked(Micros),
    #[error("the bid does not look in this market")]
    OutOfScope,
    #[error("the account sells here (R17)")]
    OwnSupply,

    #[error("allocations are numbered in order: this would be {expected}")]
    AllocationNumber { expected: u64 },
    #[error("no such allocation, or it has ended")]
    UnknownAllocation,
    #[error("the allocation is another's, or on another unit")]
    NotThatNode,
    #[error("the ceiling of {ceiling} is below the reserve of {reserve} (I3)")]
    BelowReserve { ceiling: Price, reserve: Price },
    #[error("it was ready before")]
    ReadyTwice,

    #[error("the allocation is under notice already")]
    NoticeTwice,
    #[error("the allocation is not under notice")]
    NoNotice,
    #[error("the deadline of this notice is {0} (R5, R11)")]
    Deadline(Micros),
    #[error("the notice of allocation {node} ended at {deadline}, and the node did not (I15)")]
    Overdue { node: AllocationId, deadline: Micros },
    #[error("the allocation is protected until {0} (I12)")]
    Protected(Micros),
    #[error("a live node of this market has a ceiling of {0}: it would go first (I18)")]
    NotTheLowest(Price),
    #[error("notice of allocation {0} was given for nobody's sake")]
    DisplacedForNobody(AllocationId),
    #[error("a notice of {notice:?} does not end by {end:?} at this time")]
    WrongEnd { notice: Option<NoticeReason>, end: EndReason },

    #[error("displacing takes a ceiling of {0} at least (R4)")]
    CeilingNeeded(Price),
    #[error("the claim before this is not the one that the event names")]
    NotThatClaim,
    #[error("the allocation has no such claim")]
    NoClaim,
    #[error("the notice still has a claim")]
    StillClaimed,
    #[error("the unit {unit:?} is due to bid {bid}, which has a claim on it (I16)")]
    ClaimNotHonoured { unit: UnitId, bid: BidId },

    #[error("nothing is owed for this")]
    NotOwed,
    #[error("the bill is {owed} (I5)")]
    Bill { owed: Amount },
    #[error("the bill would be below zero")]
    BillBelowZero,
    #[error("{owed} is owed for allocation {node}, and was not charged (R15)")]
    NotCharged { node: AllocationId, owed: Amount },
    #[error("the fee on this debit is {0} (R15)")]
    Fee(Amount),
    #[error("the market price is above the lowest accepted ceiling (R8)")]
    PriceAboveLowest,
    #[error("the lowest ceiling of nodes and claims is {0:?} (R9)")]
    LowestAccepted(Option<Price>),
    #[error("the highest ceiling of bids that want a node is {0} (R8)")]
    HighestLosing(Price),
    #[error("the market price is {0} (R8)")]
    MarketPrice(Price),
    #[error("the lowest reserve of units that stay is {0:?} (R9)")]
    Floor(Option<Price>),
}
