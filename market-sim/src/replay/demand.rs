//! Replays a demand trace against a market: providers offer the capacity; jobs bid for their nodes or share one, work,
//! and release them when they are done or cannot make their deadline.
//!
//! The replay reads nothing but the market's events and steps to every instant at which something can happen, so that
//! the exchange in this process and an engine over a connection give the same result for the same seed.

mod gpus;
mod history;
mod report;
mod run;

pub use crate::trace::{Job, Priority, TraceError, read_demand};
pub use crate::venue::{InProcess, Remote, Venue, VenueError};
pub use report::Report;
pub use run::{Settings, replay, replay_and_draw};
