//! From the store to a running exchange: the newest snapshot, then the journal behind it.

use crate::chunk::{Chunk, Step};
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

/// The exchange as a snapshot has it, or an empty one.
pub(crate) fn restore(snapshot: Option<Snapshot>) -> (Replay, Position) {
    let Some(snapshot) = snapshot else { return (Replay::new(Exchange::new()), Position::START) };
    match Exchange::restore(&snapshot.body) {
        Ok(exchange) if exchange.state_hash().to_le_bytes()[..] == snapshot.state_hash[..] => {
            info!(seq = snapshot.after.seq, "restored the snapshot");
            (Replay::new(exchange), snapshot.after)
        }
        Ok(_) => {
            warn!(
                seq = snapshot.after.seq,
                "the snapshot's state has another hash; replaying the whole journal"
            );
            (Replay::new(Exchange::new()), Position::START)
        }
        Err(error) => {
            warn!(seq = snapshot.after.seq, %error, "the snapshot cannot be read; replaying the whole journal");
            (Replay::new(Exchange::new()), Position::START)
        }
    }
}

/// Applies the journal behind `position`; what the projections do not have yet goes to them.
/// Returns the journal's end.
pub(crate) async fn catch_up(
    store: &Store,
    replay: &mut Replay,
    mut position: Position,
    publisher: &mut Publisher,
    projected: u64,
    projections: &mpsc::UnboundedSender<Arc<Chunk>>,
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
            if batch.last_seq() > projected {
                let chunk = Chunk::gather(steps, &replay.exchange, publisher.names());
                let _ = projections.send(Arc::new(chunk));
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
