//! Appends batches to the journal, and resolves an append without an answer.

use super::Stopped;
use crate::runtime::clock::since_boot;
use crate::runtime::health::{Health, in_full};
use crate::runtime::intake::SubmitError;
use crate::runtime::lease_state::LeaseState;
use crate::runtime::metrics;
use crate::store::record::{Batch, Position};
use crate::store::{AppendError, Fault, JournalWriter, Refused, Resolution};
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// The time to wait before a store that does not answer, or refuses, is asked again. It grows with each
/// failure.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MOST: Duration = Duration::from_secs(1);

pub(crate) struct Journaling {
    pub(crate) writer: Box<dyn JournalWriter>,
    /// The end of the journal.
    pub(crate) head: Position,
    health: Health,
    /// The time to wait before the next batch. Zero unless the store refused the last one.
    pause: Duration,
    /// The lease state of a store without leases, and how long requests are served while a commit has
    /// no answer. An engine with a lease cannot renew it during that time.
    lease_state: Option<(LeaseState, Duration)>,
}

impl Journaling {
    pub(crate) fn new(
        writer: Box<dyn JournalWriter>,
        head: Position,
        health: Health,
        lease_state: Option<(LeaseState, Duration)>,
    ) -> Journaling {
        Journaling { writer, head, health, pause: Duration::ZERO, lease_state }
    }

    /// Makes a batch durable that follows the journal's end. Waits first if the store refused the
    /// last one.
    pub(super) async fn commit(&mut self, batch: &Batch) -> Result<Result<(), SubmitError>, Stopped> {
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
        let started = Instant::now();
        if let Some((lease_state, length)) = &self.lease_state {
            lease_state.set(since_boot(), *length);
        }
        let appended = self.append(batch).await?;
        if let Some((lease_state, _)) = &self.lease_state {
            lease_state.renew_for_life();
        }
        if appended.is_ok() {
            metrics::commit(batch.count(), batch.bytes().len(), started.elapsed());
            self.head = batch.end();
            if !self.pause.is_zero() {
                info!("the store takes batches again");
            }
            self.pause = Duration::ZERO;
            self.health.answered();
        }
        Ok(appended)
    }

    async fn append(&mut self, batch: &Batch) -> Result<Result<(), SubmitError>, Stopped> {
        let mut pause = RETRY;
        loop {
            match self.writer.append(batch).await {
                Ok(()) => return Ok(Ok(())),
                Err(AppendError::Fenced { epoch }) => {
                    return Err(Stopped::Superseded(format!("another engine took over from epoch {epoch}")));
                }
                Err(AppendError::Lost { source }) => return Err(Stopped::StoreLost(in_full(&source))),
                // Every batch follows the end of the previous one, which is durable. So
                // the journal was changed by another program.
                Err(AppendError::Refused(other @ Refused::NotNext { .. })) => {
                    return Err(Stopped::OtherHistory(other.to_string()));
                }
                Err(AppendError::Refused(refused @ Refused::Database { .. })) => {
                    let why = in_full(&refused);
                    self.pause = (self.pause * 2).clamp(RETRY, RETRY_MOST);
                    error!(error = why, pause = ?self.pause, "the store refused a batch");
                    metrics::store_refused();
                    self.health.refused(why);
                    return Ok(Err(SubmitError::StoreRefused));
                }
                Err(AppendError::Unknown { source }) => {
                    let why = in_full(&source);
                    warn!(error = why, "an append has no answer; finding out what became of it");
                    metrics::store_unknown();
                    self.health.unanswered(why);
                }
            }
            match self.resolve(batch).await? {
                Resolution::Committed => return Ok(Ok(())),
                Resolution::NotCommitted => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_MOST);
                }
                Resolution::Fenced => {
                    return Err(Stopped::Superseded(
                        "another engine took over, or the row of leader is gone".to_owned(),
                    ));
                }
            }
        }
    }

    async fn resolve(&mut self, batch: &Batch) -> Result<Resolution, Stopped> {
        let mut pause = RETRY;
        loop {
            match self.writer.resolve(batch).await {
                Ok(resolution) => {
                    info!(?resolution, "the append is resolved");
                    return Ok(resolution);
                }
                Err(fault @ Fault::Diverged { .. }) => return Err(Stopped::OtherHistory(fault.to_string())),
                Err(fault @ Fault::Displaced { .. }) => return Err(Stopped::StoreLost(fault.to_string())),
                Err(fault) => {
                    let why = in_full(&fault);
                    warn!(error = why, "the store does not answer");
                    self.health.unanswered(why);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_MOST);
                }
            }
        }
    }
}
