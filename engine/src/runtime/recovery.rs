//! From the store to a running exchange: the newest snapshot, then the journal behind it.

mod ahead;

pub use ahead::{Commands, ReadAhead, command_of};

use crate::chunk::Chunk;
use crate::progress::Reached;
use crate::projections::Projections;
use crate::reference;
use crate::replay::{BEHAVIOUR, Replay};
use crate::store::record::Position;
use crate::store::{Fault, Snapshot, Store};
use crate::view::{Publisher, Views};
use kubebid_core::codec::DecodeError;
use kubebid_core::units::{MarketId, Micros};
use kubebid_core::{Auction, Exchange};
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::{info, warn};

/// Why the exchange could not be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("record {seq} was written under behaviour {version}, this program knows {BEHAVIOUR}")]
    Behaviour { seq: u64, version: u16 },
    #[error("record {seq} is not a command: {source}")]
    Record { seq: u64, source: DecodeError },
}

/// The exchange as the newest snapshot has it that is usable and contains nothing behind `seq`; an empty one
/// where there is none.
pub(crate) async fn from_snapshot(store: &Store, seq: u64) -> Result<(Replay, Position), Fault> {
    let mut up_to = Some(seq);
    while let Some(seq) = up_to {
        let Some(snapshot) = store.snapshots().load_up_to(seq).await? else { break };
        let after = snapshot.after;
        // It takes a while, and others want the thread too.
        let restored = tokio::task::spawn_blocking(move || restore(&snapshot));
        match restored.await.expect("restoring does not panic") {
            Ok(exchange) => {
                info!(seq = after.seq, "restored a snapshot");
                return Ok((Replay::new(exchange), after));
            }
            Err(why) => warn!(seq = after.seq, why, "a snapshot is skipped"),
        }
        up_to = after.seq.checked_sub(1);
    }
    Ok((Replay::new(Exchange::new()), Position::START))
}

fn restore(snapshot: &Snapshot) -> Result<Exchange, String> {
    let exchange = Exchange::restore(&snapshot.body).map_err(|error| error.to_string())?;
    if exchange.state_hash().to_le_bytes()[..] != snapshot.state_hash[..] {
        return Err("its state has another hash".to_owned());
    }
    Ok(exchange)
}

/// A chunk with more hourly bills than that waits until the projections have all before it: chunks are counted by their
/// commands otherwise.
pub(crate) const MANY_BILLS: usize = 10_000;

/// The way of chunks to the projections, for one who replays.
pub(crate) struct ToProjections {
    pub(crate) chunks: mpsc::UnboundedSender<Arc<Chunk>>,
    /// The last command that they had when they were opened.
    pub(crate) watermark: u64,
    pub(crate) projected: Reached,
    /// Commands that they may lag behind; then the replay waits for them.
    pub(crate) lag: u64,
}

impl ToProjections {
    /// Where they have ended there is nothing to wait for; the chunk is lost on them.
    pub(crate) async fn send(&mut self, chunk: Arc<Chunk>) {
        let before = chunk.first_seq().0 - 1;
        let lag = if chunk.hourly_bills() > MANY_BILLS { 0 } else { self.lag };
        self.projected.wait(before.saturating_sub(lag)).await;
        let _ = self.chunks.send(chunk);
    }
}

/// The exchange on its way along the journal, with all that is published of it.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) replay: Replay,
    pub(crate) publisher: Publisher,
    pub(crate) position: Position,
    reader: ReadAhead,
}

impl Follower {
    /// As the newest snapshot has it that contains nothing behind what the projections had when they were opened.
    pub(crate) async fn begin(
        store: &Store,
        projections: &Projections,
        views: Arc<Views>,
    ) -> Result<Follower, Fault> {
        let (mut replay, position) = from_snapshot(store, projections.watermark()).await?;
        let mut publisher = Publisher::new(views);
        recall(projections, &replay, &mut publisher).await?;
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

    /// Applies some of the journal, and returns what of it lies behind `watermark`; none at the journal's end.
    pub(crate) async fn next(&mut self, watermark: u64) -> Result<Option<Vec<Arc<Chunk>>>, RecoveryError> {
        let batches = self.reader.next().await?;
        if batches.is_empty() {
            return Ok(None);
        }
        let mut chunks = Vec::new();
        for Commands { commands, end } in batches {
            let steps = self.replay.steps(commands);
            steps.iter().for_each(|step| self.publisher.note(&step.events));
            self.publisher.publish(&mut self.replay.exchange);
            self.position = end;
            if end.seq > watermark {
                let chunk = Chunk::gather(steps, &self.replay.exchange, self.publisher.names());
                chunks.push(Arc::new(chunk));
            }
        }
        Ok(Some(chunks))
    }

    /// Applies the rest of the journal; what the projections do not have yet goes to them.
    pub(crate) async fn catch_up(&mut self, projections: &mut ToProjections) -> Result<(), RecoveryError> {
        while let Some(chunks) = self.next(projections.watermark).await? {
            for chunk in chunks {
                projections.send(chunk).await;
            }
        }
        info!(seq = self.position.seq, "the journal is replayed");
        Ok(())
    }
}

/// Recalls the prices that count for the reference price, for markets that the snapshot knows.
async fn recall(projections: &Projections, replay: &Replay, publisher: &mut Publisher) -> Result<(), Fault> {
    let exchange = &replay.exchange;
    let since = Micros(exchange.now().0.saturating_sub(reference::WINDOW.0));
    for market in 0..exchange.names().markets.len() as u32 {
        let (market, name) = (MarketId(market), exchange.names().market(MarketId(market)));
        publisher.open(market, projections.opened_at(name).await?);
        for (at, numbers) in projections.prices_since(name, since, exchange.seq()).await? {
            publisher.recall(market, at, &numbers);
        }
    }
    Ok(())
}
