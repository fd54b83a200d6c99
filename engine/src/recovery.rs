//! From the store to a running exchange: the newest snapshot, then the journal behind it.

use crate::chunk::{Chunk, Step};
use crate::progress::Reached;
use crate::replay::{BEHAVIOUR, Replay};
use crate::store::record::{Batch, Position};
use crate::store::{Fault, Snapshot, Store};
use crate::view::Publisher;
use kubebid_core::codec::DecodeError;
use kubebid_core::{Exchange, Stamped};
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
    async fn send(&mut self, chunk: Chunk) {
        let before = chunk.first_seq().0 - 1;
        self.projected.wait(before.saturating_sub(self.lag)).await;
        let _ = self.chunks.send(Arc::new(chunk));
    }
}

/// Applies the journal behind `position`; what the projections do not have yet goes to them.
/// Returns the journal's end.
pub(crate) async fn catch_up(
    store: &Store,
    replay: &mut Replay,
    mut position: Position,
    publisher: &mut Publisher,
    projections: &mut ToProjections,
) -> Result<Position, RecoveryError> {
    let mut reader = store.journal().read_after(position);
    loop {
        let batches = reader.next_chunk().await?;
        if batches.is_empty() {
            info!(seq = position.seq, "the journal is replayed");
            return Ok(position);
        }
        for batch in batches {
            let steps = replay_batch(replay, &batch)?;
            steps.iter().for_each(|step| publisher.note(&step.events));
            publisher.publish(&mut replay.exchange);
            position = batch.end();
            if batch.last_seq() > projections.watermark {
                let chunk = Chunk::gather(steps, &replay.exchange, publisher.names());
                projections.send(chunk).await;
            }
        }
    }
}

pub(crate) fn replay_batch(replay: &mut Replay, batch: &Batch) -> Result<Vec<Step>, RecoveryError> {
    let mut steps = Vec::with_capacity(batch.count() as usize);
    for record in batch.records() {
        steps.push(replay.step(command_of(record)?));
    }
    Ok(steps)
}

/// The command that a record of the journal holds.
pub fn command_of(record: crate::store::record::Record<'_>) -> Result<Stamped, RecoveryError> {
    if record.version != BEHAVIOUR {
        return Err(RecoveryError::Behaviour { seq: record.seq, version: record.version });
    }
    Stamped::decode(record.payload).map_err(|source| RecoveryError::Record { seq: record.seq, source })
}
