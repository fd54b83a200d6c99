//! The journal's commands as chunks, replayed on an exchange of its own.

use crate::chunk::Chunk;
use crate::recovery::{Commands, ReadAhead, RecoveryError, from_snapshot};
use crate::replay::Replay;
use crate::store::record::Position;
use crate::store::{Fault, Store};
use kubebid_core::units::Names;
use kubebid_core::{Auction, Exchange};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Replays the journal and returns it in chunks, one for each batch.
#[derive(Debug)]
pub(super) struct Replayed {
    /// None only while it is replaying.
    market: Option<Market>,
    reader: ReadAhead,
    /// Chunks up to this command are left out.
    after: u64,
}

#[derive(Debug)]
struct Market {
    replay: Replay,
    names: Arc<Names>,
}

impl Replayed {
    /// From the journal's first command on.
    pub(super) fn from_start(store: &Store) -> Replayed {
        Replayed::new(store, Replay::new(Exchange::new()), Position::START, 0)
    }

    /// From the command after `after` on, which has to be the last one of a batch.
    pub(super) async fn after(store: &Store, after: u64) -> Result<Replayed, Fault> {
        let (replay, position) = from_snapshot(store, after).await?;
        Ok(Replayed::new(store, replay, position, after))
    }

    fn new(store: &Store, replay: Replay, position: Position, after: u64) -> Replayed {
        let names = Arc::new(replay.exchange.names().clone());
        let reader = ReadAhead::new(store.journal().read_after(position));
        Replayed { market: Some(Market { replay, names }), reader, after }
    }

    /// Returns the next chunks in order, or None at the journal's end. There may be more chunks later on.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Arc<Chunk>>>, RecoveryError> {
        let batches = self.reader.next().await?;
        if batches.is_empty() {
            return Ok(None);
        }
        let (mut market, after) = (self.market.take().expect("nothing else replays"), self.after);
        // It takes a while, and others want the thread too.
        let replayed = spawn_blocking(move || {
            let chunks = batches.into_iter().filter_map(|batch| market.chunk(batch, after)).collect();
            (market, chunks)
        });
        let (market, chunks) = replayed.await.expect("replaying what was applied does not panic");
        self.market = Some(market);
        Ok(Some(chunks))
    }
}

impl Market {
    /// Applies a batch. Returns its chunk, or None if the chunk is to be left out.
    fn chunk(&mut self, Commands { commands, end }: Commands, after: u64) -> Option<Arc<Chunk>> {
        let steps = self.replay.steps(commands);
        if end.seq <= after {
            return None;
        }
        let known = self.replay.exchange.names();
        let sizes = |names: &Names| (names.accounts.len(), names.markets.len());
        if sizes(known) != sizes(&self.names) {
            self.names = Arc::new(known.clone());
        }
        Some(Arc::new(Chunk::gather(steps, &self.replay.exchange, self.names.clone())))
    }
}
