//! The SQL of the read model's tables: how rows are written, and how they are found.
//!
//! The columns are listed in `schema.rs`. Rows and watermark move in one transaction, and only from the watermark that the rows continue: so
//! each command's rows get there once, whoever writes and however often. Where the tables are found to
//! have lost something, the projector folds it again from the journal, which is the truth.

use std::sync::Arc;

use sqlx::AnyPool;

use crate::store::Store;
use crate::store::database::Database;
use crate::store::reads::Reads;

mod allocations;
mod bids;
mod charges;
mod events;
mod prices;
mod schema;
mod statement;
mod tables;
mod watermark;
mod words;

pub use bids::BidPage;
pub use events::EventPage;
pub use prices::BarPage;
pub use schema::TABLES;
pub(crate) use tables::Changes;
pub(crate) use watermark::{Writer, Written};

/// The tables of a store. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    /// Connections for the watermark, and for the reads of an engine that starts.
    pool: AnyPool,
    reads: Reads,
    database: Arc<dyn Database>,
}

impl Tables {
    pub(crate) fn of(store: &Store) -> Tables {
        Tables {
            pool: store.pool().clone(),
            reads: store.reads().clone(),
            database: store.database().clone(),
        }
    }
}
