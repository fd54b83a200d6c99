//! The engine put together: store, recovery, the exchange's thread, views, feed, projections.

use crate::chunk::{Chunk, Step};
use crate::clock::Clock;
use crate::intake::{Intake, NotDone, Ticket, Waiting, Work};
use crate::metrics;
use crate::projections::Projections;
use crate::recovery::{self, RecoveryError};
use crate::replay::Replay;
use crate::sequencer::{Sequencer, Stopped};
use crate::store::record::Position;
use crate::store::{Fault, Snapshot, Store, StoreOptions};
use crate::view::{Publisher, Views};
use kubebid_core::units::{ClientKey, MarketId, Micros};
use kubebid_core::{Auction, Command, Exchange};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
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
}

impl EngineOptions {
    pub fn new(store: StoreOptions, clock: Clock) -> EngineOptions {
        EngineOptions { store, clock, intake: 16_384, projection_lag: 1_000_000, feed: 4096 }
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
    applied: watch::Receiver<u64>,
    projections: Projections,
    projected: watch::Receiver<u64>,
    projection_lag: u64,
}

/// The engine's end: wait for it, or bring it about.
#[derive(Debug)]
pub struct Running {
    intake: Arc<Intake>,
    exchange: oneshot::Receiver<Result<(), EngineError>>,
    projector: JoinHandle<Result<(), Fault>>,
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

/// A command to be handed over.
#[derive(Debug)]
pub struct Submission {
    pub key: Option<ClientKey>,
    pub command: Command,
    /// Where to move a stepped clock: AdvanceTime only.
    pub at: Option<Micros>,
    /// Not taken any more behind this moment.
    pub deadline: Option<Instant>,
}

impl Submission {
    pub fn new(key: Option<ClientKey>, command: Command) -> Submission {
        Submission { key, command, at: None, deadline: None }
    }
}

impl Engine {
    /// Opens the store, takes the journal, recovers, and runs. Returns when the engine is ready.
    pub async fn start(options: EngineOptions) -> Result<(Engine, Running), EngineError> {
        let store = Store::open(&options.store).await?;
        let projections = Projections::open(&store).await?;
        let intake = Intake::new(options.intake);
        let views = Arc::new(Views::default());
        let (feed, _) = broadcast::channel(options.feed);
        let (applied, applied_seq) = watch::channel(0);
        let (chunks, to_project) = mpsc::unbounded_channel();
        let (projected, projected_seq) = watch::channel(projections.watermark());
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
            applied,
        };
        // It leads on its own connection, in its own runtime, on its own thread.
        std::thread::Builder::new()
            .name("exchange".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let result = match runtime {
                    Ok(runtime) => runtime.block_on(owner.run(ready)),
                    Err(error) => Err(EngineError::Thread(error)),
                };
                let _ = ended.send(result);
            })
            .map_err(EngineError::Thread)?;
        let projector = tokio::spawn(projections.clone().run(to_project, projected));
        let running = Running { intake: intake.clone(), exchange, projector };
        if is_ready.await.is_err() {
            return Err(running.ended().await.err().unwrap_or(EngineError::Bug));
        }
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
        }));
        Ok((engine, running))
    }

    /// Hands a command over and waits until it is durable and applied; `look` then runs on the
    /// exchange's thread, with the state just behind the command. When the returned future is
    /// dropped before the command is stamped, the command is never taken.
    pub async fn submit<T: Send + 'static>(
        &self,
        submission: Submission,
        look: impl FnOnce(&Exchange, &Step) -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let lag = self.applied().saturating_sub(*self.0.projected.borrow());
        metrics::projection_lag(lag);
        if lag > self.0.projection_lag {
            return Err(NotDone::Full);
        }
        let (sender, receiver) = oneshot::channel();
        let Submission { key, command, at, deadline } = submission;
        let reply = Box::new(Waiting { sender, look });
        self.hand_over(Work::Command(Ticket { key, command, at, deadline, reply }))?;
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
        *self.0.applied.borrow()
    }

    /// Waits until views and exchange know the market up to `seq`.
    pub async fn wait_applied(&self, seq: u64) {
        let _ = self.0.applied.clone().wait_for(|applied| *applied >= seq).await;
    }

    /// Waits until the projections know the market up to `seq`.
    pub async fn wait_projected(&self, seq: u64) {
        let _ = self.0.projected.clone().wait_for(|projected| *projected >= seq).await;
    }

    pub fn projected(&self) -> u64 {
        *self.0.projected.borrow()
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
        // The last chunk has been sent: the projector ends when it has written it.
        if let Ok(Err(fault)) = self.projector.await {
            error!(error = %fault, "the projections ended");
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
    applied: watch::Sender<u64>,
}

impl Owner {
    async fn run(self, ready: oneshot::Sender<()>) -> Result<(), EngineError> {
        // Taking the journal first: from here on nobody else adds to it.
        let leadership = self.store.lead().await?;
        let projected = self.projections.watermark();
        let snapshot = self.store.snapshots().load_up_to(projected).await?;
        let (mut replay, position) = recovery::restore(snapshot);
        let mut publisher = Publisher::new(self.views);
        recall(&self.projections, &replay, &mut publisher).await?;
        publisher.publish_all(&mut replay.exchange);
        let head =
            recovery::catch_up(&self.store, &mut replay, position, &mut publisher, projected, &self.chunks)
                .await?;
        if head != leadership.head {
            let (expected, found) = (leadership.head, head);
            return Err(Fault::Diverged { expected, found }.into());
        }
        self.applied.send_replace(head.seq);
        info!(seq = head.seq, "ready");
        let _ = ready.send(());
        let sequencer = Sequencer {
            intake: self.intake,
            clock: self.clock,
            replay,
            head,
            writer: leadership.writer,
            publisher,
            feed: self.feed,
            projections: self.chunks,
            applied: self.applied,
        };
        let (replay, head) = sequencer.run().await?;
        save_snapshot(&self.store, &replay, head).await?;
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

async fn save_snapshot(store: &Store, replay: &Replay, head: Position) -> Result<(), EngineError> {
    let exchange = &replay.exchange;
    let body = exchange.snapshot();
    let state_hash = exchange.state_hash().to_le_bytes().to_vec();
    let snapshot = Snapshot { after: head, at_us: exchange.now().0, state_hash, body };
    store.snapshots().save(&snapshot).await?;
    info!(seq = head.seq, bytes = snapshot.body.len(), "saved a snapshot");
    Ok(())
}
