//! Compares bidding strategies: the same jobs, drawn by a seed, once for each strategy.
//!
//! On a trace of jobs they bid in the exchange. On a trace of prices, which has no bids behind it, a job is
//! one node's work in one region, and takes the price as it comes: it runs where the price is at most
//! its ceiling, pays the price and not the ceiling, and is given notice where the price steps above it. Then
//! the strategy says whether to raise; what it lets go of works on until the notice ends, and loses what
//! came after the last checkpoint. So one job does not move the price, and others do not outbid it: how much
//! that matters only a market can say.

mod demand;
mod jobs;
mod market;
mod outcome;
mod page;
mod run;

pub use demand::{Market, backtest_demand};
pub(crate) use jobs::standard_normal;
pub use market::{Grid, read_grids};
pub use outcome::{Backtest, Figure, Results};
pub use page::{page, page_of_demand};

use kubebid_core::Price;
use kubebid_strategy::Strategy;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::fmt;

/// Prices are looked at every 5 minutes, as in `price_replay`; a strategy looks at its ceiling as often.
pub(crate) const STEP_MINUTES: u64 = 5;

/// Whoever bids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contestant {
    Strategy(Strategy),
    /// Its whole maximum, always: what a truthful bidder does.
    MaxBid,
    /// Does not bid but pays the on-demand price: never waits, never loses.
    OnDemand,
}

impl Contestant {
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

/// What a trace of prices does not say.
#[derive(Clone, Debug)]
pub struct Settings {
    pub on_demand: Price,
    /// The most that each job's owner would pay.
    pub max_bid: Price,
    /// Jobs of each seed.
    pub jobs: usize,
    /// Hours of work: the median, and the standard deviation of its logarithm.
    pub work_hours: f64,
    pub work_spread: f64,
    /// A deadline is this many times the work after the submission: drawn between the two.
    pub slack: (f64, f64),
    /// From a node's award until it works, unbilled; the notice; the time between two checkpoints.
    pub boot_minutes: u64,
    pub notice_minutes: u64,
    pub checkpoint_minutes: u64,
    /// What a ceiling has to move by to be amended, in 1/10000 (R4).
    pub increment_bps: u64,
    pub tick_micros: u64,
}

/// Plays every seed; `progress` hears of each that is done.
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
