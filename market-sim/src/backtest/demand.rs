//! Compares strategies in a real auction: the jobs of a demand trace bid against each other, a few of them by the
//! strategy, all others for what a node is worth to them.

use super::{Backtest, Contestant, Results};
use crate::trace::Job;
use crate::world::{
    DrawnJob, Kind, KindSums, Rules, RushSettings, START, SeriesChoice, Settings, Supply, WorldError,
    simulate_jobs,
};
use kubebid_core::Price;
use kubebid_core::units::Micros;
use kubebid_strategy::Strategy;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;

/// The settings of a backtest on a trace of jobs: all that the trace does not say.
#[derive(Clone, Debug)]
pub struct DemandSettings {
    /// Nodes, all of one offer.
    pub capacity: u64,
    /// The reserve of the offer, per node-hour.
    pub reserve: Price,
    /// The on-demand price, per node-hour.
    pub on_demand: Price,
    /// The most that owners who try a strategy would pay, as a share of the on-demand price. Of the others it
    /// is the job's `bid_proxy`, or drawn between a quarter and the whole.
    pub max_bid: f64,
    /// The share of the jobs that try a strategy.
    pub share: f64,
    /// A deadline is this many times the work after the submission: drawn between the two.
    pub slack: (f64, f64),
    /// Minutes from a node's award until it works.
    pub boot_minutes: u64,
    /// Minutes from a notice to its deadline.
    pub notice_minutes: u64,
    /// Minutes for which a node is protected.
    pub min_runtime_minutes: u64,
    /// Minutes of work between two checkpoints.
    pub checkpoint_minutes: u64,
}

/// Plays every seed once for each contestant. Calls `progress` after each seed.
pub fn backtest_demand(
    jobs: &[Job],
    contestants: &[Contestant],
    market: &DemandSettings,
    seeds: Range<u64>,
    mut progress: impl FnMut(),
) -> Result<Backtest, WorldError> {
    let mut backtest = Backtest::new(contestants);
    let settings = market.settings(jobs);
    for seed in seeds {
        let drawn = market.draw(jobs, &mut ChaCha8Rng::seed_from_u64(seed));
        let results: Result<Vec<Results>, WorldError> =
            contestants.iter().map(|contestant| market.play(&drawn, *contestant, &settings)).collect();
        backtest.add(results?);
        progress();
    }
    Ok(backtest)
}

impl DemandSettings {
    fn settings(&self, jobs: &[Job]) -> Settings {
        let first = jobs.first().map_or(Micros(0), |job| job.submitted);
        let last = jobs.last().map_or(first, |job| job.submitted);
        let settings = Settings::default();
        let reserve = self.reserve.0 as f64 / self.on_demand.0 as f64;
        Settings {
            days: last.since(first).0.div_ceil(Micros::DAY.0) as u32 + 1,
            markets: 1,
            rules: Rules {
                min_runtime_seconds: 60 * self.min_runtime_minutes,
                notice_seconds: 60 * self.notice_minutes,
                ..Rules::MARKET_DEFAULT
            },
            on_demand_micros: self.on_demand.0,
            supply: Supply {
                units: self.capacity as f64,
                units_sigma: 0.0,
                providers: 1,
                reserve: [reserve, reserve],
                boot_seconds: 60.0 * self.boot_minutes as f64,
                boot_sigma: 0.0,
                ..settings.supply
            },
            jobs: crate::world::Jobs {
                checkpoint_minutes: self.checkpoint_minutes,
                daily_budget: f64::INFINITY,
                ..settings.jobs
            },
            kept: SeriesChoice::None,
            rushes: RushSettings { calm_rate: 0.0, hot_rate: 0.0, ..settings.rushes },
            ..settings
        }
    }

    /// Draws what a trace does not say of its jobs, and moves them to the begin of a world. Those whose deadline lies
    /// beyond the trace try no strategy: what became of them would not be known.
    fn draw(&self, jobs: &[Job], rng: &mut impl Rng) -> Vec<(Micros, DrawnJob)> {
        let first_day = jobs.first().map_or(0, |job| job.submitted.0 / Micros::DAY.0 * Micros::DAY.0);
        let moved = |at: Micros| START.after(at.since(Micros(first_day)));
        let end = moved(jobs.last().map_or(Micros(0), |job| job.submitted));
        let (least, most) = self.slack;
        let drawn = jobs.iter().map(|job| {
            let at = moved(job.submitted);
            let slack = least + (most - least) * rng.random_range(0.0..1.0);
            let drawn = rng.random_range(0.25..1.0);
            let tries = rng.random_range(0.0..1.0) < self.share;
            let patience = (job.duration.0 as f64 * slack) as u64 + self.boot_minutes * 60_000_000;
            let deadline = at.after(Micros(patience));
            let watched = tries && deadline <= end;
            let worth = if watched { self.max_bid } else { job.bid_proxy.unwrap_or(drawn) };
            let account = xxhash_rust::xxh3::xxh3_64(job.tenant.as_ref().unwrap_or(&job.id).as_bytes());
            let (nodes, duration) = (job.nodes, job.duration);
            (at, DrawnJob { nodes, duration, worth, deadline, kind: Kind::Truthful, account, watched })
        });
        drawn.collect()
    }

