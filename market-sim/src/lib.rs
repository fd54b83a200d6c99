//! The library of the `market-sim` tool: plays worlds, traces and commands against the market.

#![warn(missing_docs)]
// `println!` and `eprintln!` panic if nothing can be written.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod agenda;
pub mod attack;
pub mod audit;
pub mod backtest;
mod bid;
pub mod calibration;
pub mod demo;
pub mod estimate;
pub mod experiment;
pub mod file;
pub mod jsonl;
mod name_map;
mod parallel;
mod participant;
pub mod replay;
pub mod trace;
pub mod venue;
pub mod world;

use kubebid_core::{Auction, Exchange};
use kubebid_model::Model;

/// Returns an empty market: the exchange, or the reference model that it is checked against.
pub fn auction(model: bool) -> Box<dyn Auction> {
    if model { Box::new(Model::new()) } else { Box::new(Exchange::new()) }
}
