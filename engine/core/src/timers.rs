//! What falls due, and in which order (§3, step 1).

use crate::units::{AllocationId, BidId, Micros};
use std::collections::BTreeSet;

/// In the order in which things of one instant come; within a kind by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    ProtectionEnds(AllocationId),
    ReserveCounts(AllocationId),
    Deadline(AllocationId),
    StartTimeout(AllocationId),
    Expiry(BidId),
}

#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeSet<(Micros, Due)>);

impl Timers {
    pub(crate) fn set(&mut self, at: Micros, due: Due) {
        self.0.insert((at, due));
    }

    pub(crate) fn unset(&mut self, at: Micros, due: Due) {
        self.0.remove(&(at, due));
    }

    /// The earliest instant at which anything falls due.
    pub(crate) fn next(&self) -> Option<Micros> {
        self.0.first().map(|(at, _)| *at)
    }

    /// All that is to come, the earliest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Micros, Due)> {
        self.0.iter().copied()
    }

    /// Takes the first thing that is due at `now`.
    pub(crate) fn take(&mut self, now: Micros) -> Option<Due> {
        let (at, due) = *self.0.first()?;
        (at <= now).then(|| {
            self.0.pop_first();
            due
        })
    }
}
