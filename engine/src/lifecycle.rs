//! An engine from its start to its end: it recovers, leads or stands by, renews its lease, and saves snapshots.

pub(crate) mod bench_stubs;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod follower;
pub(crate) mod leader;
pub(crate) mod lease_keeper;
pub(crate) mod options;
pub mod rebuild;
pub mod scrub;
pub(crate) mod snapshotter;
pub(crate) mod standby;
