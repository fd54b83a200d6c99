//! The engine put together: store, recovery, the exchange's thread, views, feed, projections.

use crate::chunk::{Chunk, Step};
use crate::clock::Clock;
use crate::intake::{Intake, NotDone, Submission, Taker, Ticket, Waiting, Work};
use crate::leave_out::{self, LeaveOut, NoJournal};
use crate::progress::{self, Reached, Reaching};
use crate::projections::Projections;
use crate::recovery::{self, RecoveryError, ToProjections};
use crate::replay::Replay;
use crate::sequencer::{Sequencer, Stopped};
use crate::snapshots::{self, Snapshotter};
use crate::spans;
use crate::store::{Fault, Store, StoreOptions};
use crate::view::{Publisher, Views};
use futures_util::future::BoxFuture;
use kubebid_core::units::{MarketId, Micros};
use kubebid_core::{Auction, Exchange};
use std::sync::Arc;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{error, info};
use uuid::Uuid;

#[derive(Clone, Debug)]
pub struct EngineOptions {
    pub store: StoreOptions,
    pub clock: Clock,
    /// Commands and questions that may wait to be taken; more are refused as busy.
    pub intake: usize,
    /// Commands that the projections may lag behind; beyond that commands are refused as busy.
    pub projection_lag: u64,
    /// Commits that a slow watcher may lag behind before it has to read the events table.
    pub feed: usize,
    /// Commands from one snapshot to the next, while the engine runs; it saves one when it stops, too.
    pub snapshot_every: u64,
    /// Nothing, but in benchmarks.
    pub leave_out: LeaveOut,
}

impl EngineOptions {
    pub fn new(store: StoreOptions, clock: Clock) -> EngineOptions {
        EngineOptions {
            store,
            clock,
            intake: 16_384,
            projection_lag: 1_000_000,
            feed: 4096,
            snapshot_every: 1_000_000,
            leave_out: LeaveOut::default(),
        }
    }
}

/// A running engine, to be asked and told. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    intake: Arc<Intake>,
    clock: Clock,
    store: Store,
    views: Arc<Views>,
    feed: broadcast::Sender<Arc<Chunk>>,
    applied: Reached,
    projections: Projections,
    projected: Reached,
    projection_lag: u64,
    saved: Reached,
}

/// The engine's end: wait for it, or bring it about.
#[derive(Debug)]
pub struct Running {
    intake: Arc<Intake>,
    exchange: oneshot::Receiver<Result<(), EngineError>>,
    projector: JoinHandle<Result<(), Fault>>,
    /// Absent while the exchange is being recovered.
    snapshotter: Option<JoinHandle<()>>,
}

/// Why the engine did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
    #[error("the exchange's thread could not be started")]
    Thread(#[source] std::io::Error),
    #[error("the exchange's thread ended unexpectedly")]
    Bug,
}

