//! Simulates markets without common accounts in exchanges of their own, some at the same time.

use super::outcome::Outcome;
use super::run::{WorldError, simulate_range};
use super::settings::Settings;
use crate::parallel::in_parallel;
use crate::venue::InProcess;
use std::num::NonZeroUsize;

/// Gives the same outcome as [`simulate`](super::simulate) in this process. Calls `progress` with the market-hours that
/// have passed since the last call.
pub fn simulate_parallel(
    settings: &Settings,
    threads: NonZeroUsize,
    progress: impl Fn(u64) + Sync,
) -> Result<Outcome, WorldError> {
    let one = |market: usize| {
        let market = market as u32;
        simulate_range(settings, market..market + 1, &mut InProcess::new(), &progress)
    };
    let mut whole = Outcome::new(settings.clone());
    for outcome in in_parallel(threads, settings.markets as usize, one) {
        whole.join(outcome?);
    }
    Ok(whole)
}
