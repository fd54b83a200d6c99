//! The market's clock: the only place that asks what time it is.

use kubebid_core::units::Micros;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the time of commands comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The machine's clock, but never backwards.
    Real,
    /// Moved by AdvanceTime only: for replays and tests.
    Stepped,
}

impl Clock {
    /// The time to stamp, when the last one stamped was `last`.
    pub fn now(self, last: Micros) -> Micros {
        match self {
            Clock::Real => last.max(wall()),
            Clock::Stepped => last,
        }
    }
}

/// The machine's clock.
#[expect(clippy::disallowed_methods, reason = "the one place that asks")]
pub fn wall() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
