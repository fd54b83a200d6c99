//! Saves a snapshot each time so many commands have been projected (`--snapshot-every`). It builds the state from the
//! last snapshot and the journal, so that the exchange takes no part.

use crate::runtime::progress::{Reached, Reaching};
use crate::runtime::recovery::{Commands, ReadAhead, RecoveryError, from_snapshot};
use crate::runtime::replay::Replay;
use crate::store::record::Position;
use crate::store::{Fault, Snapshot, Store};
use kubebid_core::Exchange;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

/// Saves the state of the exchange after this position of the journal.
pub(crate) async fn save(store: &Store, exchange: &Exchange, after: Position) -> Result<(), Fault> {
    save_it(store, &take(exchange, after)).await
}

fn take(exchange: &Exchange, after: Position) -> Snapshot {
    let state_hash = exchange.state_hash().to_le_bytes().to_vec();
    Snapshot { after, at_us: exchange.now().0, state_hash, body: exchange.snapshot() }
}

async fn save_it(store: &Store, snapshot: &Snapshot) -> Result<(), Fault> {
    store.snapshots().save(snapshot).await?;
    info!(seq = snapshot.after.seq, bytes = snapshot.body.len(), "saved a snapshot");
    Ok(())
}

/// The task that saves snapshots while the engine runs.
#[derive(Debug)]
pub(crate) struct Snapshotter {
    pub(crate) store: Store,
    /// The number of commands from one snapshot to the next.
    pub(crate) every: u64,
    /// The progress of the projections. A recovery uses no snapshot ahead of them, so none is saved.
    pub(crate) projected: Reached,
    /// The last command of the newest snapshot.
    pub(crate) saved: Reaching,
}

impl Snapshotter {
    /// Runs until the projections end.
    pub(crate) async fn run(self) {
        let mut due = self.saved.seq().saturating_add(self.every);
        loop {
            let seq = self.projected.wait(due).await;
            if seq < due {
                return;
            }
            match self.save_up_to(seq).await {
                Ok(seq) => {
                    self.saved.reach(seq);
                    due = seq.saturating_add(self.every);
                }
                Err(error) => {
                    warn!(seq, %error, "no snapshot could be saved; the next try is when the next is due");
                    due = seq.saturating_add(self.every);
                }
            }
        }
    }

    /// Saves a snapshot at the end of the batch that has this command, which is durable. Returns the
    /// last command of the snapshot.
    async fn save_up_to(&self, seq: u64) -> Result<u64, RecoveryError> {
        let (mut replay, mut position) = from_snapshot(&self.store, seq).await?;
        let mut reader = ReadAhead::new(self.store.journal().read_after(position));
        while position.seq < seq {
            let batches = reader.next().await?;
            if batches.is_empty() {
                break;
            }
            let replayed = spawn_blocking(move || replay_up_to(replay, position, batches, seq));
            (replay, position) = replayed.await.expect("replaying what was applied does not panic");
        }
        let taken = spawn_blocking(move || take(&replay.exchange, position));
        save_it(&self.store, &taken.await.expect("a snapshot can be taken")).await?;
        Ok(position.seq)
    }
}

fn replay_up_to(
    mut replay: Replay,
    mut position: Position,
    batches: Vec<Commands>,
    seq: u64,
) -> (Replay, Position) {
    for Commands { commands, end } in batches {
        if position.seq >= seq {
            break;
        }
        replay.steps(commands);
        position = end;
    }
    (replay, position)
}
