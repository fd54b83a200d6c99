//! Stand-ins for parts of the engine that a benchmark leaves out.

use crate::events::commit::Commit;
use crate::store::{AppendError, Batch, Fault, JournalWriter, Resolution};
use async_trait::async_trait;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The parts that an engine leaves out. An engine without a journal forgets everything when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaveOut {
    /// Batches are encoded and go nowhere: an acknowledged command is not durable.
    pub journal: bool,
    /// The tables stay as they are, as if nobody ever wrote them.
    pub projections: bool,
}

/// Acknowledges what it is given at once, and keeps nothing.
#[derive(Debug)]
pub(crate) struct NoJournal;

#[async_trait]
impl JournalWriter for NoJournal {
    fn epoch(&self) -> u64 {
        0
    }

    async fn append(&mut self, _batch: &Batch) -> Result<(), AppendError> {
        Ok(())
    }

    async fn resolve(&mut self, _batch: &Batch) -> Result<Resolution, Fault> {
        Ok(Resolution::Committed)
    }
}

/// Takes what is for the tables and lets go of it.
pub(crate) async fn no_projections(mut commits: mpsc::UnboundedReceiver<Arc<Commit>>) -> Result<(), Fault> {
    while commits.recv().await.is_some() {}
    Ok(())
}
