//! The tables of the projections: how rows get there, and how they are found.
//!
//! Rows and watermark move in one transaction, and only from the watermark that the rows continue: so
//! each command's rows get there once, whoever writes and however often. Where the tables are found to
//! have lost something, the projector folds it again from the journal, which is the truth.

use std::fmt;
use std::sync::Arc;

use sqlx::AnyPool;

use super::Store;
use super::database::Database;

mod allocations;
mod bids;
mod bulk;
mod charges;
mod events;
mod postgres;
mod prices;
mod reads;
mod select;
mod sqlite;
mod statement;
mod tables;
mod watermark;
mod words;

pub use bids::BidPage;
pub(super) use bulk::Change;
pub use events::EventPage;
pub(super) use postgres::PostgresTables;
pub use prices::BarPage;
pub(super) use reads::Reads;
pub(super) use select::Select;
pub(super) use sqlite::SqliteTables;
pub(crate) use tables::Changes;
pub(crate) use watermark::{Writer, Written};

/// The tables of a store. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    /// For the watermark, and for the rows of an engine that begins.
    pool: AnyPool,
    reads: Reads,
    database: Arc<dyn Database>,
}

impl Store {
    pub(crate) fn tables(&self) -> Tables {
        Tables {
            pool: self.journal.pool().clone(),
            reads: self.reads.clone(),
            database: Arc::clone(&self.database),
        }
    }
}

/// One who writes rows, on a connection of its own.
#[async_trait::async_trait]
pub(super) trait Rowwise: fmt::Debug + Send {
    /// Makes the changes and moves the watermark, all or nothing. Where the watermark is not `before`,
    /// nothing changes and what it is is returned.
    async fn write(
        &mut self,
        before: u64,
        after: u64,
        changes: &[Change],
    ) -> Result<Option<u64>, sqlx::Error>;
}
