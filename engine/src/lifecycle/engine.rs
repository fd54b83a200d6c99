//! The engine: starts all parts, and is the handle through which callers submit commands and ask questions.

use crate::events::commit::{Commit, Step};
use crate::lifecycle::bench_stubs;
use crate::lifecycle::error::EngineError;
use crate::lifecycle::leader::LeaderThread;
use crate::lifecycle::options::{EngineOptions, Start};
use crate::lifecycle::scrub;
use crate::lifecycle::snapshotter::Snapshotter;
use crate::lifecycle::standby::StoreWait;
use crate::readmodel::ReadModel;
use crate::runtime::account_feeds::{AccountFeed, AccountFeeds};
use crate::runtime::clock::{Clock, MarketClock};
use crate::runtime::delivery::Deliverer;
use crate::runtime::health::{Health, in_full};
use crate::runtime::intake::{
    Answer, Intake, Outcomes, Submission, SubmitError, Taker, Ticket, Waiting, Work, unstamped,
};
use crate::runtime::lease_state::LeaseState;
use crate::runtime::progress::{self, Reached};
use crate::runtime::spans;
use crate::runtime::views::Views;
use crate::store::{Fault, Store};
use futures_util::future::BoxFuture;
use kubebid_core::units::AccountName;
use kubebid_core::{Exchange, StampedCommand};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{error, warn};
use uuid::Uuid;

/// The handle of a running engine: it submits commands and asks questions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

/// A handle that keeps no engine alive.
#[derive(Clone, Debug)]
pub(crate) struct WeakEngine(Weak<Inner>);

impl WeakEngine {
    /// Returns the engine if another handle is left.
    pub(crate) fn upgrade(&self) -> Option<Engine> {
        self.0.upgrade().map(Engine)
    }
}

#[derive(Debug)]
struct Inner {
    intake: Arc<Intake>,
    clock: MarketClock,
    store: Store,
    views: Arc<Views>,
    feed: broadcast::Sender<Arc<Commit>>,
    account_feeds: AccountFeeds,
    applied: Reached,
    read_model: ReadModel,
    projected: Reached,
    projection_lag: u64,
    saved: Reached,
    lease_state: LeaseState,
    health: Health,
}

/// The parts of a running engine, to wait for its end or to stop it.
#[derive(Debug)]
pub struct Running {
    store: Store,
    intake: Arc<Intake>,
    exchange: oneshot::Receiver<Result<(), EngineError>>,
    deliverer: JoinHandle<()>,
    projector: JoinHandle<Result<(), Fault>>,
    /// Absent while the exchange is being recovered.
    snapshotter: Option<JoinHandle<()>>,
    scrubber: Option<JoinHandle<()>>,
    health: Health,
}

