//! The exchange's thread: acquires the leadership, replays the journal, and serves commands until the end.

use crate::events::commit::Commit;
use crate::lifecycle::bench_stubs::NoJournal;
use crate::lifecycle::error::EngineError;
use crate::lifecycle::follower::{Follower, ToProjections};
use crate::lifecycle::lease_keeper::LeaseKeeper;
use crate::lifecycle::options::EngineOptions;
use crate::lifecycle::options::Start;
use crate::lifecycle::snapshotter;
use crate::lifecycle::standby::{self, Led, StoreWait, Unprojected};
use crate::readmodel::ReadModel;
use crate::runtime::clock::{self, Clock, MarketClock};
use crate::runtime::delivery::Delivery;
use crate::runtime::health::Health;
use crate::runtime::intake::Intake;
use crate::runtime::lease_state::LeaseState;
use crate::runtime::metrics;
use crate::runtime::progress::{Reached, Reaching};
use crate::runtime::sequencer::{Journaling, Market, Questions, Sequencer, Stopped};
use crate::runtime::views::Views;
use crate::store::{Fault, Leadership, Position, Store};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tracing::info;

/// The exchange's thread.
pub(crate) struct LeaderThread {
    pub(crate) store: Store,
    pub(crate) read_model: ReadModel,
    pub(crate) options: EngineOptions,
    pub(crate) clock: MarketClock,
    pub(crate) intake: Arc<Intake>,
    pub(crate) views: Arc<Views>,
    pub(crate) deliveries: mpsc::UnboundedSender<Delivery>,
    pub(crate) commits: mpsc::UnboundedSender<Arc<Commit>>,
    /// The watermark of the tables when this engine began to lead, written by earlier engines.
    pub(crate) projecting: Reaching,
    pub(crate) projected: Reached,
    pub(crate) applied: Reaching,
    pub(crate) saved: Reaching,
    pub(crate) lease_state: LeaseState,
    pub(crate) health: Health,
    /// The runtime of the service. It renews the lease, however busy the exchange is.
    pub(crate) runtime: Handle,
}

impl LeaderThread {
    pub(crate) async fn run(self, mut ready: oneshot::Sender<()>) -> Result<(), EngineError> {
        tokio::select! {
            led = self.acquire() => {
                let (sequencer, keeper) = led?;
                self.serve(sequencer, keeper, ready).await
            }
            // The caller has given up waiting for this engine to lead.
            () = ready.closed() => Ok(()),
        }
    }

