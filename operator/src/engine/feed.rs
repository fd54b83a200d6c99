//! Follows the engine: lists the bids, then watches the events, and lists again from time to time.

use super::{Engine, SlotKey};
use kubebid_client::{Error, v1};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::warn;

/// The interval at which everything is listed again, give or take a tenth.
const RELIST: Duration = Duration::from_secs(60);
/// The interval at which the engine is asked if it answers.
const PROBE: Duration = Duration::from_secs(10);
/// The time to wait before an engine that does not answer is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// The engine's events, which keep the bid cache current.
#[derive(Debug)]
pub struct Feed {
    engine: Arc<Engine>,
}

impl Feed {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Feed { engine }
    }

    /// Keeps the bid cache current while it is polled, and reports each slot that may have changed.
    pub async fn run(self, changed: impl Fn(SlotKey)) {
        loop {
            let was_away = self.engine.bid_cache.fault().is_some();
            match self.relist(&changed).await {
                Ok(cursor) => {
                    let beat = RELIST.mul_f64(0.9 + 0.2 * fastrand::f64());
                    tokio::select! {
                        () = self.follow(cursor, Instant::now() + beat, &changed) => {}
                        () = self.until_no_answer() => {}
                    }
                }
                Err(error) => {
                    if !was_away {
                        warn!(%error, "the engine cannot be listed");
                    }
                    sleep(RETRY.mul_f64(0.5 + fastrand::f64())).await;
                }
            }
        }
    }

    async fn relist(&self, changed: impl Fn(SlotKey)) -> Result<String, Error> {
        let engine = &self.engine;
        // The journal is known before the bids that it does not have.
        engine.seq().await?;
        let bids = engine.open(engine.labels([]), 0).await?;
        let allocations = engine.held(engine.labels([]), bids.seq).await?;
        engine.bid_cache.relist(&bids.bids, &allocations.allocations).into_iter().for_each(changed);
        Ok(bids.cursor)
    }

    async fn follow(&self, cursor: String, until: Instant, changed: impl Fn(SlotKey)) {
        let filter = v1::EventFilter { labels: self.engine.labels([]), ..Default::default() };
        let mut watch = self.engine.client.watch_events(Some(filter), cursor);
        while let Ok(Some(frame)) = timeout_at(until, watch.next()).await {
            match self.engine.answered(frame) {
                Ok(frame) => {
                    let slots: BTreeSet<_> =
                        frame.events.iter().filter_map(|event| self.engine.bid_cache.fold(event)).collect();
                    slots.into_iter().for_each(&changed);
                }
                Err(error) => {
                    warn!(%error, "the engine's events broke off");
                    return sleep(RETRY).await;
                }
            }
        }
    }

    /// Asks the engine from time to time, until it does not answer: a watch of an engine that is away only waits.
    async fn until_no_answer(&self) {
        loop {
            sleep(PROBE).await;
            if self.engine.seq().await.is_err() {
                return;
            }
        }
    }
}
