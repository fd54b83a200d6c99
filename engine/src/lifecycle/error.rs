//! Errors that keep an engine from starting, or end it.

use crate::runtime::clock::ClockFault;
use crate::runtime::recovery::RecoveryError;
use crate::runtime::sequencer::Stopped;
use crate::store::Fault;
use std::time::Duration;

/// Why the engine did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Fault),
    /// The exchange could not be recovered from the journal.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The machine's clock is wrong.
    #[error(transparent)]
    Clock(#[from] ClockFault),
    /// The sequencer had to stop.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// Another engine leads and is alive.
    #[error(
        "another engine leads and lives; --standby waits to take over from it, --take-over fences it at once"
    )]
    Led,
    /// A standby was asked for on SQLite.
    #[error("a standby needs a store in PostgreSQL: a SQLite file belongs to one engine")]
    NoStandby,
    /// The system did not start the exchange's thread.
    #[error("the exchange's thread could not be started")]
    Thread(#[source] std::io::Error),
    /// The exchange's thread panicked, which is a bug.
    #[error("the exchange's thread ended unexpectedly")]
    Bug,
    /// The engine did not end in time, because the store did not answer.
    #[error(
        "the store did not let the engine end within {} s{}; what was acknowledged is in the journal, and an engine \
         that starts replays it", .grace.as_secs(), .why.as_ref().map_or(String::new(), |why| format!(" ({why})"))
    )]
    Cut {
        /// The time that it had.
        grace: Duration,
        /// The store's last answer.
        why: Option<String>,
    },
}
