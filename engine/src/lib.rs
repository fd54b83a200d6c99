//! The auction engine as a service around `kubebid-core`.

mod chunk;
pub mod clock;
mod engine;
mod intake;
pub mod metrics;
pub mod projections;
pub mod recovery;
mod reference;
mod replay;
mod sequencer;
pub mod store;
pub mod view;
pub mod wire;

pub use chunk::{Chunk, HourMark, Step};
pub use engine::{Engine, EngineError, EngineOptions, Running, Submission};
pub use intake::NotDone;
pub use replay::BEHAVIOUR;
