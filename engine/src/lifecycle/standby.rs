//! Acquires the leadership. A standby replays the journal while it waits, so that it can take over quickly.

use crate::events::commit::Commit;
use crate::lifecycle::error::EngineError;
use crate::lifecycle::follower::Follower;
use crate::lifecycle::options::{EngineOptions, Start};
use crate::readmodel::sql::Tables;
use crate::runtime::clock::since_boot;
use crate::runtime::health::in_full;
use crate::runtime::metrics;
use crate::runtime::recovery::RecoveryError;
use crate::store::{Fault, Leadership, LeaseCondition, Store};
use kubebid_core::units::Micros;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tracing::{info, warn};

/// The interval at which a standby reads the journal and checks if it may lead.
const LOOK: Duration = Duration::from_millis(100);
/// The time that a standby waits before it asks a store again that did not answer.
const RETRY: Duration = Duration::from_millis(200);

/// The longest time that a standby waits for a store that does not answer.
const RETRY_MOST: Duration = Duration::from_secs(2);

/// Waits of an engine for a store that is away while it starts. Only a standby waits: any other engine reports it, for
/// nothing else would.
#[derive(Debug)]
pub(crate) struct StoreWait {
    start: Start,
    pause: Duration,
}

impl StoreWait {
    pub(crate) fn new(start: Start) -> StoreWait {
        StoreWait { start, pause: RETRY }
    }

    /// Waits a while after an error, so that the same can be tried again.
    ///
    /// # Errors
    /// The error itself, if it does not pass by waiting, or if this engine does not wait.
    pub(crate) async fn after(&mut self, error: EngineError) -> Result<(), EngineError> {
        let is_away = match &error {
            EngineError::Store(fault) | EngineError::Recovery(RecoveryError::Store(fault)) => fault.is_away(),
            EngineError::Recovery(RecoveryError::Behaviour { .. } | RecoveryError::Record { .. })
            | EngineError::Clock(_)
            | EngineError::Stopped(_)
            | EngineError::Led
            | EngineError::NoStandby
            | EngineError::Thread(_)
            | EngineError::Bug
            | EngineError::Cut { .. } => false,
        };
        if self.start != Start::Standby || !is_away {
            return Err(error);
        }
        warn!(error = in_full(&error), "the store does not answer; waiting for it");
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(RETRY_MOST);
        Ok(())
    }
}

/// Leadership, and an instant of [`since_boot`] before it began.
pub(crate) type Led = (Leadership, Micros);

async fn lead(store: &Store, taking: LeaseCondition, options: &EngineOptions) -> Result<Option<Led>, Fault> {
    let before = since_boot();
    let led = store.lead_by_lease(taking, options.lease).await?;
    Ok(led.map(|leadership| (leadership, before)))
}

/// Acquires the leadership without standing by. If the leader has died, its session has ended; if it
/// hangs or cannot reach the store, its lease runs out. A leader that renews its lease is alive.
pub(crate) async fn lead_now(store: &Store, options: &EngineOptions) -> Result<Led, EngineError> {
    let taking =
        if options.start == Start::TakeOver { LeaseCondition::Anyway } else { LeaseCondition::LapsedOrDead };
    let mut first = None;
    loop {
        if let Some(led) = lead(store, taking, options).await? {
            return Ok(led);
        }
        let found = store.lease().await?;
        let until_us = *first.get_or_insert_with(|| {
            info!(remaining = ?found.remaining, "waiting to see whether the engine that led still lives");
            found.until_us
        });
        if found.until_us != until_us {
            return Err(EngineError::Led);
        }
        sleep(found.remaining.min(LOOK)).await;
    }
}

/// Commits that the read model lacks. The present leader may die before it writes them.
#[derive(Debug, Default)]
pub(crate) struct Unprojected {
    pub(crate) commits: VecDeque<Arc<Commit>>,
    /// The watermark of the read model when it was last read.
    pub(crate) watermark: u64,
}

impl Unprojected {
    pub(crate) async fn look(&mut self, tables: &Tables) -> Result<(), Fault> {
        self.watermark = tables.watermark().await?;
        while self.commits.front().is_some_and(|commit| commit.last_seq().0 <= self.watermark) {
            self.commits.pop_front();
        }
        Ok(())
    }
}

/// Follows the journal until this engine leads.
pub(crate) async fn stand_by(
    store: &Store,
    tables: &Tables,
    follower: &mut Follower,
    options: &EngineOptions,
    unprojected: &mut Unprojected,
) -> Result<Led, EngineError> {
    info!(seq = follower.seq(), "standing by");
    metrics::followed(follower.seq());
    loop {
        match look(store, tables, follower, options, unprojected).await {
            Ok(Some(led)) => {
                info!(seq = follower.seq(), "taking over");
                return Ok(led);
            }
            Ok(None) => {}
            Err(error) if passes(&error) => {
                warn!(error = in_full(&error), "the store does not answer");
                sleep(RETRY).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn look(
    store: &Store,
    tables: &Tables,
    follower: &mut Follower,
    options: &EngineOptions,
    unprojected: &mut Unprojected,
) -> Result<Option<Led>, RecoveryError> {
    while let Some(commits) = follower.next(unprojected.watermark).await? {
        unprojected.commits.extend(commits);
        metrics::followed(follower.seq());
    }
    unprojected.look(tables).await?;
    let found = store.lease().await?;
    if found.remaining.is_zero()
        && let Some(led) = lead(store, LeaseCondition::Lapsed, options).await?
    {
        return Ok(Some(led));
    }
    sleep(found.remaining.min(LOOK)).await;
    Ok(None)
}

/// Returns true if the error may pass by itself. A journal that cannot be decoded stays so.
fn passes(error: &RecoveryError) -> bool {
    match error {
        RecoveryError::Store(fault) => fault.passes(),
        RecoveryError::Behaviour { .. } | RecoveryError::Record { .. } => false,
    }
}
