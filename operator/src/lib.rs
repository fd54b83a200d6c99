//! The Kubernetes operator: turns a `BidNode` into nodes by bidding for them, and survives pre-emption.
//!
//! Each object is reconciled by `observe → plan → act`: `observe` reads the caches of the cluster, the engine and the
//! provisioner into a plain value, the pure functions of [`plan`] decide, and `act` carries the plan out and records the
//! outcome. [`control`] has the controllers, on the library kubebid-controller. Everything that must survive a crash is in the status of the objects.

#![warn(missing_docs)]
// `println!` and `eprintln!` panic if nothing can be written.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod act;
pub mod allowed_types;
pub mod api;
mod cache;
mod context;
pub mod control;
pub mod conversion;
pub mod crds;
pub mod engine;
mod error;
pub mod journal;
mod label_sets;
pub mod market;
pub mod metrics;
mod observe;
pub mod plan;
pub mod policy;
pub mod provisioner;

use kubebid_controller::{clock, failpoint};
