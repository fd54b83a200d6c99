//! Adds batches to the journal, and when a store does not answer finds out what became of them.

use super::Stopped;
use crate::intake::NotDone;
use crate::metrics;
use crate::store::record::{Batch, Position};
use crate::store::{AppendError, JournalWriter, Resolution};
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// How long to wait before a store that does not answer is asked again.
const RETRY: Duration = Duration::from_millis(200);

pub(crate) struct Journaling {
    pub(crate) writer: Box<dyn JournalWriter>,
    /// The journal's end.
    pub(crate) head: Position,
}

impl Journaling {
    /// Makes a batch durable that follows the journal's end.
    pub(super) async fn commit(&mut self, batch: &Batch) -> Result<Result<(), NotDone>, Stopped> {
        let started = Instant::now();
        let appended = self.append(batch).await?;
        if appended.is_ok() {
            metrics::commit(batch.count(), batch.bytes().len(), started.elapsed());
            self.head = batch.end();
        }
        Ok(appended)
    }

    async fn append(&mut self, batch: &Batch) -> Result<Result<(), NotDone>, Stopped> {
        loop {
            match self.writer.append(batch).await {
                Ok(()) => return Ok(Ok(())),
                Err(AppendError::Fenced { epoch }) => {
                    return Err(Stopped::Superseded(format!("another engine took over from epoch {epoch}")));
                }
                Err(AppendError::Refused(refused)) => {
                    error!(error = %refused, "the store refused a batch");
                    metrics::store_refused();
                    return Ok(Err(NotDone::StoreRefused));
                }
                Err(AppendError::Unknown { source }) => {
                    warn!(error = %source, "an append has no answer; finding out what became of it");
                    metrics::store_unknown();
                }
            }
            match self.resolve(batch).await? {
                Resolution::Committed => return Ok(Ok(())),
                Resolution::NotCommitted => {}
                Resolution::Fenced => {
                    return Err(Stopped::Superseded("another engine took over".to_owned()));
                }
            }
        }
    }

    async fn resolve(&mut self, batch: &Batch) -> Result<Resolution, Stopped> {
        loop {
            match self.writer.resolve(batch).await {
                Ok(resolution) => {
                    info!(?resolution, "the append is resolved");
                    return Ok(resolution);
                }
                Err(fault @ crate::store::Fault::Diverged { .. }) => {
                    return Err(Stopped::Superseded(fault.to_string()));
                }
                Err(fault) => {
                    warn!(error = %fault, "the store does not answer");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}
