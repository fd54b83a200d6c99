//! Durable storage: the journal, its snapshots, the lease, and the rows of accounts, tokens, labels and data of nodes.
//!
//! Two databases are supported: PostgreSQL 15 and newer, and SQLite for an engine that needs nothing
//! installed. Their differences are in one trait with two implementations, `database.rs`; everything else
//! is the same SQL on both.
//!
//! # How the journal stays one history
//!
//! A table of one row, `leader`, holds an *epoch*. A program that wants to append takes the row: it
//! raises the epoch, and writes its own name as the holder. Every append is a single statement. It adds
//! its row only if the epoch is still the writer's, the journal ends just before the batch, and the batch
//! was made after the hash that the journal ends with. A writer that was overtaken adds nothing, and
//! learns that it is [fenced](AppendError::Fenced).
//!
//! The statement keeps the epoch from changing until it is durable (`FOR SHARE` in PostgreSQL; SQLite has
//! one writer at a time anyway). A program that takes the row therefore waits for running appends, and
//! every append of an earlier epoch fails afterwards. In this way an append without an answer is
//! [resolved](JournalWriter::resolve): the writer takes the row again. After that
//!
//! - what it had sent before is either in the journal or can never get there, however late it reaches the
//!   database, because its epoch is over;
//! - if it is in the journal it is durable, because taking the row was a later commit.
//!
//! So re-reading the end of the journal gives an answer that stays true.
//!
//! The [lease](Lease), and nothing else, decides which engine may try to lead while another one does. A
//! wrong decision costs a change of the leader, never a command.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::AnyPool;
use uuid::Uuid;

use database::Database;
use postgres::Postgres;
use reads::Reads;
use rows::Fence;
use sqlite::Sqlite;

mod accounts;
mod append;
pub(crate) mod bulk;
mod clock;
mod copy;
pub(crate) mod database;
mod fault;
mod history;
mod instance_types;
mod journal;
mod labels;
mod lease;
mod migrations;
mod node_data;
mod postgres;
mod reader;
pub(crate) mod reads;
pub mod record;
pub(crate) mod rows;
pub(crate) mod select;
mod session;
mod snapshot;
mod sqlite;
mod tokens;
mod wal;
mod warnings;

pub use accounts::{Account, Limits, Role, UnknownRole};
pub use append::{AppendError, JournalWriter, Refused, Resolution};
pub use clock::ClockMark;
pub use copy::copy_sqlite;
pub use fault::{Corrupt, Fault};
pub use history::HistoryLost;
pub use instance_types::InstanceType;
pub use journal::{BatchReader, Journal};
pub use labels::Labels;
pub use lease::{Lease, LeaseCondition, ObservedLease};
pub use node_data::{NodeData, NodeDataKey, NodeDataKind};
pub use reader::{GrantError, grant_reader};
pub use record::{Batch, BatchBuilder, BatchHash, Position, Record};
pub use rows::Rows;
pub use snapshot::{Snapshot, Snapshots};
pub use sqlite::{Replacement, forget_sqlite, log_of_sqlite};
pub use tokens::{NewToken, Token};

/// The number of connections for the journal's readers, snapshots, accounts and tokens. They do not wait
/// for reads of the tables, however many of those there are.
const OWN_CONNECTIONS: u32 = 4;

/// The location of a store, and its time-outs.
#[derive(Clone)]
pub struct StoreOptions {
    /// The location.
    pub location: StoreLocation,
    /// The time to wait for the database. An append without an answer after this time is
    /// [unknown](AppendError::Unknown).
    pub patience: Duration,
    /// The number of connections that read the tables. The journal, accounts and writes have their
    /// own.
    pub connections: u32,
    /// Makes a new store in a file even if the write-ahead log of an earlier one is there.
    pub over_remains: bool,
    /// The time that a read of the tables may take in the database.
    pub read_time_out: Duration,
}

/// The location of a store.
#[derive(Clone)]
pub enum StoreLocation {
    /// A `postgres://` URL. It may hold a password, so it is never shown.
    Postgres(String),
    /// The path of the database file. It is created if it is missing.
    Sqlite(PathBuf),
}

impl StoreOptions {
    /// Returns the defaults: a patience of 10 s, 8 connections for reads of at most 10 s, and no new
    /// store beside the remains of an earlier one.
    pub fn new(location: StoreLocation) -> Self {
        let (patience, read_time_out) = (Duration::from_secs(10), Duration::from_secs(10));
        Self { location, patience, connections: 8, over_remains: false, read_time_out }
    }

    /// Reads `postgres://…`, `postgresql://…` or `sqlite:PATH`.
    pub fn from_url(url: &str) -> Result<Self, Fault> {
        let location = if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            StoreLocation::Postgres(url.to_owned())
        } else if let Some(path) = url.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
            StoreLocation::Sqlite(path.strip_prefix("//").unwrap_or(path).into())
        } else {
            return Err(Fault::Url);
        };
        Ok(Self::new(location))
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = match &self.location {
            StoreLocation::Postgres(_) => "postgres://…".to_owned(),
            StoreLocation::Sqlite(path) => format!("sqlite:{}", path.display()),
        };
        f.debug_struct("StoreOptions")
            .field("location", &location)
            .field("patience", &self.patience)
            .field("connections", &self.connections)
            .field("read_time_out", &self.read_time_out)
            .finish()
    }
}

impl fmt::Debug for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(_) => f.write_str("Postgres(…)"),
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
        }
    }
}

/// An open store. Cheap to clone. A SQLite file is released with the last clone and the last writer.
#[derive(Debug, Clone)]
pub struct Store {
    database: Arc<dyn Database>,
    journal: Journal,
    snapshots: Snapshots,
    rows: Rows,
    reads: Reads,
    fence: Fence,
}

