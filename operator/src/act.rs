//! Acts: carries out plans, each step once, and records the outcome. Every act is idempotent.
//!
//! This is the only place that writes to the cluster, to the engine and to the provisioner.

pub(crate) mod bidnode;
pub(crate) mod drain;
pub(crate) mod garbage;
pub(crate) mod objects;
pub(crate) mod slot;
