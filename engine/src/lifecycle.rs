//! The life of an engine: start, recovery, leading or standing by, the lease, snapshots, the end.

pub(crate) mod bench_stubs;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod follower;
pub(crate) mod leader;
pub(crate) mod lease_keeper;
pub(crate) mod options;
pub mod rebuild;
pub mod restore;
pub mod scrub;
pub(crate) mod snapshotter;
pub(crate) mod standby;
