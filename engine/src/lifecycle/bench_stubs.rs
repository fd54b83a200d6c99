//! Stand-ins for parts of the engine that a benchmark leaves out.

use crate::events::commit::Commit;
use crate::store::{AppendError, Batch, Fault, JournalWriter, Resolution};
use async_trait::async_trait;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The parts that an engine leaves out, for benchmarks and tests on the loopback. Only a program that starts the engine
/// as a library can set them: no flag, file or environment variable does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedParts {
    /// Leaves out the journal. Batches are encoded and dropped: an acknowledged command is not durable, and is lost when
    /// the engine ends.
    pub journal: bool,
    /// Leaves out the readable tables, which stay as they are.
    pub projections: bool,
}

/// A journal that acknowledges each batch at once and keeps none.
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

/// Receives the commits for the tables and drops them.
pub(crate) async fn no_projections(mut commits: mpsc::UnboundedReceiver<Arc<Commit>>) -> Result<(), Fault> {
    while commits.recv().await.is_some() {}
    Ok(())
}
