//! The projector: folds commits into rows and writes them, one transaction at a time. It folds lost rows again from the
//! journal.

use super::fold::{Folded, Running};
use super::replayed::Replayed;
use super::retention::Retention;
use crate::events::commit::Commit;
use crate::readmodel::sql::{Changes, Tables, WriteOutcome, Writer};
use crate::runtime::health::{Health, in_full};
use crate::runtime::progress::Reaching;
use crate::runtime::recovery::RecoveryError;
use crate::store::{Fault, Store};
use kubebid_core::units::Micros;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{error, info, warn};

/// The time to wait before a database that failed is asked again. It grows with each failure.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(5);
/// The interval at which a long fold logs its progress.
const PROGRESS: Duration = Duration::from_secs(5);
/// The time to wait before old rows are dropped after a failure.
const DROP_RETRY: Duration = Duration::from_secs(60);
/// The interval at which the tables are checked while no commit arrives.
const LOOK: Duration = Duration::from_secs(1);

/// The rows of consecutive commands.
#[derive(Debug)]
struct Group {
    /// The last command before the group.
    before: u64,
    after: u64,
    changes: Changes,
    /// The commits of the group, to fold again if another engine has written a part of them.
    commits: Vec<Arc<Commit>>,
}

impl Group {
    /// Returns the market's time of its last command.
    fn now(&self) -> Micros {
        let steps = self.commits.iter().flat_map(|commit| commit.steps.last());
        steps.last().map_or(Micros(0), |step| step.at)
    }
}

#[derive(Debug)]
struct Attempt {
    writer: Writer,
    group: Group,
    result: Result<WriteOutcome, Fault>,
}

#[derive(Debug)]
pub(crate) struct Projector {
    store: Store,
    tables: Tables,
    commits: mpsc::UnboundedReceiver<Arc<Commit>>,
    projected: Reaching,
    health: Health,
    retention: Retention,
    /// The day on which expired rows were last dropped.
    dropped_on: u64,
    /// The time before which dropping is not tried again.
    drop_after: Instant,
    /// The last folded command, and the nodes that ran then.
    folded: u64,
    running: Running,
    wait: Duration,
    /// The time at which the next rows are folded at the earliest.
    rested: Instant,
}

impl Projector {
    pub(crate) fn new(
        store: &Store,
        retention: Retention,
        commits: mpsc::UnboundedReceiver<Arc<Commit>>,
        projected: Reaching,
        health: Health,
    ) -> Projector {
        Projector {
            store: store.clone(),
            tables: Tables::of(store),
            commits,
            projected,
            health,
            retention,
            dropped_on: 0,
            drop_after: Instant::now(),
            folded: 0,
            running: Running::default(),
            wait: RETRY,
            rested: Instant::now(),
        }
    }

    /// Runs until no more commits can come and all rows are written. Repeats failed writes as long as
    /// commits may come.
    pub(crate) async fn run(mut self) -> Result<(), Fault> {
        let mut writing = None;
        let mut ended = self.follow(&mut writing).await;
        // The last rows are written even if no further ones can be.
        while let Some(last) = writing.take() {
            let done = last.await.expect("writing does not panic");
            if let Err(fault) = self.finish(done, &mut writing).await {
                ended = ended.and(Err(fault));
            }
        }
        if let Err(fault) = &ended {
            let why = in_full(fault);
            error!(error = why, "the projections stop; an engine that starts goes on from where they are");
            self.health.projector_ended(why);
        }
        ended
    }

    /// Folds and writes until no more commits come. The last transaction may still be running.
    async fn follow(&mut self, writing: &mut Option<JoinHandle<Attempt>>) -> Result<(), Fault> {
        let Some(first) = self.commits.recv().await else { return Ok(()) };
        self.health.rows_wait();
        self.begin(&first).await?;
        let mut ready = self.fold(first).await?;
        let mut idle = Some(self.tables.writer());
        loop {
            let rested = self.rested;
            if let Some(group) = ready.take_if(|_| idle.is_some()) {
                let writer = idle.take().expect("it is idle");
                self.health.rows_wait();
                *writing = Some(tokio::spawn(attempt(writer, group)));
            }
            tokio::select! {
                done = async { writing.as_mut().expect("it runs").await }, if writing.is_some() => {
                    *writing = None;
                    let done = done.expect("writing does not panic");
                    idle = self.finish(done, writing).await?;
                }
                commit = async { sleep_until(rested).await; self.commits.recv().await }, if ready.is_none() => match commit {
                    Some(commit) => ready = self.fold(commit).await?,
                    None => return Ok(()),
                },
                () = sleep(LOOK), if writing.is_none() && ready.is_none() => {
                    let writer = idle.as_mut().expect("nothing is written");
                    self.look(writer).await?;
                }
            }
        }
    }

