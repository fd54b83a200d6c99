//! Throw-away servers for tests.

mod postgres;

pub use postgres::Cluster;
