//! The rows of the edge: what the engine remembers that is not the market's. One file a family.

use std::sync::Arc;

use sqlx::any::AnyRow;
use sqlx::{AnyPool, ColumnIndex, Row};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// Accounts, tokens, labels and instance types. Cheap to clone.
///
/// Texts may not contain a NUL character: PostgreSQL cannot store it.
#[derive(Debug, Clone)]
pub struct Rows {
    pub(super) pool: AnyPool,
    pub(super) turn: Turn,
}

impl Rows {
    pub(super) fn new(pool: AnyPool, turn: Turn) -> Self {
        Self { pool, turn }
    }
}

/// Who may write. SQLite has one writer at a time and lets the others poll; those of one process
/// queue here instead, in order, so that a batch of the journal waits for one short write at most.
/// Postgres needs no queue.
#[derive(Debug, Clone)]
pub(super) struct Turn(Option<Arc<Mutex<()>>>);

impl Turn {
    pub(super) fn free() -> Self {
        Self(None)
    }

    pub(super) fn one_at_a_time() -> Self {
        Self(Some(Arc::default()))
    }

    /// Waits for the turn; it is over when the guard is dropped. Nobody waits for anything but the
    /// database while holding it.
    pub(super) async fn take(&self) -> Option<OwnedMutexGuard<()>> {
        match &self.0 {
            Some(mutex) => Some(Arc::clone(mutex).lock_owned().await),
            None => None,
        }
    }
}

/// A column that is a number of ours.
pub(super) fn number<I: ColumnIndex<AnyRow>>(row: &AnyRow, column: I) -> u64 {
    row.get::<i64, _>(column) as u64
}

/// A column that may be a number of ours.
pub(super) fn optional_number<I: ColumnIndex<AnyRow>>(row: &AnyRow, column: I) -> Option<u64> {
    row.get::<Option<i64>, _>(column).map(|number| number as u64)
}
