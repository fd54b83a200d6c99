//! Garbage collection of bids: compares the bids at the engine with the slots in the cluster from time to time.

use crate::act;
use crate::context::Context;
use crate::observe;
use crate::plan::garbage::Garbage;
use std::time::Duration;
use tokio::time::{Instant, interval};
use tracing::warn;

/// The interval of the comparison.
const INTERVAL: Duration = Duration::from_secs(2);

/// Ends bids without a slot while it is polled.
pub(super) async fn run(context: &Context) {
    let (start, mut garbage) = (Instant::now(), Garbage::default());
    let mut ticks = interval(INTERVAL);
    loop {
        ticks.tick().await;
        if context.check_leadership().is_err() {
            continue;
        }
        let Some(without_slot) = observe::garbage::observe(context) else { continue };
        let bids = without_slot.keys().copied().collect();
        for bid in garbage.plan(&bids, start.elapsed()) {
            let slot = &without_slot[&bid];
            if let Err(error) = act::garbage::end_bid(bid, slot, None, context).await {
                warn!(bid, slot = slot.name, %error, "a bid without a slot could not be ended");
                garbage.failed(bid, start.elapsed());
            }
        }
    }
}
