//! The SQL of the read model's tables: how rows are written, and how they are found.
//!
//! The columns are listed in `schema.rs`. Rows and watermark change in one transaction, and only if the
//! watermark is the one that the rows follow. So the rows of each command are written once, however many
//! engines write them and how often. If the tables have lost rows, the projector folds them again from
//! the journal, which is the truth.

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
pub use charges::BilledPage;
pub use events::EventPage;
pub use prices::BarPage;
pub use schema::TABLES;
pub(crate) use tables::Changes;
pub(crate) use watermark::{WriteOutcome, Writer};

/// The tables of a store. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    /// The connections for the watermark, and for the reads of an engine that starts.
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
