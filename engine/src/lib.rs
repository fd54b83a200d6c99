//! The auction engine as a service around `kubebid-core`.

pub mod api;
pub mod auth;
mod caller;
mod chunk;
pub mod clock;
pub mod config;
mod engine;
pub mod grpc;
mod intake;
mod leave_out;
pub mod limits;
pub mod metrics;
mod owner;
pub mod policy;
mod progress;
pub mod projections;
pub mod recovery;
mod reference;
mod replay;
pub mod rest;
mod sequencer;
pub mod server;
mod snapshots;
pub mod spans;
mod standby;
pub mod store;
mod tenure;
pub mod view;
pub mod wire;

pub use caller::{Caller, Roles, Whose};
pub use chunk::{Chunk, HourMark, Step};
pub use engine::{Engine, EngineError, EngineOptions, LEASE, Running};
pub use intake::{NotDone, Submission};
pub use leave_out::LeaveOut;
pub use replay::BEHAVIOUR;
pub use standby::Start;
