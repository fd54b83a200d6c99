//! Faults of the database.

use std::path::PathBuf;
use std::time::Duration;

use sqlx::migrate::MigrateError;

use super::HistoryLost;
use super::record::{DecodeError, Position};

/// A fault of the store. It names what the engine was doing; no caller's input is the cause.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The URL of the store is neither of PostgreSQL nor of SQLite.
    #[error("the store's URL has to be postgres://… or sqlite:PATH")]
    Url,
    /// The server does not answer, or refuses the connection.
    #[error("cannot connect to PostgreSQL at {server}")]
    Connect {
        /// Host, port and database.
        server: String,
        /// The driver's error.
        source: sqlx::Error,
    },
    /// The server is older than PostgreSQL 15.
    #[error("PostgreSQL at {server} has version {version}, KubeBid needs 15 or newer")]
    TooOld {
        /// Host, port and database.
        server: String,
        /// The version of the server.
        version: String,
    },
    /// A setting of the server could lose commits that were acknowledged.
    #[error(
        "PostgreSQL at {server} has {setting} = {value}: it could lose what it has acknowledged, \
         so KubeBid does not start on it"
    )]
    Unsafe {
        /// Host, port and database.
        server: String,
        /// The name of the setting, such as `fsync`.
        setting: &'static str,
        /// Its value.
        value: String,
    },
    /// The database does not store texts as UTF-8.
    #[error("the database at {server} has encoding {encoding}, KubeBid needs UTF8")]
    Encoding {
        /// Host, port and database.
        server: String,
        /// The encoding of the database.
        encoding: String,
    },
    /// The server is a standby of PostgreSQL and takes no writes.
    #[error("PostgreSQL at {server} is a standby that only reads, KubeBid needs the primary")]
    Standby {
        /// Host, port and database.
        server: String,
    },
    /// Another engine has the SQLite file open.
    #[error("another engine has {} open (it holds {})", .file.display(), .lock.display())]
    InUse {
        /// The database file.
        file: PathBuf,
        /// The lock file that the other engine holds.
        lock: PathBuf,
    },
    /// The lock file cannot be created or locked.
    #[error("cannot lock {}", .lock.display())]
    Lock {
        /// The lock file.
        lock: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The SQLite file cannot be created, or its mode cannot be set.
    #[error("cannot prepare {}", .file.display())]
    Prepare {
        /// The database file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The SQLite file is missing, but its write-ahead log is there: the file was probably lost.
    #[error(
        "{} is missing, and its write-ahead log {} is there: put the file back; a new store is made in its place with \
         --new-store", .file.display(), .log.display()
    )]
    Remains {
        /// The database file.
        file: PathBuf,
        /// The write-ahead log.
        log: PathBuf,
    },
    /// The write-ahead log beside a SQLite file is not the file's.
    #[error(
        "{} does not belong to {}: {why}. Nothing was changed. If the file is a backup, `kubebid restore` puts it in \
         place; docs/operations.md#a-sqlite-file-and-its-log says more", .log.display(), .file.display()
    )]
    ForeignLog {
        /// The database file.
        file: PathBuf,
        /// The write-ahead log.
        log: PathBuf,
        /// The evidence, in words.
        why: String,
    },
    /// A SQLite file is not complete without its write-ahead log, because another program has it open.
    #[error(
        "another program reads {}: it is complete only together with its log {}", .file.display(), .log.display()
    )]
    LogRemains {
        /// The database file.
        file: PathBuf,
        /// The write-ahead log.
        log: PathBuf,
    },
    /// The SQLite file was removed or replaced while the engine had it open.
    #[error(
        "{} was removed or replaced while the engine had it open: what came last may be in no file. End all that \
         touches it, put the file back, and start again", .file.display()
    )]
    Displaced {
        /// The file that is not the one that was opened.
        file: PathBuf,
    },
    /// A sync failed. What was written last may not be on the disk.
    #[error(
        "the disk could not keep what was written; the engine ends, and goes on from what is there when it starts"
    )]
    Sync {
        /// The driver's error.
        source: sqlx::Error,
    },
    /// A file of the store cannot be deleted.
    #[error("cannot delete {}", .file.display())]
    Delete {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The SQLite file cannot be opened.
    #[error("cannot open the SQLite file {}", .file.display())]
    OpenFile {
        /// The database file.
        file: PathBuf,
        /// The driver's error.
        source: sqlx::Error,
    },
    /// A migration failed, or the schema is newer than this program.
    #[error("{}", in_words(.0))]
    Migrate(MigrateError),
    /// A statement failed.
    #[error("the database failed while {doing}")]
    Database {
        /// The action of the engine, as in "reading a market".
        doing: &'static str,
        /// The driver's error.
        source: sqlx::Error,
    },
    /// The database did not answer within the patience of the store.
    #[error("the database did not answer in time while {doing}")]
    TimedOut {
        /// The action of the engine.
        doing: &'static str,
    },
    /// A commit succeeded with a warning that a standby of the database may not have it.
    #[error("the database warned while {doing}: {warning}")]
    Warned {
        /// The action of the engine.
        doing: &'static str,
        /// The server's warning.
        warning: String,
    },
    /// A read took longer than it may.
    #[error("the database took longer than the {} s that a read may take, while {doing}", .time_out.as_secs_f64())]
    TooSlow {
        /// The action of the engine.
        doing: &'static str,
        /// The time that a read may take.
        time_out: Duration,
    },
    /// The writer has an append without an answer, and takes no other one before it is resolved.
    #[error("an earlier append has no answer yet; it has to be resolved first")]
    Unresolved,
    /// Another engine leads, so what this one would write beside the journal counts no more.
    #[error("another engine has taken over; nothing was written")]
    Deposed,
    /// A row of the journal is damaged. Nothing after it can be replayed.
    #[error("the journal is damaged at the batch with first seq {first_seq}")]
    Damaged {
        /// The number of the first command of the batch.
        first_seq: u64,
        /// The fault in the row.
        source: Corrupt,
    },
    /// The journal was changed by another program, or restored while the engine ran.
    #[error("the journal ends at {found}, but the batch belongs after {expected}: another history")]
    Diverged {
        /// The position that the batch follows.
        expected: Position,
        /// The journal's end.
        found: Position,
    },
    /// The journal lacks commands that the tables or snapshots have.
    #[error(
        "{0}: restore the journal, or accept the loss; docs/operations.md#a-journal-that-has-lost-its-end says how"
    )]
    HistoryLost(HistoryLost),
    /// Another program writes the readable tables as well.
    #[error("the projections know the market up to {found}, not {expected}: others write them")]
    Overtaken {
        /// The watermark that the rows follow.
        expected: u64,
        /// The watermark of the tables.
        found: u64,
    },
    /// A row cannot be decoded, or is missing.
    #[error("a row of {table} cannot be understood: {what}")]
    Row {
        /// The table.
        table: &'static str,
        /// The fault in the row.
        what: String,
    },
}

