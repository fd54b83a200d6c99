//! The market as a pure, deterministic state machine: commands in, events out.
//!
//! The rules are those of `docs/mechanism.md`; comments cite them by number (`R4`).
//! Nothing here knows the time, chance, threads, floats or a wire format: everything that
//! [`Auction::apply`] reads is in the command it is given.

#![deny(clippy::float_arithmetic)]
#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![warn(missing_docs)]

pub mod answer;
mod book;
pub mod codec;
mod collections;
pub mod command;
mod commands;
pub mod event;
mod exchange;
mod queries;
mod rules;
pub mod settlement_details;
mod snapshot;
mod state;
mod types;

pub use answer::{Answer, Auction};
/// The price levels on which bids wait. They are public for their benchmarks.
pub use book::{Handle, Ladder, Rank};
pub use codec::Content;
pub use command::{Command, StampedCommand};
pub use event::{Event, EventKind, Fact};
pub use exchange::Exchange;
pub use queries::views;
pub use state::account_usage;
pub use types::market_rules::MarketRules;
pub use types::market_state::MarketState;
pub use types::money::{Amount, Funds, Price};
pub use types::reject::Reject;
pub use types::{market_list, market_rules, market_state, money, numbers, reject, state_dump, units};