    fn play(
        &self,
        drawn: &[(Micros, DrawnJob)],
        contestant: Contestant,
        settings: &Settings,
    ) -> Result<Results, WorldError> {
        let kind = match contestant {
            Contestant::Strategy(Strategy::CostOptimized) => Kind::CostOptimized,
            Contestant::Strategy(Strategy::Balanced) => Kind::Balanced,
            Contestant::Strategy(Strategy::AvailabilityOptimized) => Kind::AvailabilityOptimized,
            Contestant::MaxBid => Kind::Truthful,
            Contestant::OnDemand => return Ok(self.on_demand(drawn)),
        };
        let jobs: Vec<(Micros, DrawnJob)> = drawn
            .iter()
            .map(|(at, job)| (*at, DrawnJob { kind: if job.watched { kind } else { job.kind }, ..*job }))
            .collect();
        let outcome = simulate_jobs(settings, jobs.into_iter())?;
        let sums = outcome.watched;
        let KindSums { jobs, late, given_up, open, interruptions, lost_us, waited_us, .. } = sums;
        let hours = |micros: u128| micros as f64 / Micros::HOUR.0 as f64;
        let each = |sum: f64| Some(sum / jobs.max(1) as f64);
        Ok([
            sums.cost_per_finished_hour(),
            sums.finished_share().map(|share| 100.0 * share),
            each(hours(waited_us)),
            each(interruptions as f64),
            each(hours(lost_us)),
            each(100.0 * (late + given_up + open) as f64),
        ])
    }

    /// Computes the results of on-demand nodes: each job has its nodes after the boot.
    fn on_demand(&self, drawn: &[(Micros, DrawnJob)]) -> Results {
        let boot = self.boot_minutes * 60_000_000;
        let jobs: Vec<_> = drawn.iter().filter(|(_, job)| job.watched).collect();
        let late = jobs.iter().filter(|(at, job)| at.after(job.duration).0 + boot > job.deadline.0).count();
        let missed = 100.0 * late as f64 / jobs.len().max(1) as f64;
        let (cost, waiting) = (self.on_demand.0 as f64 / 1e6, self.boot_minutes as f64 / 60.0);
        [cost, 100.0, waiting, 0.0, 0.0, missed].map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKET: DemandSettings = DemandSettings {
        capacity: 2,
        reserve: Price(500_000),
        on_demand: Price(4_000_000),
        max_bid: 1.0,
        share: 0.3,
        slack: (1.5, 4.0),
        boot_minutes: 2,
        notice_minutes: 5,
        min_runtime_minutes: 15,
        checkpoint_minutes: 30,
    };

    /// Returns a job of a node and an hour every so many minutes, for four days; others pay half of on-demand.
    fn jobs(minutes: u64) -> Vec<Job> {
        let job = |n: u64| Job {
            submitted: Micros::seconds(60 * minutes * n),
            id: n.to_string(),
            tenant: Some(format!("tenant-{}", n % 7)),
            class: "gpu".to_owned(),
            nodes: 1,
            gpus: None,
            duration: Micros::HOUR,
            priority: None,
            bid_proxy: Some(0.5),
            deadline: None,
        };
        (0..4 * 24 * 60 / minutes).map(job).collect()
    }

    fn results(minutes: u64, contestant: Contestant) -> [f64; 6] {
        let backtest = backtest_demand(&jobs(minutes), &[contestant], &MARKET, 1..2, || {});
        let results = backtest.expect("the auditor agrees").contestants[0].results[0];
        results.map(|figure| figure.expect("some work is finished"))
    }

    #[test]
    fn in_an_empty_market_all_pay_the_reserve_and_wait_for_the_boot_only() {
        let [cost, finished, waiting, interruptions, lost, missed] = results(45, Contestant::MaxBid);
        assert!((cost - 0.5).abs() < 0.02, "{cost}");
        assert_eq!(finished, 100.0);
        assert!((waiting - 2.0 / 60.0).abs() < 0.001, "{waiting}");
        assert_eq!((interruptions, lost, missed), (0.0, 0.0, 0.0));
        let [cost, _, waiting, ..] = results(45, Contestant::OnDemand);
        assert_eq!((cost, waiting), (4.0, 2.0 / 60.0));
    }

    #[test]
    fn in_a_crowd_who_bids_most_waits_least_and_who_bids_little_is_late() {
        let by = |strategy| results(20, Contestant::Strategy(strategy));
        let (cheap, sure) = (by(Strategy::CostOptimized), by(Strategy::AvailabilityOptimized));
        assert!(sure[2] < cheap[2] && sure[5] < cheap[5], "{sure:?} {cheap:?}");
        assert_eq!(sure, by(Strategy::AvailabilityOptimized), "the same seed, another result");
    }
}
