//! Runs markets without common accounts in exchanges of their own, some at the same time.

use super::outcome::Outcome;
use super::run::{WorldError, live_in};
use super::settings::Settings;
use crate::venue::InProcess;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Gives what `live` gives in this process. `progress` hears how many market-hours have passed since it last
/// did.
pub fn live_apart(
    settings: &Settings,
    threads: NonZeroUsize,
    progress: impl Fn(u64) + Sync,
) -> Result<Outcome, WorldError> {
    let next = AtomicU32::new(0);
    let some = || {
        let mut lives = Vec::new();
        loop {
            let market = next.fetch_add(1, Ordering::Relaxed);
            if market >= settings.markets {
                return lives;
            }
            let life = live_in(settings, market..market + 1, &mut InProcess::new(), &progress);
            lives.push((market, life));
        }
    };
    let mut lives: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.get()).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a world does not panic")).collect()
    });
    lives.sort_by_key(|(market, _)| *market);
    let mut whole = Outcome::new(settings.clone());
    for (_, life) in lives {
        whole.join(life?);
    }
    Ok(whole)
}
