//! Makes the tables again, from the whole journal.

use super::projector::Projector;
use crate::chunk::Chunk;
use crate::progress;
use crate::recovery::{Commands, ReadAhead, RecoveryError};
use crate::replay::Replay;
use crate::store::record::Position;
use crate::store::{Fault, Store, StoreOptions};
use kubebid_core::units::Names;
use kubebid_core::{Auction, Exchange};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Commands that are replayed ahead of the tables.
const AHEAD: u64 = 20_000;

/// Why the tables could not be made again. They can be tried again; an engine that starts goes on from
/// where they are.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error(transparent)]
    Journal(#[from] RecoveryError),
}

/// Empties the tables and fills them again; `hear` is told of how many commands how many are done. On
/// SQLite no engine may run; on Postgres one may, and its projections wait meanwhile.
pub async fn rebuild(options: &StoreOptions, mut hear: impl FnMut(u64, u64)) -> Result<(), RebuildError> {
    let store = Store::open(options).await?;
    let tables = store.tables();
    let total = store.journal().head().await?.seq;
    tables.clear().await?;
    let (chunks, to_project) = mpsc::unbounded_channel();
    let (projected, done) = progress::from(0);
    let projector = tokio::spawn(Projector::new(tables, to_project, projected).run());
    let mut replay = Replay::new(Exchange::new());
    let mut names = Arc::new(Names::default());
    let mut reader = ReadAhead::new(store.journal().read_after(Position::START));
    let mut stopped = false;
    while !stopped {
        let batches = reader.next().await?;
        if batches.is_empty() {
            break;
        }
        for Commands { commands, end } in batches {
            let steps = replay.steps(commands);
            let known = replay.exchange.names();
            if (known.accounts.len(), known.markets.len()) != (names.accounts.len(), names.markets.len()) {
                names = Arc::new(known.clone());
            }
            let chunk = Chunk::gather(steps, &replay.exchange, names.clone());
            let _ = chunks.send(Arc::new(chunk));
            let seq = end.seq;
            let wanted = seq.saturating_sub(AHEAD);
            let done = done.wait(wanted).await;
            stopped = done < wanted;
            hear(done, total);
        }
    }
    // All but the last rows are there, and these are tried once.
    drop(chunks);
    projector.await.expect("the projector does not panic")?;
    hear(total, total);
    store.close().await;
    Ok(())
}
