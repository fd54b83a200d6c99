//! Restores a SQLite store from a backup.

use crate::runtime::recovery::{RecoveryError, command_of};
use crate::store::{Fault, Journal, Position, Replacement, Store, StoreLocation, StoreOptions, copy_sqlite};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Why a backup was not restored. Nothing is changed then.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The store is not a SQLite file.
    #[error("a store in PostgreSQL is restored by pg_restore")]
    NotAFile,
    /// A store is in the place already.
    #[error("a store is at {} already", .0.display())]
    Occupied(PathBuf),
    /// The store failed, the backup is damaged, or an engine has the place.
    #[error(transparent)]
    Store(#[from] Fault),
    /// A record of the backup is not a command of this program.
    #[error(transparent)]
    Journal(#[from] RecoveryError),
}

/// A restored store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The end of its journal.
    pub end: Position,
    /// The UUID of the journal in the backup.
    pub old: Uuid,
    /// The UUID that it has in the store.
    pub new: Uuid,
    /// The path to which the store that was there is moved.
    pub aside: Option<PathBuf>,
}

/// Makes a store of a backup: copies the backup, checks every batch and record of the copy, gives its journal another
/// UUID, and puts it in place only then. With `aside`, moves a store that is in the place aside; otherwise refuses to
/// replace it.
///
/// # Errors
/// [`RestoreError`]. Whatever was in the place is there as before.
pub async fn restore(options: &StoreOptions, backup: &Path, aside: bool) -> Result<Restored, RestoreError> {
    let StoreLocation::Sqlite(path) = &options.location else { return Err(RestoreError::NotAFile) };
    let place = Replacement::at(path)?;
    if place.is_occupied() && !aside {
        return Err(RestoreError::Occupied(path.clone()));
    }
    let draft = place.draft()?;
    copy_sqlite(backup, &draft, options.patience).await?;
    let options = StoreOptions { location: StoreLocation::Sqlite(draft), ..options.clone() };
    let restored = make(&options).await;
    let (end, (old, new)) = match restored {
        Ok(restored) => restored,
        Err(error) => {
            place.draft()?;
            return Err(error);
        }
    };
    Ok(Restored { end, old, new, aside: place.put()? })
}

/// Checks the journal of the copy, and gives it another UUID.
async fn make(options: &StoreOptions) -> Result<(Position, (Uuid, Uuid)), RestoreError> {
    let journal = Journal::open_to_read(options).await?;
    let mut reader = journal.read_from(1);
    loop {
        let batches = reader.next_chunk().await?;
        if batches.is_empty() {
            break;
        }
        for record in batches.iter().flat_map(|batch| batch.records()) {
            command_of(record)?;
        }
    }
    drop(journal);
    let store = Store::open(options).await?;
    let end = store.journal().head().await?;
    let renamed = store.rename_journal().await;
    store.close().await?;
    let names =
        renamed?.ok_or_else(|| Fault::Row { table: "leader", what: "another program has it".to_owned() })?;
    Ok((end, names))
}
