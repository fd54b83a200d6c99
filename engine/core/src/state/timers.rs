//! Timers: what falls due, and in which order (§3, step 1).

use crate::types::units::{AllocationId, BidId, Micros};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A timer. Those of one instant come in this order; those of one kind by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    ProtectionEnds(AllocationId),
    ReserveCounts(AllocationId),
    Deadline(AllocationId),
    StartTimeout(AllocationId),
    Expiry(BidId),
}

/// Set, never unset: whether a timer still stands is asked of the state when it comes up
/// (`due.rs`). The first one always stands.
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

    /// The earliest instant at which anything falls due.
    pub(crate) fn next(&self) -> Option<Micros> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}
