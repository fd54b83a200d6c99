//! Throw-away servers for tests.

mod guardian;
mod plane;
mod port;
mod postgres;

pub use plane::{Component, Plane};
pub use port::Port;
pub use postgres::{Cluster, Crash};