    /// Waits until this engine leads and has replayed the whole journal.
    async fn acquire(&self) -> Result<(Sequencer, Option<LeaseKeeper>), EngineError> {
        let LeaderThread { store, read_model, options, .. } = self;
        let mut wait = StoreWait::new(options.start);
        while let Err(error) = self.check_clock().await {
            wait.after(error).await?;
        }
        // An engine that waits for no other one takes the lead first: from then on no other engine
        // adds to the journal.
        let mut led = match options.start {
            Start::TakeOver | Start::Alone => {
                let led = standby::lead_now(store, options).await?;
                self.check_history(led.0.head).await?;
                Some(self.keep(led))
            }
            Start::Standby => None,
        };
        let mut wait = StoreWait::new(options.start);
        let mut follower = loop {
            match Follower::begin(store, read_model, self.views.clone()).await {
                Ok(follower) => break follower,
                Err(fault) => wait.after(fault.into()).await?,
            }
        };
        self.saved.reach(follower.seq());
        let mut unprojected = Unprojected { watermark: read_model.watermark(), ..Unprojected::default() };
        let (leadership, keeper) = match led.take() {
            Some(led) => led,
            None => {
                let tables = &read_model.tables;
                let led = standby::stand_by(store, tables, &mut follower, options, &mut unprojected).await?;
                let mut wait = StoreWait::new(options.start);
                while let Err(fault) = self.check_history(led.0.head).await {
                    wait.after(fault.into()).await?;
                }
                self.keep(led)
            }
        };
        let Unprojected { commits, watermark } = unprojected;
        self.projecting.reach(watermark);
        let mut to_projections = ToProjections {
            commits: self.commits.clone(),
            watermark,
            projected: self.projected.clone(),
            lag: options.projection_lag,
        };
        for commit in commits {
            to_projections.send(commit).await;
        }
        let mut wait = StoreWait::new(options.start);
        while let Err(error) = follower.catch_up(&mut to_projections).await {
            wait.after(error.into()).await?;
        }
        let Follower { replay, publisher, position: head, .. } = follower;
        if head != leadership.head {
            let (expected, found) = (leadership.head, head);
            return Err(Fault::Diverged { expected, found }.into());
        }
        let writer = if options.omitted.journal { Box::new(NoJournal) } else { leadership.writer };
        let market = Market {
            replay,
            publisher,
            projections: self.commits.clone(),
            deliveries: self.deliveries.clone(),
        };
        let lease_state = (!store.has_lease()).then(|| (self.lease_state.clone(), options.lease));
        let journaling = Journaling::new(writer, head, self.health.clone(), lease_state);
        self.clock.go_on_from(market.replay.exchange.now());
        let sequencer = Sequencer {
            questions: Questions::new(self.intake.clone()),
            intake: self.intake.clone(),
            clock: self.clock.clone(),
            store: store.clone(),
            journaling,
            stamped: market.replay.exchange.now(),
            market,
        };
        Ok((sequencer, keeper))
    }

    /// Refuses to lead a journal that lacks commands that the tables or snapshots have. Deletes the other rows of
    /// commands that it lacks, before the first command gets one of their numbers.
    async fn check_history(&self, head: Position) -> Result<(), Fault> {
        if self.options.omitted.journal {
            return Ok(());
        }
        self.store.check_history(head, self.read_model.tables.watermark().await?).await?;
        self.store.forget_beyond_end(u64::MAX).await
    }

    /// Refuses to start with a clock that is wrong, because its stamps would be final.
    async fn check_clock(&self) -> Result<(), EngineError> {
        if self.options.clock == Clock::Stepped {
            return Ok(());
        }
        let known = clock::Known {
            last: self.store.last_time().await?,
            mark: self.store.clock_mark().await?,
            database: self.store.database_time().await?,
        };
        Ok(clock::check(&self.clock, &known, self.options.accept_time_jump)?)
    }

    /// Starts to renew the lease.
    fn keep(&self, (mut leadership, since): Led) -> (Leadership, Option<LeaseKeeper>) {
        let _runtime = self.runtime.enter();
        let keeper = leadership
            .lease
            .take()
            .map(|lease| LeaseKeeper::start(lease, since, self.lease_state.clone(), self.intake.clone()));
        (leadership, keeper)
    }

    /// Takes commands until the intake is closed.
    async fn serve(
        self,
        sequencer: Sequencer,
        keeper: Option<LeaseKeeper>,
        ready: oneshot::Sender<()>,
    ) -> Result<(), EngineError> {
        let LeaderThread { store, options, applied, saved, projecting, .. } = self;
        drop(projecting);
        let seq = sequencer.journaling.head.seq;
        applied.reach(seq);
        metrics::followed(seq);
        info!(seq, "ready");
        let _ = ready.send(());
        let (replay, head) = sequencer.run().await?;
        // Done before the snapshot, which takes a while. Nothing is written to the journal any
        // more.
        if let Some(keeper) = keeper
            && !keeper.give_back().await
        {
            return Err(
                Stopped::Superseded("another engine took the lease, or its row is gone".to_owned()).into()
            );
        }
        if options.omitted.journal {
            return Ok(());
        }
        snapshotter::save(&store, &replay.exchange, head).await?;
        saved.reach(head.seq);
        Ok(())
    }
}
