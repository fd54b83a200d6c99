//! What an account may use at most: requests a second, open bids, nodes, the height of a ceiling.

mod bucket;
mod slots;
mod usage;

pub use bucket::Bucket;
pub use slots::{Slot, Slots};
pub use usage::{Reservation, Room, Usage};

use crate::store;

/// What holds for an account of which nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Bids that search.
    pub open_bids: u64,
    /// Nodes that its searching bids want in all.
    pub nodes_wanted: u64,
    /// The ceiling of a bid, per node-hour.
    pub ceiling_micros: u64,
    pub requests_per_second: u64,
    /// Requests that are open at once, answers that are not read yet included.
    pub open_requests: u64,
    /// Watches that are open at once.
    pub watches: u64,
    /// Requests a second without a valid token, from one address.
    pub anonymous_requests_per_second: u64,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults {
            open_bids: 100_000,
            nodes_wanted: 1_000_000,
            ceiling_micros: u64::MAX,
            requests_per_second: 50_000,
            open_requests: 256,
            watches: 100,
            anonymous_requests_per_second: 100,
        }
    }
}

impl Defaults {
    /// What holds for an account with these limits of its own.
    pub fn under(&self, own: store::Limits) -> Defaults {
        Defaults {
            open_bids: own.open_bids.unwrap_or(self.open_bids),
            nodes_wanted: own.nodes_wanted.unwrap_or(self.nodes_wanted),
            ceiling_micros: own.ceiling_micros.unwrap_or(self.ceiling_micros),
            requests_per_second: own.requests_per_second.unwrap_or(self.requests_per_second),
            ..*self
        }
    }
}
