//! Makes the tables again, from the whole journal.

use super::projector::Projector;
use crate::chunk::Chunk;
use crate::recovery::{RecoveryError, replay_batch};
use crate::replay::Replay;
use crate::store::record::Position;
use crate::store::{Fault, Store, StoreOptions};
use kubebid_core::units::Names;
use kubebid_core::{Auction, Exchange};
use std::sync::Arc;

/// Why the tables could not be made again. They can be tried again; an engine that starts goes on from
/// where they are.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error(transparent)]
    Journal(#[from] RecoveryError),
}

/// Empties the tables and fills them again; `progress` hears of how many commands how many are done. On
/// SQLite no engine may run; on Postgres one may, and its projections wait meanwhile.
pub async fn rebuild(options: &StoreOptions, mut progress: impl FnMut(u64, u64)) -> Result<(), RebuildError> {
    let store = Store::open(options).await?;
    let tables = store.tables();
    let total = store.journal().head().await?.seq;
    tables.clear().await?;
    let mut projector = Projector::new(tables);
    let mut replay = Replay::new(Exchange::new());
    let mut names = Arc::new(Names::default());
    let mut reader = store.journal().read_after(Position::START);
    let mut waiting = Vec::new();
    loop {
        let batches = reader.next_chunk().await?;
        let is_end = batches.is_empty();
        for batch in batches {
            let steps = replay_batch(&mut replay, &batch)?;
            let known = replay.exchange.names();
            if (known.accounts.len(), known.markets.len()) != (names.accounts.len(), names.markets.len()) {
                names = Arc::new(known.clone());
            }
            waiting.push(Arc::new(Chunk::gather(steps, &replay.exchange, names.clone())));
            if !projector.takes_more(&waiting) {
                progress(projector.write(&waiting, gives_up).await?, total);
                waiting.clear();
            }
        }
        if is_end {
            break;
        }
    }
    progress(projector.write(&waiting, gives_up).await?, total);
    store.close().await;
    Ok(())
}

/// An engine that writes beside us is no reason to: together we get there.
fn gives_up(fault: &Fault) -> bool {
    !matches!(fault, Fault::Overtaken { .. })
}
