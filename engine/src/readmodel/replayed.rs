//! Replays the journal into commits on an exchange of its own.

use crate::events::commit::Commit;
use crate::runtime::recovery::{Commands, ReadAhead, RecoveryError, from_snapshot};
use crate::runtime::replay::Replay;
use crate::store::record::Position;
use crate::store::{Fault, Store};
use kubebid_core::units::Names;
use kubebid_core::{Auction, Exchange};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Replays the journal and returns it in commits, one for each batch.
#[derive(Debug)]
pub(crate) struct Replayed {
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
    /// Starts at the journal's first command.
    pub(crate) fn from_start(store: &Store) -> Replayed {
        Replayed::new(store, Replay::new(Exchange::new()), Position::START, 0)
    }

    /// Starts after the command `after`, which must be the last one of a batch.
    pub(crate) async fn after(store: &Store, after: u64) -> Result<Replayed, Fault> {
        let (replay, position) = from_snapshot(store, after).await?;
        Ok(Replayed::new(store, replay, position, after))
    }

    fn new(store: &Store, replay: Replay, position: Position, after: u64) -> Replayed {
        let names = Arc::new(replay.exchange.names().clone());
        let reader = ReadAhead::new(store.journal().read_after(position));
        Replayed { market: Some(Market { replay, names }), reader, after }
    }

    /// Returns the next commits in order, or None at the journal's end. There may be more commits later on.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Arc<Commit>>>, RecoveryError> {
        let batches = self.reader.next().await?;
        if batches.is_empty() {
            return Ok(None);
        }
        let (mut market, after) = (self.market.take().expect("nothing else replays"), self.after);
        // Replaying takes a while, and other tasks need the thread.
        let replayed = spawn_blocking(move || {
            let commits = batches.into_iter().filter_map(|batch| market.commit(batch, after)).collect();
            (market, commits)
        });
        let (market, commits) = replayed.await.expect("replaying what was applied does not panic");
        self.market = Some(market);
        Ok(Some(commits))
    }
}

impl Market {
    /// Applies a batch. Returns its commit, or None if the commit is to be left out.
    fn commit(&mut self, Commands { commands, end }: Commands, after: u64) -> Option<Arc<Commit>> {
        let steps = self.replay.steps(commands);
        if end.seq <= after {
            return None;
        }
        let known = self.replay.exchange.names();
        let sizes = |names: &Names| (names.accounts.len(), names.markets.len());
        if sizes(known) != sizes(&self.names) {
            self.names = Arc::new(known.clone());
        }
        Some(Arc::new(Commit::gather(steps, &self.replay.exchange, self.names.clone())))
    }
}