impl Engine {
    /// Opens the store, acquires the leadership, recovers the exchange, and runs. Returns when the
    /// engine leads and is ready. If the returned future is dropped earlier, the engine never leads.
    pub fn start(options: EngineOptions) -> BoxFuture<'static, Result<(Engine, Running), EngineError>> {
        // Boxed, so that it is compiled here and not again in every program that runs an engine.
        Box::pin(Engine::start_here(options))
    }

    async fn open(options: &EngineOptions) -> Result<(Store, ReadModel), EngineError> {
        let store = Store::open(&options.store).await?;
        let read_model = ReadModel::open(&store).await?;
        Ok((store, read_model))
    }

    async fn start_here(options: EngineOptions) -> Result<(Engine, Running), EngineError> {
        let mut wait = StoreWait::new(options.start);
        let (store, read_model) = loop {
            match Engine::open(&options).await {
                Ok(opened) => break opened,
                Err(error) => wait.after(error).await?,
            }
        };
        if options.start == Start::Standby && !store.has_lease() {
            return Err(EngineError::NoStandby);
        }
        let clock = MarketClock::new(options.clock, options.machine_clock.clone(), options.max_clock_jump);
        let lease_state = LeaseState::for_life();
        let health = Health::default();
        let intake = Intake::new(options.intake);
        let views = Arc::new(Views::default());
        let (feed, _) = broadcast::channel(options.feed);
        let account_feeds = AccountFeeds::new(options.feed);
        let (to_account_feeds, commits) = mpsc::unbounded_channel();
        tokio::spawn(account_feeds.clone().run(commits));
        let (applied, applied_seq) = progress::from(0);
        let (commits, to_project) = mpsc::unbounded_channel();
        let (deliveries, to_deliver) = mpsc::unbounded_channel();
        let deliverer = Deliverer {
            feed: feed.clone(),
            account_feeds: to_account_feeds,
            applied: applied.clone(),
            _taker: Taker(intake.clone()),
        };
        let deliverer = tokio::spawn(deliverer.run(to_deliver));
        let (projected, projected_seq) = progress::from(read_model.watermark());
        let (saved, saved_seq) = progress::from(0);
        let (ready, is_ready) = oneshot::channel();
        let (ended, exchange) = oneshot::channel();
        let leader = LeaderThread {
            store: store.clone(),
            read_model: read_model.clone(),
            options: options.clone(),
            clock: clock.clone(),
            intake: intake.clone(),
            views: views.clone(),
            deliveries,
            commits,
            projecting: projected.clone(),
            projected: projected_seq.clone(),
            applied,
            saved: saved.clone(),
            lease_state: lease_state.clone(),
            health: health.clone(),
            runtime: Handle::current(),
        };
        let taker = Taker(intake.clone());
        // The leader has its own connection in its own runtime on its own thread.
        std::thread::Builder::new()
            .name("exchange".to_owned())
            .spawn(move || {
                let _taker = taker;
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let result = match runtime {
                    Ok(runtime) => runtime.block_on(leader.run(ready)),
                    Err(error) => Err(EngineError::Thread(error)),
                };
                let _ = ended.send(result);
            })
            .map_err(EngineError::Thread)?;
        let projector = if options.omitted.projections {
            tokio::spawn(bench_stubs::no_projections(to_project))
        } else {
            tokio::spawn(read_model.clone().run(options.retention, to_project, projected, health.clone()))
        };
        let mut running = Running {
            store: store.clone(),
            intake: intake.clone(),
            exchange,
            deliverer,
            projector,
            snapshotter: None,
            scrubber: None,
            health: health.clone(),
        };
        if is_ready.await.is_err() {
            return Err(running.ended().await.err().unwrap_or(EngineError::Bug));
        }
        let (every, projected) = (options.snapshot_every, projected_seq.clone());
        let snapshotter = Snapshotter { store: store.clone(), every, projected, saved };
        running.snapshotter = (!options.omitted.journal).then(|| tokio::spawn(snapshotter.run()));
        running.scrubber = options.scrub_every.map(|every| tokio::spawn(scrub::run(store.clone(), every)));
        let engine = Engine(Arc::new(Inner {
            intake,
            clock,
            store,
            views,
            feed,
            account_feeds,
            applied: applied_seq,
            read_model,
            projected: projected_seq,
            projection_lag: options.projection_lag,
            saved: saved_seq,
            lease_state,
            health,
        }));
        Ok((engine, running))
    }

    /// Submits a command and waits until it is durable and applied. Returns what `settle` makes of
    /// its outcome. `settle` runs before any subscriber receives the commit, even if the returned
    /// future has been dropped. A command whose future is dropped, or whose deadline passes, before
    /// it is stamped is never taken.
    pub async fn submit<T: Send + 'static>(
        &self,
        command: Submission,
        settle: impl FnOnce(&Step) -> T + Send + 'static,
    ) -> Result<T, SubmitError> {
        let mut settle = Some(settle);
        let once =
            move |step: &Step| settle.take().map(|settle| settle(step)).expect("one command is settled once");
        let Submission { key, command, at, deadline } = command;
        let (waiting, answer) = Waiting::new(1, once);
        let commands = vec![unstamped(key, command)];
        let values =
            self.wait_for(Ticket { commands, at, deadline, reply: Box::new(waiting) }, answer).await?;
        Ok(values.into_iter().next().expect("there is a value for each command"))
    }

    /// Works like [`Engine::submit`], for commands that follow each other. Returns what `settle` makes of each.
    pub(crate) async fn submit_all<T: Send + 'static>(
        &self,
        commands: Vec<StampedCommand>,
        deadline: Option<Instant>,
        settle: impl FnMut(&Step) -> T + Send + 'static,
    ) -> Result<Vec<T>, SubmitError> {
        let (waiting, answer) = Waiting::new(commands.len(), settle);
        self.wait_for(Ticket { commands, at: None, deadline, reply: Box::new(waiting) }, answer).await
    }

    async fn wait_for<T>(&self, ticket: Ticket, answer: Answer<T>) -> Result<Vec<T>, SubmitError> {
        if self.applied().saturating_sub(self.projected()) > self.0.projection_lag {
            return Err(SubmitError::Full);
        }
        self.hand_over(Work::Commands(ticket))?;
        // The sender is dropped without an answer only if the exchange stops while it has the
        // command.
        let Outcomes { last, values } = answer.await.unwrap_or(Err(SubmitError::Unknown))?;
        spans::stamped(last);
        Ok(values)
    }

    /// Asks the exchange a question. It is a query of the core, and runs on the exchange's thread
    /// between two commits. Everything that it reads is durable.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Exchange) -> T + Send + 'static,
    ) -> Result<T, SubmitError> {
        let (sender, receiver) = oneshot::channel();
        let mut asked = Some((question, sender));
        self.hand_over(Work::Question(Box::new(move |exchange, _| {
            if let Some((question, sender)) = asked.take().filter(|(_, sender)| !sender.is_closed()) {
                let _ = sender.send(question(exchange));
            }
            true
        })))?;
        receiver.await.map_err(|_| SubmitError::Stopping)
    }

    /// Asks the exchange a question for each of many things, in their order. The questions take as
    /// many turns as they need. Commands are applied between the turns, so no command waits for all
    /// of them.
    pub(crate) async fn ask_each<S: Send + 'static, T: Send + 'static>(
        &self,
        things: Vec<S>,
        mut question: impl FnMut(&Exchange, S) -> T + Send + 'static,
    ) -> Result<Vec<T>, SubmitError> {
        let (sender, receiver) = oneshot::channel();
        let (mut sender, mut found) = (Some(sender), Vec::with_capacity(things.len()));
        let mut things = things.into_iter();
        self.hand_over(Work::Question(Box::new(move |exchange, end_of_turn| {
            if sender.as_ref().is_none_or(oneshot::Sender::is_closed) {
                return true;
            }
            while let Some(thing) = things.next() {
                found.push(question(exchange, thing));
                if Instant::now() >= end_of_turn && things.len() > 0 {
                    return false;
                }
            }
            if let Some(sender) = sender.take() {
                let _ = sender.send(std::mem::take(&mut found));
            }
            true
        })))?;
        receiver.await.map_err(|_| SubmitError::Stopping)
    }

    fn hand_over(&self, work: Work) -> Result<(), SubmitError> {
        self.0.intake.push(work)
    }

    /// Returns the number of the last command that is applied and published.
    pub fn applied(&self) -> u64 {
        self.0.applied.seq()
    }

    /// Waits until the views and the exchange have the market up to `seq`.
    pub async fn wait_applied(&self, seq: u64) {
        self.0.applied.wait(seq).await;
    }

    /// Waits until the projections have the market up to `seq`, or have ended.
    pub async fn wait_projected(&self, seq: u64) {
        self.0.projected.wait(seq).await;
    }

    /// Waits until a snapshot has the market up to `seq`.
    pub async fn wait_saved(&self, seq: u64) {
        self.0.saved.wait(seq).await;
    }

    /// Returns the last command whose rows are in the tables.
    pub fn projected(&self) -> u64 {
        self.0.projected.seq()
    }

    /// Returns the last command that is in a snapshot.
    pub fn saved(&self) -> u64 {
        self.0.saved.seq()
    }

    /// Returns the published views of the markets.
    pub fn views(&self) -> &Views {
        &self.0.views
    }

    /// Subscribes to all commits from now on. A subscriber that is too slow loses commits, and gets an
    /// error that says so.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Commit>> {
        self.0.feed.subscribe()
    }

    /// Subscribes to the commits from now on that may concern an account.
    pub(crate) fn subscribe_to(&self, account: AccountName) -> AccountFeed {
        self.0.account_feeds.subscribe(account)
    }

    /// Returns the engine's store.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Returns the readable tables.
    pub fn read_model(&self) -> &ReadModel {
        &self.0.read_model
    }

    /// Returns the kind of the market's clock.
    pub fn clock(&self) -> Clock {
        self.0.clock.kind()
    }

    /// Returns the clock that says what time it is between two commands.
    pub(crate) fn market_clock(&self) -> &MarketClock {
        &self.0.clock
    }

    /// Returns the identity of the journal, which is a part of every cursor.
    pub fn journal_id(&self) -> Uuid {
        self.0.store.journal().id()
    }

    /// Returns true if no other engine leads, as far as this one can know. Its answers count only
    /// then.
    pub fn leads(&self) -> bool {
        self.0.lease_state.is_valid()
    }

    /// Returns why requests should go to another engine although this one leads: tables that are not
    /// written, or a store that refuses writes. None if all is well.
    pub fn trouble(&self) -> Option<String> {
        self.0.health.trouble()
    }

    /// Returns a handle that does not keep the engine alive.
    pub(crate) fn downgrade(&self) -> WeakEngine {
        WeakEngine(Arc::downgrade(&self.0))
    }

    /// Returns true if commands are taken.
    pub fn is_open(&self) -> bool {
        !self.0.intake.is_closed()
    }
}