impl Engine {
    /// Opens the store, takes the journal, recovers, and runs. Returns when the engine is ready.
    pub fn start(options: EngineOptions) -> BoxFuture<'static, Result<(Engine, Running), EngineError>> {
        // In a box, so that it is compiled here and not again in whatever runs an engine.
        Box::pin(Engine::start_here(options))
    }

    async fn start_here(options: EngineOptions) -> Result<(Engine, Running), EngineError> {
        let store = Store::open(&options.store).await?;
        let projections = Projections::open(&store).await?;
        let intake = Intake::new(options.intake);
        let views = Arc::new(Views::default());
        let (feed, _) = broadcast::channel(options.feed);
        let (applied, applied_seq) = progress::from(0);
        let (chunks, to_project) = mpsc::unbounded_channel();
        let (projected, projected_seq) = progress::from(projections.watermark());
        let (saved, saved_seq) = progress::from(0);
        let (ready, is_ready) = oneshot::channel();
        let (ended, exchange) = oneshot::channel();
        let owner = Owner {
            store: store.clone(),
            projections: projections.clone(),
            intake: intake.clone(),
            clock: options.clock,
            views: views.clone(),
            feed: feed.clone(),
            chunks,
            projected: projected_seq.clone(),
            projection_lag: options.projection_lag,
            applied,
            saved: saved.clone(),
            leave_out: options.leave_out,
        };
        let taker = Taker(intake.clone());
        // It leads on its own connection, in its own runtime, on its own thread.
        std::thread::Builder::new()
            .name("exchange".to_owned())
            .spawn(move || {
                let _taker = taker;
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let result = match runtime {
                    Ok(runtime) => runtime.block_on(owner.run(ready)),
                    Err(error) => Err(EngineError::Thread(error)),
                };
                let _ = ended.send(result);
            })
            .map_err(EngineError::Thread)?;
        let projector = if options.leave_out.projections {
            tokio::spawn(leave_out::no_projections(to_project))
        } else {
            tokio::spawn(projections.clone().run(to_project, projected))
        };
        let mut running = Running { intake: intake.clone(), exchange, projector, snapshotter: None };
        if is_ready.await.is_err() {
            return Err(running.ended().await.err().unwrap_or(EngineError::Bug));
        }
        let (every, projected) = (options.snapshot_every, projected_seq.clone());
        let snapshotter = Snapshotter { store: store.clone(), every, projected, saved };
        running.snapshotter = (!options.leave_out.journal).then(|| tokio::spawn(snapshotter.run()));
        let engine = Engine(Arc::new(Inner {
            intake,
            clock: options.clock,
            store,
            views,
            feed,
            applied: applied_seq,
            projections,
            projected: projected_seq,
            projection_lag: options.projection_lag,
            saved: saved_seq,
        }));
        Ok((engine, running))
    }

    /// Hands a command over and waits until it is durable and applied; `look` then runs on the
    /// exchange's thread, with the state just behind the command. When the returned future is
    /// dropped before the command is stamped, or its deadline passes before, the command is never taken.
    pub async fn submit<T: Send + 'static>(
        &self,
        command: Submission,
        look: impl FnOnce(&Exchange, &Step) -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let mut look = Some(look);
        let once = move |exchange: &Exchange, step: &Step| {
            let look = look.take().expect("one command is looked at once");
            (step.seq.0, look(exchange, step))
        };
        let seen = self.submit_all(vec![command], once).await?;
        let (seq, seen) = seen.into_iter().next().expect("something is seen behind each command");
        spans::stamped(seq);
        Ok(seen)
    }

    /// As [`Engine::submit`], for commands with one deadline that follow each other: what `look` saw behind each.
    pub async fn submit_all<T: Send + 'static>(
        &self,
        commands: Vec<Submission>,
        look: impl FnMut(&Exchange, &Step) -> T + Send + 'static,
    ) -> Result<Vec<T>, NotDone> {
        if self.applied().saturating_sub(self.projected()) > self.0.projection_lag {
            return Err(NotDone::Full);
        }
        let (waiting, receiver) = Waiting::new(commands.len(), look);
        self.hand_over(Work::Commands(Ticket { commands, reply: Box::new(waiting) }))?;
        // The sender is only dropped unused when the exchange stops with the command in hand.
        receiver.await.unwrap_or(Err(NotDone::Unknown))
    }

    /// Reads something off the exchange. All that it sees is durable.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Exchange) -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let (sender, receiver) = oneshot::channel();
        self.hand_over(Work::Question(Box::new(move |exchange| {
            let _ = sender.send(question(exchange));
        })))?;
        receiver.await.map_err(|_| NotDone::Stopping)
    }

    fn hand_over(&self, work: Work) -> Result<(), NotDone> {
        self.0.intake.push(work)
    }

    /// Number of the last command that is applied and published.
    pub fn applied(&self) -> u64 {
        self.0.applied.seq()
    }

    /// Waits until views and exchange know the market up to `seq`.
    pub async fn wait_applied(&self, seq: u64) {
        self.0.applied.wait(seq).await;
    }

    /// Waits until the projections know the market up to `seq`, or have ended.
    pub async fn wait_projected(&self, seq: u64) {
        self.0.projected.wait(seq).await;
    }

    /// Waits until a snapshot has the market up to `seq`.
    pub async fn wait_saved(&self, seq: u64) {
        self.0.saved.wait(seq).await;
    }

    pub fn projected(&self) -> u64 {
        self.0.projected.seq()
    }

    /// The last command that is in a snapshot.
    pub fn saved(&self) -> u64 {
        self.0.saved.seq()
    }

    pub fn views(&self) -> &Views {
        &self.0.views
    }

    /// All commits from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Chunk>> {
        self.0.feed.subscribe()
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    pub fn projections(&self) -> &Projections {
        &self.0.projections
    }

    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// The journal's name: part of every cursor.
    pub fn journal_id(&self) -> Uuid {
        self.0.store.journal().id()
    }

    /// Whether commands are taken.
    pub fn is_open(&self) -> bool {
        !self.0.intake.is_closed()
    }
}

