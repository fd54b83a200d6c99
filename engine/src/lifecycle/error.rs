//! Errors that keep an engine from starting, or end it.

use crate::runtime::clock::ClockFault;
use crate::runtime::recovery::RecoveryError;
use crate::runtime::sequencer::Stopped;
use crate::store::Fault;
use std::time::Duration;

/// Why the engine did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    #[error(transparent)]
    Clock(#[from] ClockFault),
    #[error(transparent)]
    Stopped(#[from] Stopped),
    #[error(
        "another engine leads and lives; --standby waits to take over from it, --take-over fences it at once"
    )]
    Led,
    #[error("a standby needs a store in PostgreSQL: a SQLite file belongs to one engine")]
    NoStandby,
    #[error("the exchange's thread could not be started")]
    Thread(#[source] std::io::Error),
    #[error("the exchange's thread ended unexpectedly")]
    Bug,
    #[error(
        "the store did not let the engine end within {} s{}; what was acknowledged is in the journal, and an engine \
         that starts replays it", .grace.as_secs(), .why.as_ref().map_or(String::new(), |why| format!(" ({why})"))
    )]
    Cut { grace: Duration, why: Option<String> },
}
