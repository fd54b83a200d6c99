//! Simulates markets without common accounts in exchanges of their own, some at the same time.

use super::outcome::Outcome;
use super::run::{WorldError, simulate_range};
use super::settings::Settings;
use crate::venue::InProcess;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Gives the same outcome as [`simulate`](super::simulate) in this process. Calls `progress` with the market-hours that
/// have passed since the last call.
pub fn simulate_parallel(
    settings: &Settings,
    threads: NonZeroUsize,
    progress: impl Fn(u64) + Sync,
) -> Result<Outcome, WorldError> {
    let next = AtomicU32::new(0);
    let some = || {
        let mut outcomes = Vec::new();
        loop {
            let market = next.fetch_add(1, Ordering::Relaxed);
            if market >= settings.markets {
                return outcomes;
            }
            let outcome = simulate_range(settings, market..market + 1, &mut InProcess::new(), &progress);
            outcomes.push((market, outcome));
        }
    };
    let mut outcomes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.get()).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a simulation does not panic")).collect()
    });
    outcomes.sort_by_key(|(market, _)| *market);
    let mut whole = Outcome::new(settings.clone());
    for (_, outcome) in outcomes {
        whole.join(outcome?);
    }
    Ok(whole)
}
