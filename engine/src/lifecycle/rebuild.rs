//! Rebuilds the tables of the read model from the whole journal.

use crate::readmodel::MANY_BILLS;
use crate::readmodel::projector::Projector;
use crate::readmodel::replayed::Replayed;
use crate::readmodel::retention::Retention;
use crate::readmodel::sql::Tables;
use crate::runtime::health::Health;
use crate::runtime::progress;
use crate::runtime::recovery::RecoveryError;
use crate::store::{Fault, Store, StoreOptions};
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
    #[error("an engine leads on this store: stop it first, for what it is asked meanwhile it would not find")]
    Led,
}

/// Empties the tables and fills them again; `hear` is told of how many commands how many are done. No engine
/// may lead on the store.
pub async fn rebuild(options: &StoreOptions, mut hear: impl FnMut(u64, u64)) -> Result<(), RebuildError> {
    let store = Store::open(options).await?;
    if store.is_led().await? {
        return Err(RebuildError::Led);
    }
    let tables = Tables::of(&store);
    let total = store.journal().head().await?.seq;
    tables.clear().await?;
    // Those of a history that is lost keep an engine from starting.
    store.snapshots().forget_foreign().await?;
    let (commits, to_project) = mpsc::unbounded_channel();
    let (projected, done) = progress::from(0);
    // An engine that starts drops what it does not keep.
    let projector = Projector::new(&store, Retention::default(), to_project, projected, Health::default());
    let projector = tokio::spawn(projector.run());
    let mut replayed = Replayed::from_start(&store);
    let mut stopped = false;
    while !stopped && let Some(more) = replayed.next().await? {
        for commit in more {
            let seq = commit.last_seq().0;
            let ahead = if commit.hourly_bills() > MANY_BILLS { 0 } else { AHEAD };
            let _ = commits.send(commit);
            let wanted = seq.saturating_sub(ahead);
            let done = done.wait(wanted).await;
            stopped = done < wanted;
            hear(done, total);
        }
    }
    // All but the last rows are there, and these are tried once.
    drop(commits);
    projector.await.expect("the projector does not panic")?;
    hear(total, total);
    store.close().await;
    Ok(())
}
