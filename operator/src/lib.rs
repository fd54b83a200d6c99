//! The Kubernetes operator: turns a `BidNode` into nodes by bidding for them, and survives pre-emption.
//!
//! `observe → plan → act`: what to do is decided by the pure functions of [`plan`]; `control` looks at the world,
//! asks them, and does what they say, each act so that it may be repeated. All that must be remembered is in the
//! status of the objects.

pub mod api;
pub mod auction;
mod clock;
pub mod control;
pub mod crds;
mod deletion;
pub mod fault;
pub mod leadership;
pub mod metrics;
pub mod ops;
pub mod plan;
pub mod provision;
pub mod world;
