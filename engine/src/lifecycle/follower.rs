//! Replays the journal with everything that is published of it. A starting engine and a standby use it.

use crate::events::commit::Commit;
use crate::readmodel::{MANY_BILLS, ReadModel};
use crate::runtime::progress::Reached;
use crate::runtime::recovery::{Commands, ReadAhead, RecoveryError, from_snapshot};
use crate::runtime::reference_price;
use crate::runtime::replay::Replay;
use crate::runtime::views::{Publisher, Views};
use crate::store::record::Position;
use crate::store::{Fault, Store};
use kubebid_core::Auction;
use kubebid_core::units::{MarketId, Micros};
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::info;

/// The channel to the projector, for an engine that replays.
pub(crate) struct ToProjections {
    pub(crate) commits: mpsc::UnboundedSender<Arc<Commit>>,
    /// The watermark of the tables when they were opened.
    pub(crate) watermark: u64,
    pub(crate) projected: Reached,
    /// The number of commands that the projections may lag behind. If they lag more, the replay waits
    /// for them.
    pub(crate) lag: u64,
}

impl ToProjections {
    /// Sends a commit to the projector. Waits first if the projector lags too far behind. Drops the
    /// commit if the projector has ended.
    pub(crate) async fn send(&mut self, commit: Arc<Commit>) {
        let before = commit.first_seq().0 - 1;
        let lag = if commit.hourly_bills() > MANY_BILLS { 0 } else { self.lag };
        self.projected.wait(before.saturating_sub(lag)).await;
        let _ = self.commits.send(commit);
    }
}

/// The exchange as it is replayed from the journal, with everything that is published of it.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) replay: Replay,
    pub(crate) publisher: Publisher,
    pub(crate) position: Position,
    reader: ReadAhead,
}

impl Follower {
    /// Starts from the newest snapshot that has nothing after the watermark of the read model.
    pub(crate) async fn begin(
        store: &Store,
        read_model: &ReadModel,
        views: Arc<Views>,
    ) -> Result<Follower, Fault> {
        let (mut replay, position) = from_snapshot(store, read_model.watermark()).await?;
        let mut publisher = Publisher::new(views);
        recall(read_model, &replay, &mut publisher).await?;
        publisher.publish(&mut replay.exchange);
        Ok(Follower {
            replay,
            publisher,
            position,
            reader: ReadAhead::new(store.journal().read_after(position)),
        })
    }

    pub(crate) fn seq(&self) -> u64 {
        self.position.seq
    }

    /// Applies some of the journal. Returns the commits after `watermark`, or None at the journal's
    /// end.
    pub(crate) async fn next(&mut self, watermark: u64) -> Result<Option<Vec<Arc<Commit>>>, RecoveryError> {
        let batches = self.reader.next().await?;
        if batches.is_empty() {
            return Ok(None);
        }
        let mut commits = Vec::new();
        for Commands { commands, end } in batches {
            let steps = self.replay.steps(commands);
            steps.iter().for_each(|step| self.publisher.note(&step.events));
            self.publisher.publish(&mut self.replay.exchange);
            self.position = end;
            if end.seq > watermark {
                let commit = Commit::gather(steps, &self.replay.exchange, self.publisher.names());
                commits.push(Arc::new(commit));
            }
        }
        Ok(Some(commits))
    }

    /// Applies the rest of the journal, and sends the projections what they do not have yet.
    pub(crate) async fn catch_up(&mut self, projections: &mut ToProjections) -> Result<(), RecoveryError> {
        while let Some(commits) = self.next(projections.watermark).await? {
            for commit in commits {
                projections.send(commit).await;
            }
        }
        info!(seq = self.position.seq, "the journal is replayed");
        Ok(())
    }
}

/// Reads back the prices that the reference price needs, for markets that the snapshot has.
async fn recall(read_model: &ReadModel, replay: &Replay, publisher: &mut Publisher) -> Result<(), Fault> {
    let exchange = &replay.exchange;
    let since = Micros(exchange.now().0.saturating_sub(reference_price::WINDOW.0));
    for market in 0..exchange.names().markets.len() as u32 {
        let (market, name) = (MarketId(market), exchange.names().market(MarketId(market)));
        publisher.open(market, read_model.opened_at(name).await?);
        for (at, numbers) in read_model.prices_since(name, since, exchange.seq()).await? {
            publisher.recall(market, at, &numbers);
        }
    }
    Ok(())
}
