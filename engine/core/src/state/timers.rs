//! Timers: what falls due, and in which order (§3, step 1).

use crate::types::units::{AccountId, AllocationId, BidId, Micros};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A timer. At one instant, timers are ordered by kind as declared here, and then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    ProtectionEnds(AllocationId),
    ReserveCounts(AllocationId),
    Deadline(AllocationId),
    StartTimeout(AllocationId),
    Expiry(BidId),
    /// A month begins for an account that has a budget. Closing markets end before (R18, R19).
    Month(AccountId),
    Renewal(AccountId),
}

/// The timers. A timer is set and never removed. When it comes up, `due.rs` checks by the state if it is
/// still valid. The first one is always valid.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    pub(crate) heap: BinaryHeap<Reverse<(Micros, Due)>>,
    /// The number of valid timers when they were last counted.
    pub(crate) standing: usize,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Micros, due: Due) {
        self.heap.push(Reverse((at, due)));
    }

    /// Returns the earliest instant at which anything is due.
    pub(crate) fn next(&self) -> Option<Micros> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}
