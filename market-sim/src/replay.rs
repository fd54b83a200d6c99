//! Replays a demand trace against a market: providers offer the capacity; jobs bid for their nodes or share one, work,
//! and release them when they are done or cannot make their deadline.
//!
//! The world learns what happens from the market's events alone and steps to every instant at which
//! something can happen, so that the exchange in this process and an engine behind a connection give
//! the same result for the same seed.

mod gpus;
mod report;
mod trails;
mod world;

pub use crate::trace::{Job, Priority, TraceError, read_demand};
pub use crate::venue::{InProcess, Live, Venue, VenueError};
pub use report::Report;
pub use world::{Settings, replay, replay_and_draw};