impl Running {
    /// Stops taking commands, finishes what was taken, saves a snapshot.
    pub async fn stop(self) -> Result<(), EngineError> {
        self.intake.close();
        self.ended().await
    }

    /// Waits until the engine has ended by itself.
    pub async fn ended(self) -> Result<(), EngineError> {
        let result = self.exchange.await.unwrap_or(Err(EngineError::Bug));
        self.intake.close();
        // A snapshot that is only half saved does not count.
        if let Some(snapshotter) = self.snapshotter {
            snapshotter.abort();
            let _ = snapshotter.await;
        }
        // The last chunk has been sent: the projector ends when it has written it.
        match self.projector.await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => error!(error = %fault, "the projections ended"),
            Err(bug) => error!(error = %bug, "the projections ended unexpectedly"),
        }
        result
    }

    /// As [`Running::ended`], without giving up the handle.
    pub async fn wait(&mut self) -> Result<(), EngineError> {
        (&mut self.exchange).await.unwrap_or(Err(EngineError::Bug))
    }
}

/// What the exchange's thread begins with.
struct Owner {
    store: Store,
    projections: Projections,
    intake: Arc<Intake>,
    clock: Clock,
    views: Arc<Views>,
    feed: broadcast::Sender<Arc<Chunk>>,
    chunks: mpsc::UnboundedSender<Arc<Chunk>>,
    projected: Reached,
    projection_lag: u64,
    applied: Reaching,
    saved: Reaching,
    leave_out: LeaveOut,
}

impl Owner {
    async fn run(self, ready: oneshot::Sender<()>) -> Result<(), EngineError> {
        // Taking the journal first: from here on nobody else adds to it.
        let leadership = self.store.lead().await?;
        let watermark = self.projections.watermark();
        let (mut replay, position) = recovery::from_snapshot(&self.store, watermark).await?;
        self.saved.reach(position.seq);
        let mut publisher = Publisher::new(self.views);
        recall(&self.projections, &replay, &mut publisher).await?;
        publisher.publish(&mut replay.exchange);
        let mut projections = ToProjections {
            chunks: self.chunks.clone(),
            watermark,
            projected: self.projected,
            lag: self.projection_lag,
        };
        let caught_up =
            recovery::catch_up(&self.store, &mut replay, position, &mut publisher, &mut projections);
        let head = caught_up.await?;
        drop(projections);
        if head != leadership.head {
            let (expected, found) = (leadership.head, head);
            return Err(Fault::Diverged { expected, found }.into());
        }
        self.applied.reach(head.seq);
        info!(seq = head.seq, "ready");
        let _ = ready.send(());
        let sequencer = Sequencer {
            intake: self.intake,
            clock: self.clock,
            replay,
            head,
            writer: if self.leave_out.journal { Box::new(NoJournal) } else { leadership.writer },
            publisher,
            feed: self.feed,
            projections: self.chunks,
            applied: self.applied,
        };
        let (replay, head) = sequencer.run().await?;
        if self.leave_out.journal {
            return Ok(());
        }
        snapshots::save(&self.store, &replay.exchange, head).await?;
        self.saved.reach(head.seq);
        Ok(())
    }
}

/// The prices of the last day, for markets that the snapshot knows.
async fn recall(
    projections: &Projections,
    replay: &Replay,
    publisher: &mut Publisher,
) -> Result<(), EngineError> {
    let exchange = &replay.exchange;
    let since = Micros(exchange.now().0.saturating_sub(Micros::DAY.0));
    for market in 0..exchange.names().markets.len() as u32 {
        let (market, name) = (MarketId(market), exchange.names().market(MarketId(market)));
        publisher.open(market, projections.opened_at(name).await?);
        for (at, numbers) in projections.prices_since(name, since, exchange.seq()).await? {
            publisher.recall(market, at, &numbers);
        }
    }
    Ok(())
}
