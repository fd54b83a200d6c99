//! The exchange at work: commands come in, are journaled and applied by one thread, and what came of them is published.

pub(crate) mod account_feeds;
pub mod clock;
pub(crate) mod health;
pub(crate) mod intake;
pub(crate) mod lease_state;
pub mod metrics;
pub(crate) mod progress;
pub mod recovery;
pub(crate) mod reference_price;
pub(crate) mod replay;
pub(crate) mod sequencer;
pub mod spans;
pub mod views;
