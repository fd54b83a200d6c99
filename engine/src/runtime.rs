//! The exchange at work: one thread takes commands, journals and applies them; readers see what it publishes.

pub(crate) mod account_feeds;
pub mod clock;
pub(crate) mod delivery;
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