impl Fault {
    /// Returns true if the same may succeed in a moment: the database does not answer, or is about to
    /// become the primary.
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
            | Self::ForeignLog { .. }
            | Self::LogRemains { .. }
            | Self::Displaced { .. }
            | Self::Sync { .. }
            | Self::OpenFile { .. }
            | Self::Migrate(_)
            | Self::TooSlow { .. }
            | Self::Unresolved
            | Self::Deposed
            | Self::Damaged { .. }
            | Self::Diverged { .. }
            | Self::HistoryLost(_)
            | Self::Overtaken { .. }
            | Self::Row { .. } => false,
        }
    }

    /// Returns true if the database may be away for a while. A database that refuses this program, because of a wrong
    /// password or name, is there.
    pub(crate) fn is_away(&self) -> bool {
        if let Self::Connect { source, .. } | Self::Database { source, .. } = self
            && let Some(error) = source.as_database_error()
        {
            // 08 connection exceptions, 53300 too many connections, 57P shutdowns and starts.
            let is_away = |code: &str| code.starts_with("08") || code.starts_with("57P") || code == "53300";
            return error.code().is_some_and(|code| is_away(&code));
        }
        self.passes()
    }

    /// Returns a function for `map_err` that makes a fault of the driver's error.
    pub(crate) fn database(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Database { doing, source }
    }
}

/// Says what is wrong with the schema of a store, and what to do.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the driver adds variants, and its words are good enough for them"
)]
fn in_words(error: &MigrateError) -> String {
    match error {
        MigrateError::VersionMissing(change) => format!(
            "the store has the schema change {change}, which this program does not know: a newer KubeBid has opened it. \
             Start that one, or restore a backup from before the upgrade"
        ),
        MigrateError::VersionMismatch(change) => format!(
            "the schema change {change} of the store is not this program's: another build has made the store. Start that \
             one, or begin with a new store"
        ),
        MigrateError::Dirty(change) => format!(
            "the schema change {change} of the store was begun and not completed: restore a backup from before the upgrade"
        ),
        MigrateError::ExecuteMigration(error, change) => {
            format!("the schema change {change} failed, and the schema is as before: {error}")
        }
        MigrateError::Execute(error) => format!("cannot bring the schema up to date: {error}"),
        other => format!("cannot bring the schema up to date: {other}"),
    }
}

/// The damage of a row of the journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// The batch cannot be decoded.
    #[error("its batch is broken")]
    Batch(#[from] DecodeError),
    /// The numbers in the columns are not those of the batch.
    #[error("its columns say seqs {first_seq} to {last_seq}, its batch something else")]
    Columns {
        /// The first number in the columns.
        first_seq: u64,
        /// The last number in the columns.
        last_seq: u64,
    },
    /// Commands are missing before the batch.
    #[error("seq {expected} is missing before it")]
    Gap {
        /// The first missing number.
        expected: u64,
    },
    /// The batch does not contain the hash of the previous batch.
    #[error("it was written after another batch than the one before it")]
    Chain,
}
