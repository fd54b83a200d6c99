//! Faults of the database.

use std::path::PathBuf;
use std::time::Duration;

use super::HistoryLost;
use super::record::{DecodeError, Position};

/// The store did not do what it should. Says what we were doing; nobody's input is to blame.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("the store's URL has to be postgres://… or sqlite:PATH")]
    Url,
    #[error("cannot connect to PostgreSQL at {server}")]
    Connect { server: String, source: sqlx::Error },
    #[error("PostgreSQL at {server} has version {version}, KubeBid needs 15 or newer")]
    TooOld { server: String, version: String },
    #[error(
        "PostgreSQL at {server} has {setting} = {value}: it could lose what it has acknowledged, \
         so KubeBid does not start on it"
    )]
    Unsafe { server: String, setting: &'static str, value: String },
    #[error("the database at {server} has encoding {encoding}, KubeBid needs UTF8")]
    Encoding { server: String, encoding: String },
    #[error("PostgreSQL at {server} is a standby that only reads, KubeBid needs the primary")]
    Standby { server: String },
    #[error("another engine has {} open (it holds {})", .file.display(), .lock.display())]
    InUse { file: PathBuf, lock: PathBuf },
    #[error("cannot lock {}", .lock.display())]
    Lock { lock: PathBuf, source: std::io::Error },
    #[error("cannot prepare {}", .file.display())]
    Prepare { file: PathBuf, source: std::io::Error },
    #[error(
        "{} is missing, and its write-ahead log {} is there: put the file back; a new store is made in its place with \
         --new-store", .file.display(), .log.display()
    )]
    Remains { file: PathBuf, log: PathBuf },
    #[error(
        "{} was removed or replaced while the engine had it open: what came last may be in no file. End all that \
         touches it, put the file back, and start again", .file.display()
    )]
    Displaced { file: PathBuf },
    #[error(
        "the disk could not keep what was written; the engine ends, and goes on from what is there when it starts"
    )]
    Sync { source: sqlx::Error },
    #[error("cannot delete {}", .file.display())]
    Delete { file: PathBuf, source: std::io::Error },
    #[error("cannot open the SQLite file {}", .file.display())]
    OpenFile { file: PathBuf, source: sqlx::Error },
    #[error("cannot bring the schema up to date")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error("the database failed while {doing}")]
    Database { doing: &'static str, source: sqlx::Error },
    #[error("the database did not answer in time while {doing}")]
    TimedOut { doing: &'static str },
    #[error("the database warned while {doing}: {warning}")]
    Warned { doing: &'static str, warning: String },
    #[error("the database took longer than the {} s that a read may take, while {doing}", .time_out.as_secs_f64())]
    TooSlow { doing: &'static str, time_out: Duration },
    #[error("an earlier append has no answer yet; it has to be resolved first")]
    Unresolved,
    #[error("the journal is damaged at the batch with first seq {first_seq}")]
    Damaged { first_seq: u64, source: Corrupt },
    #[error("the journal ends at {found}, but the batch belongs after {expected}: another history")]
    Diverged { expected: Position, found: Position },
    #[error(
        "{0}: restore the journal, or accept the loss; docs/operations.md#a-journal-that-has-lost-its-end says how"
    )]
    HistoryLost(HistoryLost),
    #[error("the projections know the market up to {found}, not {expected}: others write them")]
    Overtaken { expected: u64, found: u64 },
    #[error("a row of {table} cannot be understood: {what}")]
    Row { table: &'static str, what: String },
}

impl Fault {
    /// Returns whether the same may go well in a moment: the database is away, or is about to become the primary.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Standby { .. }
            | Self::Database { .. }
            | Self::TimedOut { .. }
            | Self::Warned { .. } => true,
            Self::Url
            | Self::TooOld { .. }
            | Self::Unsafe { .. }
            | Self::Encoding { .. }
            | Self::InUse { .. }
            | Self::Lock { .. }
            | Self::Delete { .. }
            | Self::Prepare { .. }
            | Self::Remains { .. }
            | Self::Displaced { .. }
            | Self::Sync { .. }
            | Self::OpenFile { .. }
            | Self::Migrate(_)
            | Self::TooSlow { .. }
            | Self::Unresolved
            | Self::Damaged { .. }
            | Self::Diverged { .. }
            | Self::HistoryLost(_)
            | Self::Overtaken { .. }
            | Self::Row { .. } => false,
        }
    }

    /// Returns a function for `map_err`.
    pub(crate) fn database(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Database { doing, source }
    }
}

/// The damage of a row of the journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    #[error("its batch is broken")]
    Batch(#[from] DecodeError),
    #[error("its columns say seqs {first_seq} to {last_seq}, its batch something else")]
    Columns { first_seq: u64, last_seq: u64 },
    #[error("seq {expected} is missing before it")]
    Gap { expected: u64 },
    #[error("it was written after another batch than the one before it")]
    Chain,
}
