//! The Kubernetes operator: turns a `BidNode` into nodes by bidding for them, and survives pre-emption.
//!
//! Each object is reconciled by `observe → plan → act`: `observe` reads the caches of the cluster, the engine and the
//! provisioner into a plain value, the pure functions of [`plan`] decide, and `act` carries the plan out and records the
//! outcome. [`control`] has the loops. Everything that must survive a crash is in the status of the objects.

#![warn(missing_docs)]

mod act;
pub mod api;
mod cache;
mod clock;
mod context;
pub mod control;
pub mod crds;
mod deletion;
pub mod engine;
mod error;
pub mod failpoint;
pub mod leader_election;
pub mod metrics;
mod observe;
pub mod ops;
pub mod plan;
pub mod provisioner;
