//! Writes what commits brought: while one transaction runs, the rows of the next are folded.

use super::fold::{Folded, Running};
use crate::chunk::Chunk;
use crate::progress::Reaching;
use crate::store::Fault;
use crate::store::projections::{Changes, Tables, Writer, Written};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{error, warn};

/// How long to wait before a database that failed is asked again; longer each time.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(5);

/// The rows of commands that follow each other.
#[derive(Debug)]
struct Group {
    /// The last command before it.
    before: u64,
    after: u64,
    changes: Changes,
    /// To fold again, where others have written a part of it.
    chunks: Vec<Arc<Chunk>>,
}

#[derive(Debug)]
struct Attempt {
    writer: Writer,
    group: Group,
    result: Result<Written, Fault>,
}

#[derive(Debug)]
pub(crate) struct Projector {
    tables: Tables,
    chunks: mpsc::UnboundedReceiver<Arc<Chunk>>,
    projected: Reaching,
    /// What is folded, and what ran then.
    folded: u64,
    running: Running,
    wait: Duration,
    /// When the next rows are folded at the earliest.
    rested: Instant,
}

impl Projector {
    pub(crate) fn new(
        tables: Tables,
        chunks: mpsc::UnboundedReceiver<Arc<Chunk>>,
        projected: Reaching,
    ) -> Projector {
        Projector {
            tables,
            chunks,
            projected,
            folded: 0,
            running: Running::default(),
            wait: RETRY,
            rested: Instant::now(),
        }
    }

    /// Runs until nothing comes any more and all is written. A database that fails is asked again and again,
    /// as long as something may come.
    pub(crate) async fn run(mut self) -> Result<(), Fault> {
        let mut writing = None;
        let followed = self.follow(&mut writing).await;
        // Also where the next rows cannot be.
        while let Some(last) = writing.take() {
            let done = last.await.expect("writing does not panic");
            self.finish(done, &mut writing).await?;
        }
        followed
    }

    /// Until nothing comes any more; the last transaction may still be running.
    async fn follow(&mut self, writing: &mut Option<JoinHandle<Attempt>>) -> Result<(), Fault> {
        let Some(first) = self.chunks.recv().await else { return Ok(()) };
        self.begin(&first).await?;
        let mut ready = self.fold(first).await?;
        let mut idle = Some(self.tables.writer());
        loop {
            let rested = self.rested;
            if let Some(group) = ready.take_if(|_| idle.is_some()) {
                let writer = idle.take().expect("it is idle");
                *writing = Some(tokio::spawn(attempt(writer, group)));
            }
            tokio::select! {
                done = async { writing.as_mut().expect("it runs").await }, if writing.is_some() => {
                    *writing = None;
                    let done = done.expect("writing does not panic");
                    idle = self.finish(done, writing).await?;
                }
                chunk = async { sleep_until(rested).await; self.chunks.recv().await }, if ready.is_none() => match chunk {
                    Some(chunk) => ready = self.fold(chunk).await?,
                    None => return Ok(()),
                },
            }
        }
    }

    /// Finds out from where on to fold.
    async fn begin(&mut self, first: &Chunk) -> Result<(), Fault> {
        loop {
            match self.tables.running_marks().await {
                // Otherwise somebody is rebuilding the tables, and is not there yet.
                Ok((watermark, running)) if watermark + 1 >= first.first_seq().0 => {
                    (self.folded, self.running) = (watermark, running);
                    // Others may have written it: nothing that waits for it comes from here.
                    self.projected.reach(watermark.max(self.projected.seq()));
                    return Ok(());
                }
                Ok((found, _)) => {
                    self.pause(Fault::Overtaken { expected: first.first_seq().0 - 1, found }).await?;
                }
                Err(fault) => self.pause(fault).await?,
            }
        }
    }

    /// Folds a chunk and what waits behind it; nothing where the tables have it.
    async fn fold(&mut self, first: Arc<Chunk>) -> Result<Option<Group>, Fault> {
        let before = self.folded;
        let chunks = self.gather(first);
        if chunks.is_empty() {
            return Ok(None);
        }
        let mut folded = Folded::default();
        for chunk in &chunks {
            folded.add(chunk, &mut self.running).inspect_err(stopped)?;
            // Others want the thread too.
            yield_now().await;
        }
        let changes = Changes::of(&folded);
        Ok(Some(Group { before, after: self.folded, changes, chunks }))
    }

    /// A chunk and what waits behind it, without what the tables have.
    fn gather(&mut self, first: Arc<Chunk>) -> Vec<Arc<Chunk>> {
        let (mut chunks, mut commands) = (Vec::new(), 0);
        let mut next = Some(first);
        while let Some(chunk) = next.take() {
            if chunk.last_seq().0 > self.folded {
                assert_eq!(chunk.first_seq().0, self.folded + 1, "chunks follow each other");
                self.folded = chunk.last_seq().0;
                commands += chunk.steps.len();
                chunks.push(chunk);
            }
            if commands < self.tables.commands_at_once() {
                next = self.chunks.try_recv().ok();
            }
        }
        // Few commands cost a transaction as many do.
        if commands < self.tables.commands_at_once() {
            self.rested = Instant::now() + self.tables.rest();
        }
        chunks
    }

    /// Gives the writer back, or tries again with it.
    async fn finish(
        &mut self,
        done: Attempt,
        writing: &mut Option<JoinHandle<Attempt>>,
    ) -> Result<Option<Writer>, Fault> {
        let Attempt { writer, mut group, result } = done;
        let found = match result {
            Ok(Written::Done) => group.after,
            Ok(Written::Elsewhere { found }) => found,
            Err(fault) => {
                self.pause(fault).await?;
                *writing = Some(tokio::spawn(attempt(writer, group)));
                return Ok(None);
            }
        };
        if found >= group.after {
            self.wait = RETRY;
            self.projected.reach(group.after);
            return Ok(Some(writer));
        }
        // A lost answer, another engine that writes the same, or somebody who rebuilds.
        if found > group.before {
            group = self.fold_again(group).await?;
        } else {
            self.pause(Fault::Overtaken { expected: group.before, found }).await?;
        }
        *writing = Some(tokio::spawn(attempt(writer, group)));
        Ok(None)
    }

    /// The rest of a group of which others have written a part.
    async fn fold_again(&mut self, group: Group) -> Result<Group, Fault> {
        let (before, mut running) = self.tables.running_marks().await?;
        let mut chunks = group.chunks;
        chunks.retain(|chunk| chunk.last_seq().0 > before);
        let mut folded = Folded::default();
        for chunk in &chunks {
            folded.add(chunk, &mut running)?;
        }
        let changes = Changes::of(&folded);
        Ok(Group { before, after: group.after, changes, chunks })
    }

    /// Waits a little, and longer each time; gives up when nothing can come any more.
    async fn pause(&mut self, fault: Fault) -> Result<(), Fault> {
        if self.chunks.is_closed() {
            stopped(&fault);
            return Err(fault);
        }
        warn!(error = %fault, source = ?std::error::Error::source(&fault), "the projections wait");
        sleep(self.wait).await;
        self.wait = (self.wait * 2).min(RETRY_MOST);
        Ok(())
    }
}

async fn attempt(mut writer: Writer, group: Group) -> Attempt {
    let result = writer.write(group.before, group.after, &group.changes).await;
    Attempt { writer, group, result }
}

fn stopped(fault: &Fault) {
    error!(error = %fault, "the projections stop; an engine that starts goes on from where they are");
}
