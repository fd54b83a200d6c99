//! The retention of events and price changes in the tables. Charges, bids and allocations are kept for ever.

use kubebid_core::units::Micros;

const DAY_MICROS: u64 = 86_400_000_000;

/// Whole days of rows to keep besides the present one, in UTC; None is for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    pub event_days: Option<u32>,
    pub price_days: Option<u32>,
}

/// Rows that are no longer kept.
#[derive(Debug)]
pub(crate) struct Expired {
    pub(crate) table: &'static str,
    /// The first day that is kept, counted from 1970.
    pub(crate) first_day: u64,
    /// Statements that tell what is missing from then on.
    pub(crate) then: Vec<String>,
}

impl Retention {
    /// Returns the day of a time, counted from 1970.
    pub(crate) fn day(at: Micros) -> u64 {
        at.0 / DAY_MICROS
    }

    /// Returns what is no longer kept at a time.
    pub(crate) fn expired(self, now: Micros) -> Vec<Expired> {
        let first_day = |days: u32| Retention::day(now).saturating_sub(days.into());
        let events = self.event_days.map(|days| Expired {
            table: "events",
            first_day: first_day(days),
            then: vec![
                // The day may begin within the events of a command.
                "UPDATE projection SET first_event = 1 + COALESCE((SELECT MIN(seq) FROM events), watermark)"
                    .to_owned(),
                "DELETE FROM event_parties WHERE seq < (SELECT first_event FROM projection)".to_owned(),
            ],
        });
        let prices = self.price_days.map(|days| Expired {
            table: "price_changes",
            first_day: first_day(days),
            then: vec![format!("UPDATE projection SET prices_from = {}", first_day(days) * DAY_MICROS)],
        });
        events.into_iter().chain(prices).collect()
    }
}
