//! Labels of bids: rows beside the journal, written before a bid is answered.
//!
//! Labels are part of what a client key stands for, but not of the command. A repeated request is
//! compared with the labels that were noted or written. If the first request reached an engine that
//! failed before it could write them, the repeated request brings them.

use super::Api;
use super::pending_rows::PendingRows;
use crate::auth::caller::Caller;
use crate::events::commit::Commit;
use crate::store::{Labels, Rows};
use crate::wire::status::{ApiError, Code};
use kubebid_core::Reject;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The time for which a search by labels waits for labels that are being written. That takes
/// milliseconds, unless the store is in trouble.
const REASON: Duration = Duration::from_secs(1);

/// Labels that belong to bids and may not be rows yet.
pub(super) type PendingLabels = PendingRows<u64, Labels>;

/// Starts the task that writes labels.
pub(super) fn start(inherited: u64, rows: Rows) -> Arc<PendingLabels> {
    PendingRows::start("labels", inherited, move |labels: Vec<(u64, Labels)>| {
        let rows = rows.clone();
        async move { rows.put_labels(labels.iter().map(|(bid, labels)| (*bid, labels))).await }
    })
}

impl Api {
    /// Waits until the labels of all bids up to this one can be found in the store, for at most
    /// [`REASON`]. A search by labels must not miss a bid whose labels are just being written.
    pub(super) async fn labels_written(&self, up_to: u64) {
        let written = self
            .0
            .pending_labels
            .until_not(|bids| bids.first_key_value().is_some_and(|(bid, _)| *bid <= up_to));
        // If they are still not written, the watch goes on without them.
        let _ = tokio::time::timeout(REASON, written).await;
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
        let pending_labels = &self.0.pending_labels;
        let kept = match pending_labels.get(&bid) {
            Some(noted) => noted,
            None => self.rows().labels_of(&[bid]).await?.remove(&bid).unwrap_or_default(),
        };
        if kept.is_empty() && !given.is_empty() && bid <= pending_labels.inherited {
            pending_labels.note(bid, given.clone());
        } else if kept != *given {
            let said = "the client_key was used with other labels";
            return Err(ApiError::new(Code::Market(Reject::KeyConflict)).saying(said));
        }
        pending_labels.kept(caller, &bid).await
    }
}
