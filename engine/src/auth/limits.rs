//! The limits of an account, and of an address that sends no valid token.

mod bucket;
mod slots;
mod usage;

pub use bucket::{Bucket, Rate};
pub use slots::{Slot, Slots};
pub use usage::{Reservation, Room, Usage};

use crate::store;
use std::time::Duration;

/// The limits of an account that has none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The most bids that search.
    pub open_bids: u64,
    /// The most nodes that its searching bids want and its other bids still hold, in total.
    pub nodes_wanted: u64,
    /// The highest ceiling of a bid, in micro-dollars per node-hour.
    pub ceiling_micros: u64,
    /// The most requests per second.
    pub requests_per_second: u64,
    /// The most requests that are open at once. A request is open until its answer is read.
    pub open_requests: u64,
    /// The most watches that are open at once.
    pub watches: u64,
    /// The most requests per second without a valid token, from one address.
    pub anonymous_requests_per_second: u64,
    /// The most units that it offers, in all markets together.
    pub units_offered: u64,
    /// The most units by which one command may change an offer.
    pub units_per_command: u64,
    /// The most commands per second that the market refuses; they are journaled all the same. Ten
    /// seconds' worth may come at once. Refused tokens do not count here: see
    /// `anonymous_requests_per_second`.
    pub refusals_per_second: u64,
    /// The most commands per day, each with its cost. As many may come at once.
    pub commands_per_day: u64,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults {
            open_bids: 10_000,
            nodes_wanted: 10_000,
            ceiling_micros: u64::MAX,
            // As many requests as two full frames of bids.
            requests_per_second: 2_000,
            units_offered: 10_000,
            units_per_command: 1_000,
            refusals_per_second: 100,
            commands_per_day: 250_000,
            open_requests: 256,
            watches: 100,
            anonymous_requests_per_second: 100,
        }
    }
}

impl Defaults {
    /// Returns the limits of an account: its own, and the defaults for those that it does not have.
    pub fn under(&self, own: store::Limits) -> Defaults {
        Defaults {
            open_bids: own.open_bids.unwrap_or(self.open_bids),
            nodes_wanted: own.nodes_wanted.unwrap_or(self.nodes_wanted),
            ceiling_micros: own.ceiling_micros.unwrap_or(self.ceiling_micros),
            requests_per_second: own.requests_per_second.unwrap_or(self.requests_per_second),
            units_offered: own.units_offered.unwrap_or(self.units_offered),
            units_per_command: own.units_per_command.unwrap_or(self.units_per_command),
            refusals_per_second: own.refusals_per_second.unwrap_or(self.refusals_per_second),
            commands_per_day: own.commands_per_day.unwrap_or(self.commands_per_day),
            ..*self
        }
    }

    /// Returns those that an account can have of its own. No number of the API has more than 63 bits.
    pub(crate) fn own(&self) -> store::Limits {
        store::Limits {
            open_bids: Some(self.open_bids),
            nodes_wanted: Some(self.nodes_wanted),
            ceiling_micros: Some(self.ceiling_micros.min(i64::MAX.unsigned_abs())),
            requests_per_second: Some(self.requests_per_second),
            units_offered: Some(self.units_offered),
            units_per_command: Some(self.units_per_command),
            refusals_per_second: Some(self.refusals_per_second),
            commands_per_day: Some(self.commands_per_day),
        }
    }

    pub(crate) fn requests(&self) -> Rate {
        Rate::per_second(self.requests_per_second)
    }

    /// The rate of refused commands. Ten seconds' worth may come at once, because a frame with an
    /// error is refused as a whole and is no reason to stop an account.
    pub(crate) fn refusals(&self) -> Rate {
        const SECONDS: u32 = 10;
        let count = self.refusals_per_second.saturating_mul(u64::from(SECONDS));
        Rate { count, span: Duration::from_secs(1) * SECONDS }
    }

    pub(crate) fn commands(&self) -> Rate {
        Rate::per_day(self.commands_per_day)
    }
}
