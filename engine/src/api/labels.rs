//! Labels of bids: rows beside the journal, written before a bid is answered.
//!
//! The labels of a bid are noted on the exchange's thread at the moment the bid is placed. One task
//! writes all noted labels, many bids at a time, also for callers that have gone.
//!
//! Labels are part of what a client key stands for, but not of the command. A repeated request is
//! compared with the labels that were noted or written. If the first request reached an engine that
//! failed before it could write them, the repeated request brings them.

use super::{Api, PATIENCE};
use crate::auth::caller::Caller;
use crate::events::commit::Commit;
use crate::store::{Labels, Rows};
use crate::wire::status::{ApiError, Code};
use kubebid_core::Reject;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tracing::warn;

/// The number of bids whose labels are written at a time.
const AT_A_TIME: usize = 1000;
/// The time to wait before a store that failed is asked again.
const RETRY: Duration = Duration::from_millis(200);
/// The time for which a search by labels waits for labels that are being written. That takes
/// milliseconds, unless the store is in trouble.
const REASON: Duration = Duration::from_secs(1);

/// Labels that belong to bids and may not be rows yet.
#[derive(Debug)]
pub(super) struct PendingLabels {
    /// The last command before this process started. The labels of bids up to it may be missing.
    inherited: u64,
    bids: Mutex<BTreeMap<u64, Labels>>,
    noted: Arc<Notify>,
    /// Changes whenever labels are written.
    written: watch::Sender<()>,
}

impl PendingLabels {
    /// Starts the task that writes what is noted. It ends when the returned value is dropped.
    pub(super) fn start(inherited: u64, rows: Rows) -> Arc<PendingLabels> {
        let (noted, written) = (Arc::new(Notify::new()), watch::Sender::new(()));
        let pending_labels = Arc::new(PendingLabels { inherited, bids: Mutex::default(), noted, written });
        tokio::spawn(write(Arc::downgrade(&pending_labels), rows, pending_labels.noted.clone()));
        pending_labels
    }

    /// Notes the labels of a bid that was just placed. Runs on the exchange's thread.
    pub(super) fn note(&self, bid: u64, labels: Labels) {
        self.bids().insert(bid, labels);
        self.noted.notify_one();
    }

    fn bids(&self) -> MutexGuard<'_, BTreeMap<u64, Labels>> {
        self.bids.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits until the noted labels no longer satisfy `like_this`.
    async fn until_not(&self, like_this: impl Fn(&BTreeMap<u64, Labels>) -> bool) {
        let mut written = self.written.subscribe();
        while like_this(&self.bids()) && written.changed().await.is_ok() {}
    }
}

impl Drop for PendingLabels {
    /// Wakes the writing task, which finds nothing left to do and ends.
    fn drop(&mut self) {
        self.noted.notify_one();
    }
}

async fn write(pending_labels: Weak<PendingLabels>, rows: Rows, noted: Arc<Notify>) {
    loop {
        noted.notified().await;
        loop {
            let Some(pending_labels) = pending_labels.upgrade() else { return };
            let some: Vec<(u64, Labels)> = {
                let bids = pending_labels.bids();
                bids.iter().take(AT_A_TIME).map(|(bid, labels)| (*bid, labels.clone())).collect()
            };
            if some.is_empty() {
                break;
            }
            match rows.put_labels(some.iter().map(|(bid, labels)| (*bid, labels))).await {
                Ok(()) => {
                    let mut bids = pending_labels.bids();
                    some.iter().for_each(|(bid, _)| drop(bids.remove(bid)));
                    drop(bids);
                    pending_labels.written.send_replace(());
                }
                Err(fault) => {
                    warn!(error = %fault, "labels could not be written");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

impl Api {
    /// Waits until the labels of a bid that was just placed are written.
    pub(super) async fn labels_kept(&self, caller: &Caller, bid: u64) -> Result<(), ApiError> {
        let written = self.0.pending_labels.until_not(|bids| bids.contains_key(&bid));
        within(caller.deadline.unwrap_or_else(|| Instant::now() + PATIENCE), written).await
    }

    /// Waits until the labels of all bids up to this one can be found in the store, for at most
    /// [`REASON`]. A search by labels must not miss a bid whose labels are just being written.
    pub(super) async fn labels_written(&self, up_to: u64) {
        let written = self
            .0
            .pending_labels
            .until_not(|bids| bids.first_key_value().is_some_and(|(bid, _)| *bid <= up_to));
        // If they are still not written, the watch goes on without them.
        let _ = within(Instant::now() + REASON, written).await;
    }

    /// Returns the labels of the bids that a commit is about. They are read once for all watches by
    /// labels.
    pub(super) async fn labels_in<'a>(
        &self,
        commit: &'a Commit,
    ) -> Result<&'a BTreeMap<u64, Labels>, ApiError> {
        let read = async |bids: Vec<u64>| {
            self.labels_written(commit.last_seq().0).await;
            Ok(self.rows().labels_of(&bids).await?)
        };
        commit.labels(read).await
    }

    /// Compares the labels of a repeated request with those of the bid that the first one placed.
    pub(super) async fn compare_labels(
        &self,
        caller: &Caller,
        bid: u64,
        given: &Labels,
    ) -> Result<(), ApiError> {
        let noted = self.0.pending_labels.bids().get(&bid).cloned();
        let kept = match noted {
            Some(noted) => noted,
            None => self.rows().labels_of(&[bid]).await?.remove(&bid).unwrap_or_default(),
        };
        if kept.is_empty() && !given.is_empty() && bid <= self.0.pending_labels.inherited {
            self.0.pending_labels.note(bid, given.clone());
        } else if kept != *given {
            let said = "the client_key was used with other labels";
            return Err(ApiError::new(Code::Market(Reject::KeyConflict)).saying(said));
        }
        self.labels_kept(caller, bid).await
    }
}

async fn within(deadline: Instant, written: impl Future<Output = ()>) -> Result<(), ApiError> {
    tokio::time::timeout_at(deadline.into(), written).await.map_err(|_| {
        let said =
            "the bid is placed, but its labels are not kept yet; repeat it with its client_key to learn";
        ApiError::new(Code::Unavailable).saying(said)
    })
}
