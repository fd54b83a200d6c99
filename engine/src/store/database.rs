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

/// A database and its dialect.
#[async_trait]
pub(crate) trait Database: fmt::Debug + Send + Sync {
    /// Returns a connection for the journal's writer, with all settings that durability needs set and
    /// checked. Earlier sessions of this process that are still open at the server are ended first.
    async fn connect(&self) -> Result<Connection, Fault>;

    /// Returns connections for reads of the tables. Each statement may take `time_out`.
    async fn reads(&self, connections: u32, time_out: Duration) -> Result<Reads, Fault>;

    /// Returns connections for everything else.
    async fn pool(&self, connections: u32) -> Result<AnyPool, Fault>;

    /// Returns a writer for the rows of the read model, with its own connection.
    async fn bulk_writer(&self) -> Result<Box<dyn BulkWriter>, Fault>;

    /// Returns the number of commands whose rows may share a transaction. If the database has one
    /// writer at a time, the journal waits for that transaction.
    fn commands_at_once(&self) -> usize;

    /// Returns how long rows are gathered between transactions that are not full. Each transaction
    /// costs a server that the journal uses too.
    fn rest(&self) -> Duration;

    fn migrations(&self) -> Migrator;

    /// Returns the statement that appends: $1 epoch, $2 first seq, $3 last seq, $4 hash, $5 batch, $6
    /// hash of the previous batch. It adds its row, or none if the epoch or the journal's end is
    /// another one, and keeps the epoch from changing until the row is durable.
    fn append(&self) -> &'static str;

    /// Returns true if engines wait for each other on this database, by the table `lease`.
    fn has_lease(&self) -> bool;

    /// Returns the statement that begins a transaction that writes.
    fn begin(&self) -> &'static str;

    /// Returns true if a statement that ended with this error has certainly changed nothing.
    fn surely_not_committed(&self, error: &sqlx::Error) -> bool;

    /// Returns true if the store cannot be used after this error: what was written may not be on the
    /// disk, and repeating the statement would not tell.
    fn is_lost(&self, _error: &sqlx::Error) -> bool {
        false
    }

    /// Checks that the store is still where it was opened.
    fn is_in_place(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Checks the same after a commit, when everything that was written has to be there.
    fn has_its_log(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Puts everything that was written into the file of the store, so that the file alone is complete. Does
    /// nothing if the store is no file, or if it was only opened to read.
    ///
    /// # Errors
    /// Another program reads the file.
    async fn complete_file(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Returns the form of parameters in long statements.
    fn dialect(&self) -> Dialect;

    /// Returns the queue of the writers.
    fn turn(&self) -> &Turn;

    /// Returns the time to wait for an answer.
    fn patience(&self) -> Duration;
}