    /// Checks that the tables still have what was written.
    async fn look(&mut self, writer: &mut Writer) -> Result<(), Fault> {
        match self.tables.watermark().await {
            Ok(watermark) if watermark < self.folded => self.fold_lost(writer, self.folded).await,
            // A database that does not answer is noticed when there is something to write.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Finds the command from which to fold. Writes first what the tables lack before the first
    /// commit.
    async fn begin(&mut self, first: &Commit) -> Result<(), Fault> {
        let before = first.first_seq().0 - 1;
        let mut writer = self.tables.writer();
        loop {
            self.fold_lost(&mut writer, before).await?;
            match self.tables.running_marks().await {
                Ok((watermark, running)) if watermark >= before => {
                    (self.folded, self.running) = (watermark, running);
                    // Other engines may have written it. Readers that wait for it get
                    // no other notice.
                    self.projected.reach(watermark);
                    return Ok(());
                }
                Ok(_) => {}
                Err(fault) => self.pause(fault).await?,
            }
        }
    }

    /// Folds a commit and those that wait after it. Returns None if the tables have all of them.
    async fn fold(&mut self, first: Arc<Commit>) -> Result<Option<Group>, Fault> {
        let before = self.folded;
        let commits = self.gather(first);
        if commits.is_empty() {
            self.health.rows_written(false);
            return Ok(None);
        }
        let changes = fold(&commits, &mut self.running).await;
        Ok(Some(Group { before, after: self.folded, changes, commits }))
    }

    /// Returns a commit and those that wait after it, without those that the tables have.
    fn gather(&mut self, first: Arc<Commit>) -> Vec<Arc<Commit>> {
        let (mut commits, mut commands) = (Vec::new(), 0);
        let mut next = Some(first);
        while let Some(commit) = next.take() {
            if commit.last_seq().0 > self.folded {
                assert_eq!(commit.first_seq().0, self.folded + 1, "commits follow each other");
                self.folded = commit.last_seq().0;
                commands += commit.steps.len();
                commits.push(commit);
            }
            if commands < self.tables.commands_at_once() {
                next = self.commits.try_recv().ok();
            }
        }
        // A transaction with few commands costs as much as one with many.
        if commands < self.tables.commands_at_once() {
            self.rested = Instant::now() + self.tables.rest();
        }
        commits
    }

    /// Takes the writer back after an attempt, or tries again with it.
    async fn finish(
        &mut self,
        done: Attempt,
        writing: &mut Option<JoinHandle<Attempt>>,
    ) -> Result<Option<Writer>, Fault> {
        let Attempt { mut writer, mut group, result } = done;
        let found = match result {
            Ok(WriteOutcome::Done) => group.after,
            Ok(WriteOutcome::Elsewhere { found }) => found,
            Err(fault) => {
                self.pause(fault).await?;
                *writing = Some(tokio::spawn(attempt(writer, group)));
                return Ok(None);
            }
        };
        if found >= group.after {
            self.wait = RETRY;
            self.reached(group.after);
            self.drop_expired(&mut writer, group.now()).await;
            return Ok(Some(writer));
        }
        if found < group.before {
            self.fold_lost(&mut writer, group.before).await?;
        } else if found > group.before {
            // An answer was lost, another engine writes the same rows, or the tables are being
            // rebuilt.
            group = match self.fold_again(&group).await {
                Ok(rest) => rest,
                Err(fault) => {
                    self.pause(fault).await?;
                    group
                }
            };
        }
        *writing = Some(tokio::spawn(attempt(writer, group)));
        Ok(None)
    }

    /// Folds again the rest of a group of which another engine has written a part.
    async fn fold_again(&self, group: &Group) -> Result<Group, Fault> {
        let (before, mut running) = self.tables.running_marks().await?;
        let commits: Vec<_> =
            group.commits.iter().filter(|commit| commit.last_seq().0 > before).cloned().collect();
        let changes = fold(&commits, &mut running).await;
        Ok(Group { before, after: group.after, changes, commits })
    }

    /// Writes from the journal what the tables lack up to `before`, if they lack anything. Meanwhile,
    /// reads that name a lost command wait.
    async fn fold_lost(&mut self, writer: &mut Writer, before: u64) -> Result<(), Fault> {
        loop {
            match self.fold_journal(writer, before).await {
                Ok(()) => return Ok(()),
                Err(RecoveryError::Store(fault)) => self.pause(fault).await?,
                Err(error @ (RecoveryError::Behaviour { .. } | RecoveryError::Record { .. })) => {
                    return Err(Fault::Row { table: "journal", what: error.to_string() });
                }
            }
        }
    }

    async fn fold_journal(&mut self, writer: &mut Writer, to: u64) -> Result<(), RecoveryError> {
        let (mut watermark, mut running) = self.tables.running_marks().await?;
        if watermark >= to {
            return Ok(());
        }
        warn!(watermark, to, "the tables have lost commands; folding them again from the journal");
        self.projected.reach(watermark);
        let mut replayed = Replayed::after(&self.store, watermark).await?;
        let mut reported = Instant::now();
        while watermark < to {
            let Some(mut commits) = replayed.next().await? else {
                return Err(Fault::Overtaken { expected: to, found: watermark }.into());
            };
            commits.retain(|commit| commit.last_seq().0 > watermark);
            for commits in self.in_groups(&commits) {
                let after = commits.last().expect("a group has a commit").last_seq().0;
                let changes = fold(commits, &mut running).await;
                match writer.write(watermark, after, &changes).await? {
                    WriteOutcome::Done => watermark = after,
                    // Another engine or a rebuild writes as well.
                    WriteOutcome::Elsewhere { found } => {
                        return Err(Fault::Overtaken { expected: watermark, found }.into());
                    }
                }
                self.reached(watermark);
                if reported.elapsed() >= PROGRESS {
                    reported = Instant::now();
                    info!(watermark, to, "the tables are being folded again");
                }
            }
        }
        info!(watermark, "the tables have again what they had lost");
        Ok(())
    }

    /// Divides commits into groups that share a transaction.
    fn in_groups<'a>(&self, commits: &'a [Arc<Commit>]) -> Vec<&'a [Arc<Commit>]> {
        let most = self.tables.commands_at_once();
        let mut commands = 0;
        let together = |_: &Arc<Commit>, next: &Arc<Commit>| {
            commands += next.steps.len();
            let together = commands < most;
            if !together {
                commands = 0;
            }
            together
        };
        commits.chunk_by(together).collect()
    }

