//! The read model: readable tables of bids, allocations, events, price changes and charges.
//!
//! The tables are written after a command is answered. Their watermark is the last command whose rows they have. They can be
//! dropped and rebuilt at any time, because the journal is the truth. Commits are folded into rows here; the SQL is in `sql/`.

pub(crate) mod bars;
mod cuts;
pub(crate) mod event_matches;
pub(crate) mod fold;
pub(crate) mod projector;
pub mod queries;
pub(crate) mod replayed;
pub mod retention;
pub mod rows;
pub(crate) mod sql;

use crate::events::commit::Commit;
pub use crate::readmodel::sql::{BarPage, BidPage, BilledPage, EventPage, TABLES};
use crate::runtime::health::Health;
use crate::runtime::progress::Reaching;
use crate::store::{Fault, Store};
use kubebid_core::units::{MarketName, Micros};
use projector::Projector;
use retention::Retention;
use sql::Tables;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The number of hourly bills above which a commit waits until the projections have everything before it.
/// Other commits are counted by their commands.
pub(crate) const MANY_BILLS: usize = 10_000;

/// The readable tables. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReadModel {
    pub(crate) tables: Tables,
    store: Store,
    watermark: u64,
}

impl ReadModel {
    pub(crate) async fn open(store: &Store) -> Result<ReadModel, Fault> {
        let tables = Tables::of(store);
        let watermark = tables.watermark().await?;
        Ok(ReadModel { tables, store: store.clone(), watermark })
    }

    /// Returns the last command that the tables had when they were opened.
    pub(crate) fn watermark(&self) -> u64 {
        self.watermark
    }

    /// Writes the rows of commits until the channel is closed, and drops rows that are no longer
    /// kept.
    pub(crate) async fn run(
        self,
        retention: Retention,
        commits: mpsc::UnboundedReceiver<Arc<Commit>>,
        projected: Reaching,
        health: Health,
    ) -> Result<(), Fault> {
        Projector::new(&self.store, retention, commits, projected, health).run().await
    }

    /// Returns when the market was opened.
    pub(crate) async fn opened_at(&self, market: &MarketName) -> Result<Micros, Fault> {
        let opened_at = self.market_opened_at(market).await?;
        opened_at.ok_or_else(|| Fault::Row { table: "markets", what: format!("there is no {market}") })
    }
}
