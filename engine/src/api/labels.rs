//! The labels of bids: rows beside the journal, written before a bid is answered.
//!
//! They are part of what a client key stands for, but not of the command. A repeat is compared with what was kept:
//! with what this process is about to keep, where the first answer is still on its way or could not be given; and
//! where the first request came to an engine that fell before it could keep the labels, the repeat brings them.

use super::Api;
use crate::store::Labels;
use crate::wire::status::{ApiError, Code};
use kubebid_core::Reject;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Writing labels takes milliseconds, unless the store is in trouble.
const PATIENCE_STEP: Duration = Duration::from_millis(5);
const PATIENCE_TRIES: u32 = 200;

/// Labels that belong to bids and may not be rows yet.
#[derive(Debug)]
pub(super) struct Unwritten {
    /// The last command before this process: what it left behind may lack its labels.
    inherited: u64,
    bids: Mutex<BTreeMap<u64, Labels>>,
}

impl Unwritten {
    pub(super) fn new(inherited: u64) -> Unwritten {
        Unwritten { inherited, bids: Mutex::default() }
    }

    /// From here on the bid has these. Called on the exchange's thread.
    pub(super) fn expect(&self, bid: u64, labels: Labels) {
        self.bids().insert(bid, labels);
    }

    fn bids(&self) -> MutexGuard<'_, BTreeMap<u64, Labels>> {
        self.bids.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Api {
    /// Writes the labels of bids that were just placed. They stay expected until they are written.
    pub(super) async fn write_labels(&self, bids: &[(u64, &Labels)]) -> Result<(), ApiError> {
        if bids.is_empty() {
            return Ok(());
        }
        let rows = self.0.engine.store().rows();
        rows.put_labels(bids.iter().copied()).await?;
        let mut expected = self.0.unwritten.bids();
        bids.iter().for_each(|(bid, _)| drop(expected.remove(bid)));
        Ok(())
    }

    /// Waits until the labels of all bids up to this one can be found in the store, within reason: who looks
    /// for labels is not to miss a bid whose labels are just being written.
    pub(super) async fn labels_written(&self, up_to: u64) {
        for _ in 0..PATIENCE_TRIES {
            if self.0.unwritten.bids().first_key_value().is_none_or(|(bid, _)| *bid > up_to) {
                return;
            }
            tokio::time::sleep(PATIENCE_STEP).await;
        }
    }

    /// Compares the labels of a repeated request with those of the bid that the first one placed.
    pub(super) async fn compare_labels(&self, bid: u64, given: &Labels) -> Result<(), ApiError> {
        let expected = self.0.unwritten.bids().get(&bid).cloned();
        if let Some(expected) = expected {
            return if expected == *given {
                self.write_labels(&[(bid, given)]).await
            } else {
                Err(conflict())
            };
        }
        let kept = self.0.engine.store().rows().labels_of(&[bid]).await?.remove(&bid).unwrap_or_default();
        if kept == *given {
            Ok(())
        } else if kept.is_empty() && bid <= self.0.unwritten.inherited {
            self.write_labels(&[(bid, given)]).await
        } else {
            Err(conflict())
        }
    }
}

fn conflict() -> ApiError {
    ApiError::new(Code::Market(Reject::KeyConflict)).saying("the client_key was used with other labels")
}
