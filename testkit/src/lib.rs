//! Throw-away servers for tests.

mod guardian;
mod plane;
mod postgres;

pub use plane::{Component, Plane};
pub use postgres::Cluster;
