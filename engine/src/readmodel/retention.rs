//! The retention of events and price changes in the tables. Charges, bids and allocations are kept for ever.

use kubebid_core::units::Micros;

const DAY: Micros = Micros(86_400_000_000);

/// Days for which rows are kept; None is for ever. Rows are dropped a whole month at a time, so some are kept for up to a
/// month longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The days for which events are kept.
    pub event_days: Option<u32>,
    /// The days for which price changes are kept.
    pub price_days: Option<u32>,
}

impl Retention {
    /// Returns the day of a time, counted from 1970.
    pub(crate) fn day(at: Micros) -> u64 {
        at.0 / DAY.0
    }

    /// Returns the earliest time whose events must be kept.
    pub(crate) fn events_from(self, now: Micros) -> Option<Micros> {
        self.event_days.map(|days| first_time(now, days))
    }

    /// Returns the earliest time whose price changes must be kept.
    pub(crate) fn prices_from(self, now: Micros) -> Option<Micros> {
        self.price_days.map(|days| first_time(now, days))
    }
}

fn first_time(now: Micros, days: u32) -> Micros {
    Micros(now.0.saturating_sub(DAY.0 * u64::from(days)))
}
