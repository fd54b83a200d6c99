//! Takes the timers that are due, and drops those that are no longer valid.

use crate::exchange::Exchange;
use crate::state::timers::{Due, Timers};
use crate::types::units::Micros;
use std::cmp::Reverse;

/// The number of stale timers that may stay beside twice the number of valid ones.
const SLACK: usize = 1024;

impl Exchange {
    /// Takes the first thing that is due by now.
    pub(crate) fn take_due(&mut self) -> Option<Due> {
        while let Some(Reverse((at, due))) =
            self.timers.heap.peek().copied().filter(|Reverse((at, _))| *at <= self.now)
        {
            self.timers.heap.pop();
            if self.is_awaited(at, due) {
                return Some(due);
            }
        }
        None
    }

    /// Drops invalid timers: those at the front always, and all of them once there are many.
    pub(crate) fn tidy_timers(&mut self) {
        while let Some(Reverse((at, due))) = self.timers.heap.peek().copied()
            && !self.is_awaited(at, due)
        {
            self.timers.heap.pop();
        }
        if self.timers.heap.len() > 2 * self.timers.standing + SLACK {
            let mut heap = std::mem::take(&mut self.timers.heap);
            heap.retain(|Reverse((at, due))| self.is_awaited(*at, *due));
            self.timers = Timers { standing: heap.len(), heap };
        }
    }

    /// Returns true if the timer of this instant is still valid.
    fn is_awaited(&self, at: Micros, due: Due) -> bool {
        match due {
            Due::ProtectionEnds(id) => self.allocations.get(id).is_some_and(|a| a.protected_until == at),
            Due::ReserveCounts(id) => self.allocations.get(id).is_some_and(|a| a.raise_at == Some(at)),
            Due::Deadline(id) => {
                self.allocations.get(id).and_then(|a| a.notice).is_some_and(|notice| notice.deadline == at)
            }
            Due::StartTimeout(id) => {
                self.allocations.get(id).is_some_and(|a| a.ready.is_none() && a.start_by == at)
            }
            Due::Expiry(id) => {
                self.bids.get(id).is_some_and(|bid| bid.searching && bid.terms.expiry.get() == Some(at))
            }
            Due::Month(account) => {
                let budget = self.funds_of(account).and_then(|funds| funds.budget);
                budget.is_some_and(|budget| budget.next_month == at)
            }
            Due::Renewal(account) => {
                let renewal = self.funds_of(account).and_then(|funds| funds.renewal);
                renewal.is_some_and(|renewal| renewal.next == at)
            }
        }
    }
}
