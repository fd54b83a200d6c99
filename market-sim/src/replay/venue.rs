//! Where a trace is played.

use kubebid_core::units::{AllocationId, BidId, Micros};
use kubebid_core::{Amount, Price};

/// What the world does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Open {
        market: String,
        min_runtime: Micros,
        notice: Micros,
    },
    Offer {
        provider: String,
        market: String,
        capacity: u64,
        reserve: Price,
    },
    /// For all of `nodes` at once, or none (R12).
    Bid {
        tenant: String,
        market: String,
        ceiling: Price,
        nodes: u32,
    },
    /// With RELEASE: the job is done.
    Cancel {
        tenant: String,
        bid: BidId,
    },
    /// Its tenant sees the node run.
    Ready {
        tenant: String,
        allocation: AllocationId,
    },
}

/// What the world hears of; its times are market time.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    Allocated { at: Micros, allocation: AllocationId, bid: BidId },
    NoticeStarted { at: Micros, allocation: AllocationId, deadline: Micros },
    NoticeRescinded { at: Micros, allocation: AllocationId },
    Ended { at: Micros, allocation: AllocationId, bid: BidId },
    Charged { debit: Amount, fee: Amount },
    Price { at: Micros, market: String, price: Price, supplied: bool },
    Refused { reason: String },
}

/// Why the venue could not go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct VenueError(pub String);

/// An exchange with a stepped clock.
pub trait Venue {
    /// Moves the clock and says what that brought.
    fn advance(&mut self, to: Micros) -> Result<Vec<Happening>, VenueError>;

    /// Acts now. The number is that of the command: a bid's name.
    fn act(&mut self, act: Act) -> Result<(u64, Vec<Happening>), VenueError>;

    /// What to call it in the report.
    fn name(&self) -> String;
}
