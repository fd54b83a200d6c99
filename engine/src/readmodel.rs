//! Readable tables beside the journal: bids, allocations, events, price changes, charges.
//!
//! They follow off the ack path, know up to which command they are (the watermark), and can be
//! dropped and rebuilt at any time: the journal is the truth. What commits bring is folded into rows
//! here, purely; the SQL is in the store.

pub(crate) mod bars;
pub(crate) mod fields;
pub(crate) mod fold;
pub mod packs;
pub mod placed;
mod projector;
pub mod queries;
mod rebuild;
mod replayed;
pub mod rows;

pub use rebuild::{RebuildError, rebuild};

use crate::chunk::Chunk;
use crate::health::Health;
use crate::progress::Reaching;
use crate::store::projections::Tables;
pub use crate::store::projections::{BarPage, BidPage, EventPage};
use crate::store::{Fault, Store};
use kubebid_core::units::{MarketName, Micros};
use projector::Projector;
use std::sync::Arc;
use tokio::sync::mpsc;

/// What can be asked of the tables. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Projections {
    pub(crate) tables: Tables,
    store: Store,
    watermark: u64,
}

impl Projections {
    pub(crate) async fn open(store: &Store) -> Result<Projections, Fault> {
        let tables = store.tables();
        let watermark = tables.watermark().await?;
        Ok(Projections { tables, store: store.clone(), watermark })
    }

    /// The last command they knew when they were opened.
    pub(crate) fn watermark(&self) -> u64 {
        self.watermark
    }

    /// Writes what comes until nothing comes any more.
    pub(crate) async fn run(
        self,
        chunks: mpsc::UnboundedReceiver<Arc<Chunk>>,
        projected: Reaching,
        health: Health,
    ) -> Result<(), Fault> {
        Projector::new(&self.store, chunks, projected, health).run().await
    }

    /// When the market was opened.
    pub(crate) async fn opened_at(&self, market: &MarketName) -> Result<Micros, Fault> {
        let opened_at = self.market_opened_at(market).await?;
        opened_at.ok_or_else(|| Fault::Row { table: "markets", what: format!("there is no {market}") })
    }
}
