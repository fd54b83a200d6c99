//! The auction engine as a service around `kubebid-core`, in layers.
//!
//! A folder imports only folders below it (`testkit/tests/layers.rs` checks this), from the lowest layer
//! to the highest:
//! 1. [`store`] keeps the journal and the rows of the edge; `events` turns commits into messages.
//! 2. [`runtime`] is the thread that owns the exchange, and what it publishes.
//! 3. [`readmodel`] writes and reads the tables that follow the journal.
//! 4. [`wire`] converts between messages and the domain; `lifecycle` starts, recovers and ends an engine.
//! 5. [`auth`] knows tokens, callers, what they may do and how much.
//! 6. [`api`] has one method for each call.
//! 7. [`grpc`] and [`rest`] are the two protocols.
//! 8. [`server`] listens, and reads the configuration.

#![warn(missing_docs)]
// `println!` and `eprintln!` panic if nothing can be written.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
pub mod auth;
pub mod events;
pub mod grpc;
pub mod lifecycle;
pub mod readmodel;
pub mod rest;
pub mod runtime;
pub mod server;
pub mod store;
pub mod wire;

pub use auth::caller::{AccountFilter, Caller, Roles};
pub use events::commit::{Commit, HourMark, Step};
pub use lifecycle::bench_stubs::OmittedParts;
pub use lifecycle::engine::{Engine, Running};
pub use lifecycle::error::EngineError;
pub use lifecycle::options::{EngineOptions, LEASE, Start};
pub use runtime::intake::{Submission, SubmitError};
pub use runtime::replay::BEHAVIOUR;