/// The right to append, and everything that a writer starts with.
#[derive(Debug)]
pub struct Leadership {
    /// The writer, with its own connection.
    pub writer: Box<dyn JournalWriter>,
    /// The end of the journal; the first batch follows it.
    pub head: Position,
    /// The lease to renew, if one was taken and the store has leases.
    pub lease: Option<Lease>,
}

impl Store {
    /// Opens the store for an engine: brings the schema up to date and, the first time, gives the
    /// journal its UUID.
    ///
    /// # Errors
    /// Besides faults of the database: a PostgreSQL that is older than 15 or could lose what it has
    /// acknowledged, a SQLite file that another engine has open, and a schema that is newer than this
    /// program. A write-ahead log beside the SQLite file that belongs to another file.
    pub async fn open(options: &StoreOptions) -> Result<Self, Fault> {
        let database: Arc<dyn Database> = match &options.location {
            StoreLocation::Postgres(url) => Arc::new(Postgres::new(url, options.patience)?),
            StoreLocation::Sqlite(path) => {
                Arc::new(Sqlite::to_own(path, options.over_remains, options.patience).await?)
            }
        };
        let mut connection = database.connect().await?;
        // Not `run`, whose future cannot be boxed (rust-lang/rust#110338).
        database.migrations().run_direct(None, &mut *connection, false).await.map_err(Fault::Migrate)?;
        let naming = "giving the journal its UUID";
        sqlx::query(
            "INSERT INTO leader (one, journal, epoch, holder) VALUES (1, $1, 0, '') ON CONFLICT DO NOTHING",
        )
        .bind(Uuid::new_v4().to_string())
        .execute(&mut *connection)
        .await
        .map_err(Fault::database(naming))?;
        if database.has_lease() {
            lease::lay_out(&mut connection).await?;
        }
        connection.close().await.map_err(Fault::database(naming))?;

        let pool = database.pool(OWN_CONNECTIONS).await?;
        let reads = database.reads(options.connections, options.read_time_out).await?;
        let journal = Journal::open(pool.clone()).await?;
        let snapshots = Snapshots::new(pool.clone(), database.turn().clone());
        let fence = Fence::default();
        let (turn, dialect) = (database.turn().clone(), database.dialect());
        let rows = Rows::new(pool, reads.clone(), turn, dialect, fence.clone());
        Ok(Self { database, journal, snapshots, rows, reads, fence })
    }

    /// Takes the right to append. Every earlier writer is fenced from here on. The lease stays as it
    /// is.
    pub async fn lead(&self) -> Result<Leadership, Fault> {
        let led = self.fenced(append::lead(Arc::clone(&self.database), None).await?);
        led.ok_or_else(|| Fault::Row { table: "leader", what: "there is none".to_owned() })
    }

    /// Takes the lease for `length` together with the right to append. Returns None, and takes
    /// neither, if the lease may not be taken. If the store has no lease, takes only the right to
    /// append.
    pub async fn lead_by_lease(
        &self,
        taking: LeaseCondition,
        length: Duration,
    ) -> Result<Option<Leadership>, Fault> {
        let lease = self.has_lease().then_some((taking, length));
        Ok(self.fenced(append::lead(Arc::clone(&self.database), lease).await?))
    }

    /// Lets the rows beside the journal be written only as long as this leadership lasts.
    fn fenced(&self, led: Option<(Leadership, Uuid)>) -> Option<Leadership> {
        let (leadership, holder) = led?;
        self.fence.lead_as(holder);
        Some(leadership)
    }

    /// Returns the journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the connections for everything but the journal's writer and reads of the tables.
    pub(crate) fn pool(&self) -> &AnyPool {
        self.journal.pool()
    }

    pub(crate) fn reads(&self) -> &Reads {
        &self.reads
    }

    pub(crate) fn database(&self) -> &Arc<dyn Database> {
        &self.database
    }

    /// Returns the snapshots.
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// Returns the rows of accounts, tokens, labels and instance types.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Closes the connections of this store and of its clones. Writers have their own. A SQLite file is complete
    /// without its log afterwards.
    ///
    /// # Errors
    /// See [`Store::complete_file`].
    pub async fn close(&self) -> Result<(), Fault> {
        self.journal.close().await;
        self.reads.close().await;
        self.complete_file().await
    }

    /// Puts everything that was written into the SQLite file, so that a copy of the file alone is complete. Does
    /// nothing on PostgreSQL.
    ///
    /// # Errors
    /// Another program reads the file and keeps its log in use, or the disk failed. Nothing is lost: the file is
    /// complete together with its log.
    pub async fn complete_file(&self) -> Result<(), Fault> {
        self.database.complete_file().await
    }
}

impl Journal {
    /// Opens a journal only to read. It takes no lock and changes nothing, and works while an engine
    /// has the store open.
    pub async fn open_to_read(options: &StoreOptions) -> Result<Self, Fault> {
        let pool = match &options.location {
            StoreLocation::Postgres(url) => {
                Postgres::new(url, options.patience)?.pool(options.connections).await?
            }
            StoreLocation::Sqlite(path) => {
                let sqlite = Sqlite::found_to_read(path, options.patience).await?;
                sqlite.pool(options.connections).await?
            }
        };
        Self::open(pool).await
    }
}

/// Returns one of our own numbers as the databases store it.
fn bigint(number: u64) -> i64 {
    i64::try_from(number).expect("seqs, times and ids are below 2^63")
}

/// Returns a number that a caller asks for, limited to what the databases store. Our own numbers never
/// come near 2^63, so a larger number finds as little, and limits as much, as the largest one.
fn sought(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
