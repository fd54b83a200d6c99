//! Rows beside the journal that belong to commands and may not be written yet.
//!
//! A row is noted after its command was committed, before the commit is delivered. One task writes all
//! noted rows, many at a time, also for callers that have gone.

use super::PATIENCE;
use crate::auth::caller::Caller;
use crate::store::Fault;
use crate::wire::status::{ApiError, Code};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tracing::warn;

/// The number of rows that are written at a time.
const AT_A_TIME: usize = 1000;
/// The time to wait before a store that failed is asked again.
const RETRY: Duration = Duration::from_millis(200);

/// Noted rows of one kind, by the number or name of what they belong to.
pub(super) struct PendingRows<K, V> {
    /// The name of the rows in messages, as in "labels".
    what: &'static str,
    /// The last command before this process started. The rows of commands up to it may be missing.
    pub(super) inherited: u64,
    rows: Mutex<BTreeMap<K, V>>,
    noted: Arc<Notify>,
    /// Changes whenever rows are written.
    written: watch::Sender<()>,
}

impl<K, V> PendingRows<K, V>
where
    K: Ord + Clone + Send + 'static,
    V: Clone + PartialEq + Send + 'static,
{
    /// Starts the task that writes what is noted. It ends when the returned value is dropped.
    pub(super) fn start<W, F>(what: &'static str, inherited: u64, write: W) -> Arc<PendingRows<K, V>>
    where
        W: Fn(Vec<(K, V)>) -> F + Send + 'static,
        F: Future<Output = Result<(), Fault>> + Send + 'static,
    {
        let (noted, written) = (Arc::new(Notify::new()), watch::Sender::new(()));
        let rows = Mutex::new(BTreeMap::new());
        let pending_rows = Arc::new(PendingRows { what, inherited, rows, noted, written });
        tokio::spawn(write_noted(Arc::downgrade(&pending_rows), write, pending_rows.noted.clone()));
        pending_rows
    }

    /// Notes a row. A row that is noted already is replaced.
    pub(super) fn note(&self, key: K, value: V) {
        self.note_unless(key, value, |_| false);
    }

    /// Notes a row, unless `stays` returns true for the row that is noted already.
    pub(super) fn note_unless(&self, key: K, value: V, stays: impl FnOnce(&V) -> bool) {
        let mut rows = self.rows();
        if !rows.get(&key).is_some_and(stays) {
            rows.insert(key, value);
        }
        drop(rows);
        self.noted.notify_one();
    }

    /// Returns a row that is noted and may not be written yet.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.rows().get(key).cloned()
    }

    /// Waits until the noted rows no longer satisfy `like_this`.
    pub(super) async fn until_not(&self, mut like_this: impl FnMut(&BTreeMap<K, V>) -> bool) {
        let mut written = self.written.subscribe();
        while like_this(&self.rows()) && written.changed().await.is_ok() {}
    }

    /// Waits until the row of a command is written, or until the caller's deadline.
    pub(super) async fn kept(&self, caller: &Caller, key: &K) -> Result<(), ApiError> {
        let deadline = caller.deadline.unwrap_or_else(|| Instant::now() + PATIENCE);
        let written = self.until_not(|rows| rows.contains_key(key));
        tokio::time::timeout_at(deadline.into(), written).await.map_err(|_| {
            let said = format!(
                "the command is executed, but its {} are not kept yet; repeat it with its client_key to learn",
                self.what
            );
            ApiError::new(Code::Unavailable).saying(said)
        })
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<K, V>> {
        self.rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Drops rows that are written, except those that were replaced meanwhile.
    fn forget(&self, written: &[(K, V)]) {
        let mut rows = self.rows();
        for (key, value) in written {
            if rows.get(key) == Some(value) {
                rows.remove(key);
            }
        }
        drop(rows);
        self.written.send_replace(());
    }
}

impl<K, V> fmt::Debug for PendingRows<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRows").field("what", &self.what).finish_non_exhaustive()
    }
}

impl<K, V> Drop for PendingRows<K, V> {
    /// Wakes the writing task, which finds nothing left to do and ends.
    fn drop(&mut self) {
        self.noted.notify_one();
    }
}

async fn write_noted<K, V, W, F>(pending_rows: Weak<PendingRows<K, V>>, write: W, noted: Arc<Notify>)
where
    K: Ord + Clone + Send + 'static,
    V: Clone + PartialEq + Send + 'static,
    W: Fn(Vec<(K, V)>) -> F,
    F: Future<Output = Result<(), Fault>>,
{
    loop {
        noted.notified().await;
        loop {
            let Some(pending_rows) = pending_rows.upgrade() else { return };
            let some: Vec<(K, V)> = {
                let rows = pending_rows.rows();
                rows.iter().take(AT_A_TIME).map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            if some.is_empty() {
                break;
            }
            match write(some.clone()).await {
                Ok(()) => pending_rows.forget(&some),
                Err(fault) => {
                    warn!(error = %fault, "{} could not be written", pending_rows.what);
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}
