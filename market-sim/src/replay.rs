//! Replays of public traces: jobs, prices and supply.

pub mod demand;
pub mod prices;
pub mod supply;