    /// Drops rows that are no longer kept, once for each day of the market.
    async fn drop_expired(&mut self, writer: &mut Writer, now: Micros) {
        let day = Retention::day(now);
        if day == self.dropped_on || Instant::now() < self.drop_after {
            return;
        }
        if let Err(fault) = writer.drop_expired(self.retention, now).await {
            warn!(error = in_full(&fault), "old rows are kept for a while longer");
            self.drop_after = Instant::now() + DROP_RETRY;
            return;
        }
        self.dropped_on = day;
    }

    fn reached(&self, seq: u64) {
        self.projected.reach(seq);
        self.health.rows_written(seq < self.folded || !self.commits.is_empty());
    }

    /// Waits a little, longer each time. Gives up if no more commits can come.
    async fn pause(&mut self, fault: Fault) -> Result<(), Fault> {
        if self.commits.is_closed() || is_final(&fault) {
            return Err(fault);
        }
        let why = in_full(&fault);
        warn!(error = why, "the projections wait");
        self.health.rows_failed(why);
        let until = Instant::now() + self.wait;
        while Instant::now() < until && !self.commits.is_closed() {
            sleep(RETRY.min(until - Instant::now())).await;
        }
        self.wait = (self.wait * 2).min(RETRY_MOST);
        Ok(())
    }
}

impl Drop for Projector {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.health.projector_ended("a bug; the log has its panic".to_owned());
        }
    }
}

/// Returns true if the same would fail again, however often it is tried.
fn is_final(fault: &Fault) -> bool {
    matches!(fault, Fault::Damaged { .. } | Fault::Row { .. })
}

async fn attempt(mut writer: Writer, group: Group) -> Attempt {
    let result = writer.write(group.before, group.after, &group.changes).await;
    Attempt { writer, group, result }
}

async fn fold(commits: &[Arc<Commit>], running: &mut Running) -> Changes {
    let mut folded = Folded::default();
    for commit in commits {
        folded.add(commit, running);
        // Other tasks need the thread too.
        yield_now().await;
    }
    Changes::of(&folded)
}
