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

/// The number of commands that are replayed ahead of the tables.
const AHEAD: u64 = 20_000;

/// Why the tables could not be rebuilt. A rebuild can be repeated, and an engine that starts continues
/// from where the tables are.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Fault),
    /// The journal could not be replayed.
    #[error(transparent)]
    Journal(#[from] RecoveryError),
    /// An engine leads on the store.
    #[error("an engine leads on this store: stop it first, for what it is asked meanwhile it would not find")]
    Led,
}

/// Empties the tables and fills them again from the journal. Deletes the snapshots, labels and data of nodes of
/// commands that the journal has lost. Calls `report` with the number of commands
/// that are done and the number of all.
///
/// # Errors
/// [`RebuildError::Led`] if an engine leads on the store.
pub async fn rebuild(options: &StoreOptions, mut report: impl FnMut(u64, u64)) -> Result<(), RebuildError> {
    let store = Store::open(options).await?;
    if store.is_led().await? {
        return Err(RebuildError::Led);
    }
    let tables = Tables::of(&store);
    let total = store.journal().head().await?.seq;
    let common = store.last_common().await?;
    tables.clear().await?;
    // Snapshots of a lost history would keep an engine from starting.
    store.snapshots().forget_foreign().await?;
    store.forget_beyond_end(common).await?;
    let (commits, to_project) = mpsc::unbounded_channel();
    let (projected, done) = progress::from(0);
    // The rebuild keeps all rows. An engine that starts drops those that it does not keep.
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
            report(done, total);
        }
    }
    // All rows but the last ones are written. The last ones are tried only once.
    drop(commits);
    projector.await.expect("the projector does not panic")?;
    report(total, total);
    Ok(store.close().await?)
}
