//! Writes what commits brought, as much at once as waits.

use super::fold::{Folded, Running};
use crate::chunk::Chunk;
use crate::store::Fault;
use crate::store::projections::{Tables, Writer, Written};
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, warn};

/// Commands that share a transaction, or as many as one chunk has.
const COMMANDS: usize = 4096;
/// How long to wait before a database that failed is asked again; longer each time.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Projector {
    tables: Tables,
    writer: Writer,
    /// As of the watermark; none before it is read.
    state: Option<State>,
}

#[derive(Clone, Debug)]
struct State {
    watermark: u64,
    running: Running,
}

impl Projector {
    pub(crate) fn new(tables: Tables) -> Projector {
        Projector { writer: tables.writer(), tables, state: None }
    }

    /// Whether another chunk may share the transaction.
    pub(crate) fn takes_more(&self, chunks: &[Arc<Chunk>]) -> bool {
        chunks.iter().map(|chunk| chunk.steps.len()).sum::<usize>() < COMMANDS
    }

    /// Writes the chunks, which follow each other, and returns the last command that the tables know then.
    /// A database that fails is asked again and again, until `give_up` says that it is enough.
    pub(crate) async fn write(
        &mut self,
        chunks: &[Arc<Chunk>],
        give_up: impl Fn(&Fault) -> bool,
    ) -> Result<u64, Fault> {
        let mut wait = RETRY;
        loop {
            let fault = match self.try_to_write(chunks).await {
                Ok(seq) => return Ok(seq),
                Err(fault) => fault,
            };
            if matches!(fault, Fault::TooLarge { .. }) || give_up(&fault) {
                error!(error = %fault, "the projections stop; they can be rebuilt");
                return Err(fault);
            }
            warn!(error = %fault, source = ?std::error::Error::source(&fault), "the projections wait");
            // What is in the tables is not certain.
            self.state = None;
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_MOST);
        }
    }

    async fn try_to_write(&mut self, chunks: &[Arc<Chunk>]) -> Result<u64, Fault> {
        let mut state = match self.state.take() {
            Some(state) => state,
            None => {
                let (watermark, running) = self.tables.running_marks().await?;
                State { watermark, running }
            }
        };
        let before = state.watermark;
        let left = chunks.iter().filter(|chunk| chunk.last_seq().0 > before);
        let left: Vec<&Arc<Chunk>> = left.collect();
        let (Some(first), Some(last)) = (left.first(), left.last()) else {
            self.state = Some(state);
            return Ok(before);
        };
        if first.first_seq().0 != before + 1 {
            return Err(Fault::Overtaken { expected: first.first_seq().0 - 1, found: before });
        }
        let after = last.last_seq().0;
        let mut folded = Folded::default();
        for chunk in &left {
            folded.add(chunk, &mut state.running)?;
            // Others want the thread too.
            tokio::task::yield_now().await;
        }
        match self.writer.write(before, after, &folded).await? {
            Written::Done => {
                self.state = Some(State { watermark: after, ..state });
                Ok(after)
            }
            Written::Elsewhere { found } => Err(Fault::Overtaken { expected: before, found }),
        }
    }
}
