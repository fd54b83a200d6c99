//! Replays a demand trace against a market: providers offer the capacity, each job bids for its
//! nodes, works on what it gets, and lets go when it is done.
//!
//! The world learns what happens from the market's events alone and steps to every instant at which
//! something can happen, so that the exchange in this process and an engine behind a connection give
//! the same result for the same seed.

mod report;
mod trails;
mod world;

pub use crate::trace::{Job, TraceError, read_demand};
pub use crate::venue::{InProcess, Live, Venue, VenueError};
pub use report::Report;
pub use world::{Settings, replay, replay_and_draw};
