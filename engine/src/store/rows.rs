//! The rows beside the journal that are not part of the market, one file for each kind.

use std::fmt::Write;
use std::sync::Arc;

use sqlx::any::AnyRow;
use sqlx::{AnyPool, ColumnIndex, Row};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::reads::Reads;

/// Accounts, tokens, labels and instance types. Cheap to clone.
///
/// Texts may not contain a NUL character: PostgreSQL cannot store it.
#[derive(Debug, Clone)]
pub struct Rows {
    pub(super) pool: AnyPool,
    /// Connections for reads of labels.
    pub(super) reads: Reads,
    pub(super) turn: Turn,
    pub(super) parameters: Parameters,
}

impl Rows {
    pub(crate) fn new(pool: AnyPool, reads: Reads, turn: Turn, parameters: Parameters) -> Self {
        Self { pool, reads, turn, parameters }
    }
}

/// The form of parameters in long statements.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Parameters {
    /// `$1`, the only form of PostgreSQL.
    Numbered,
    /// `?`. SQLite takes numbers too, but it searches all earlier ones for each: with thousands of them that takes
    /// longer than the statement.
    InOrder,
}

impl Parameters {
    /// `count` of them in parentheses, the first of which is the `first` of the statement, from 1.
    pub(crate) fn list(self, first: usize, count: usize) -> String {
        let mut list = "(".to_owned();
        for n in first..first + count {
            let comma = if n == first { "" } else { ", " };
            match self {
                Self::Numbered => write!(list, "{comma}${n}"),
                Self::InOrder => write!(list, "{comma}?"),
            }
            .expect("a string takes it");
        }
        list.push(')');
        list
    }
}

/// The turn to write. SQLite has one writer at a time and lets the others poll; the writers of one process queue
/// here instead, in order, so that a batch of the journal waits for one short write at most. PostgreSQL needs no
/// queue.
#[derive(Debug, Clone)]
pub(crate) struct Turn(Option<Arc<Mutex<()>>>);

impl Turn {
    pub(crate) fn free() -> Self {
        Self(None)
    }

    pub(crate) fn one_at_a_time() -> Self {
        Self(Some(Arc::default()))
    }

    /// Waits for the turn; it is over when the guard is dropped. Nobody waits for anything but the
    /// database while holding it.
    pub(crate) async fn take(&self) -> Option<OwnedMutexGuard<()>> {
        match &self.0 {
            Some(mutex) => Some(Arc::clone(mutex).lock_owned().await),
            None => None,
        }
    }
}

/// A column that is a number of ours.
pub(crate) fn number<I: ColumnIndex<AnyRow>>(row: &AnyRow, column: I) -> u64 {
    row.get::<i64, _>(column) as u64
}

/// A column that may be a number of ours.
pub(crate) fn optional_number<I: ColumnIndex<AnyRow>>(row: &AnyRow, column: I) -> Option<u64> {
    row.get::<Option<i64>, _>(column).map(|number| number as u64)
}
