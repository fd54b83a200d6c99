//! The market as a pure, deterministic state machine: commands in, events out.
//!
//! The rules are those of `docs/mechanism.md`; comments cite them by number (`R4`).
//! Nothing here knows the time, chance, threads, floats or a wire format: everything that
//! [`Auction::apply`] reads is in the command it is given.

pub mod answer;
mod bids;
mod billing;
mod book;
pub mod closing;
pub mod codec;
pub mod command;
mod depth;
mod draw;
mod due;
pub mod event;
mod exchange;

mod head_queue;
mod heap;
mod index;
mod keys;
pub mod market_list;
mod meter;
pub mod money;
mod nodes;
mod numbered;
mod obey;
mod obstacles;
mod offerings;
pub mod open;
pub mod picture;
mod preempt;
mod price;
#[cfg(test)]
mod random;
pub mod reject;
pub mod rules;
mod scopes;
mod settle;
mod slab;
mod snapshot;
mod sorted;
mod state;
mod table;
mod timers;
pub mod units;
pub mod views;

pub use answer::{Answer, Auction};
/// What bids wait on; public for its benchmarks.
pub use book::{Handle, Ladder, Rank};
pub use codec::Content;
pub use command::{Command, Stamped};
pub use event::{Event, EventKind, Fact};
pub use exchange::Exchange;
pub use money::{Amount, Price};
pub use reject::Reject;
pub use rules::MarketRules;
