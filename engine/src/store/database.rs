//! The interface to a database: what PostgreSQL and SQLite do differently.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::AnyPool;
use sqlx::migrate::Migrator;

use super::Fault;
use super::bulk::BulkWriter;
use super::reads::Reads;
use super::rows::{Dialect, Turn};
use super::session::Connection;

/// A place with a database, and its dialect.
#[async_trait]
pub(crate) trait Database: fmt::Debug + Send + Sync {
    /// A connection for the journal's writer, with all that durability needs set and checked. What earlier ones have
    /// left at the server is ended first.
    async fn connect(&self) -> Result<Connection, Fault>;

    /// Connections for reads of the tables, each of which may take so long.
    async fn reads(&self, connections: u32, time_out: Duration) -> Result<Reads, Fault>;

    /// Connections for everything else.
    async fn pool(&self, connections: u32) -> Result<AnyPool, Fault>;

    /// A connection for the rows of the projections.
    async fn bulk_writer(&self) -> Result<Box<dyn BulkWriter>, Fault>;

    /// Commands whose rows may share a transaction; the journal waits for it where there is one writer.
    fn commands_at_once(&self) -> usize;

    /// Returns how long rows are gathered between transactions that have room: they cost a server that the journal
    /// shares.
    fn rest(&self) -> Duration;

    fn migrations(&self) -> Migrator;

    /// The statement that appends: $1 epoch, $2 first seq, $3 last seq, $4 hash, $5 batch, $6 hash of
    /// the batch before. It adds its row, or none when the epoch or the journal's end is another, and
    /// keeps the epoch from changing until the row is durable.
    fn append(&self) -> &'static str;

    /// Returns whether engines wait for each other here: there is a table `lease`.
    fn has_lease(&self) -> bool;

    /// The statement that begins a transaction that writes.
    fn begin(&self) -> &'static str;

    /// Returns whether a statement that ended like this has certainly changed nothing.
    fn surely_not_committed(&self, error: &sqlx::Error) -> bool;

    /// Returns whether a statement that ended like this leaves nothing to go on with: what it wrote may not be on
    /// the disk, and asking again would not tell.
    fn is_lost(&self, _error: &sqlx::Error) -> bool {
        false
    }

    /// Returns whether the store is still where it was opened.
    fn is_in_place(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// The same after a commit, when all that it wrote has to be there.
    fn has_its_log(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Returns the form of parameters in long statements.
    fn dialect(&self) -> Dialect;

    /// The queue of those who write.
    fn turn(&self) -> &Turn;

    /// Returns how long we wait for an answer.
    fn patience(&self) -> Duration;
}
