//! Compares bidding strategies: the same jobs, drawn by a seed, once for each strategy.
//!
//! On a trace of jobs they bid in the exchange. A trace of prices has no bids. There a job is one node's work in one
//! region, and takes the price as it is: it runs while the price is at most its ceiling, pays the price and not the
//! ceiling, and gets notice when the price steps above it. Then the strategy says whether to raise. A node that is
//! let go works on until the notice ends, and its job loses the work since the last checkpoint. One job does not move
//! the price, and others do not outbid it.

mod demand;
mod jobs;
mod outcome;
mod page;
mod price_grid;
mod run;

pub use demand::{DemandSettings, backtest_demand};
pub use outcome::{Backtest, Figure, Results};
pub use page::{page, page_of_demand};
pub use price_grid::{Grid, read_grids};

use kubebid_core::Price;
use kubebid_strategy::Strategy;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::fmt;

/// Prices are looked at every 5 minutes, as in `replay::prices`; a strategy looks at its ceiling as often.
pub(crate) const STEP_MINUTES: u64 = 5;

/// A bidder of a backtest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contestant {
    /// Bids by a strategy.
    Strategy(Strategy),
    /// Its whole maximum, always: what a truthful bidder does.
    MaxBid,
    /// Does not bid but pays the on-demand price: never waits, never loses.
    OnDemand,
}

impl Contestant {
    /// Returns the name for command lines and tables.
    pub fn name(self) -> &'static str {
        match self {
            Contestant::Strategy(strategy) => strategy.name(),
            Contestant::MaxBid => "max-bid",
            Contestant::OnDemand => "on-demand",
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Contestant {
    type Err = String;

    fn from_str(text: &str) -> Result<Contestant, String> {
        match text {
            "max-bid" => Ok(Contestant::MaxBid),
            "on-demand" => Ok(Contestant::OnDemand),
            name => name
                .parse()
                .map(Contestant::Strategy)
                .map_err(|unknown| format!("{unknown}; and max-bid, on-demand to compare with")),
        }
    }
}

/// The settings of a backtest on a trace of prices: all that the trace does not say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The on-demand price, per node-hour.
    pub on_demand: Price,
    /// The most that each job's owner would pay.
    pub max_bid: Price,
    /// Jobs of each seed.
    pub jobs: usize,
    /// Hours of work: the median, and the standard deviation of its logarithm.
    pub work_hours: f64,
    /// Standard deviation of the logarithm of the work.
    pub work_spread: f64,
    /// A deadline is this many times the work after the submission: drawn between the two.
    pub slack: (f64, f64),
    /// Minutes from a node's award until it works; they are not billed.
    pub boot_minutes: u64,
    /// Minutes from a notice to the loss of the node.
    pub notice_minutes: u64,
    /// Minutes of work between two checkpoints.
    pub checkpoint_minutes: u64,
    /// The least change of a ceiling that is worth an amendment, in 1/10000 (R4).
    pub increment_bps: u64,
    /// Prices are multiples of this, in micro-dollars.
    pub tick_micros: u64,
}

/// Plays every seed. Calls `progress` after each seed.
pub fn backtest(
    grids: &[Grid],
    contestants: &[Contestant],
    settings: &Settings,
    seeds: std::ops::Range<u64>,
    mut progress: impl FnMut(),
) -> Backtest {
    let mut backtest = Backtest::new(contestants);
    for seed in seeds {
        let jobs = jobs::draw(grids, settings, &mut ChaCha8Rng::seed_from_u64(seed));
        backtest.add(contestants.iter().map(|contestant| {
            let runs = jobs.iter().map(|job| run::run(&grids[job.grid], job, *contestant, settings));
            outcome::results(runs)
        }));
        progress();
    }
    backtest
}