impl Running {
    /// Stops taking commands, completes those that were taken, and saves a snapshot.
    pub async fn stop(self) -> Result<(), EngineError> {
        self.intake.close();
        self.ended().await
    }

    /// Works like [`Running::stop`], for a store that may not answer any more: returns after `grace` at the latest.
    ///
    /// # Errors
    /// [`EngineError::Cut`] if the exchange has not ended by then. Tables that are not complete by then are no error:
    /// an engine that starts goes on from where they are.
    pub async fn stop_within(mut self, grace: Duration) -> Result<(), EngineError> {
        self.intake.close();
        let (until, health) = (tokio::time::Instant::now() + grace, self.health.clone());
        let ended = match tokio::time::timeout_at(until, self.wait()).await {
            Ok(ended) => ended,
            Err(_) => return Err(EngineError::Cut { grace, why: health.trouble() }),
        };
        let is_in_order = ended.is_ok();
        if tokio::time::timeout_at(until, self.finish(is_in_order)).await.is_err() {
            warn!(
                why = health.trouble(),
                "the readable tables are not complete; an engine that starts goes on"
            );
        }
        ended
    }

    /// Waits until the engine has ended by itself.
    pub async fn ended(self) -> Result<(), EngineError> {
        let mut running = self;
        let result = running.wait().await;
        running.finish(result.is_ok()).await;
        result
    }

    /// Waits for the tasks that go on after the exchange has ended. If it ended in order, puts everything into the
    /// file of the store.
    async fn finish(self, is_in_order: bool) {
        self.intake.close();
        // A snapshot that is only partly saved does not count.
        for task in [self.snapshotter, self.scrubber].into_iter().flatten() {
            task.abort();
            let _ = task.await;
        }
        // The last commit has been sent. These tasks end when they have delivered and written it.
        if let Err(bug) = self.deliverer.await {
            error!(error = %bug, "the delivery of commits ended unexpectedly");
        }
        match self.projector.await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => error!(error = %fault, "the projections ended"),
            Err(bug) => error!(error = %bug, "the projections ended unexpectedly"),
        }
        if is_in_order && let Err(fault) = self.store.complete_file().await {
            warn!(error = in_full(&fault), "a copy of the store's file alone is not complete");
        }
    }

    /// Works like [`Running::ended`], without giving up the handle.
    pub async fn wait(&mut self) -> Result<(), EngineError> {
        (&mut self.exchange).await.unwrap_or(Err(EngineError::Bug))
    }
}
