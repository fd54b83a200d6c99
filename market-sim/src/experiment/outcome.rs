//! The figures of one world under one variant of the rules.

use super::run::{Job, RunResult, Settings};
use super::{Experiment, Variant};
use crate::estimate::Estimate;
use kubebid_core::units::Micros;

/// A figure of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Worth of the work done less the reserve, compared with the yardstick.
    Welfare,
    /// Evictions per 100 allocations.
    Churn,
    /// Dollars charged per unit-hour on offer.
    Revenue,
    /// Jain's index of the shares of their work that jobs got done.
    Served,
    /// Share of the waiting beside a holder to whom a node is worth less.
    Envy,
    /// The hours without a node that 95 of 100 jobs do not exceed.
    Waiting,
    /// Dollars that a job gains by bidding below its worth.
    ShadersGain,
}

/// The yardstick of welfare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WelfareMeasure {
    /// The optimum, exactly: a time that grows with the cube of the jobs, and more.
    Optimum,
    /// An upper bound of the optimum, within some percent of it.
    Bound,
    /// Nothing: welfare is dollars per unit-hour on offer.
    None,
}

impl WelfareMeasure {
    /// Returns the micro-dollars that count as 100 % of welfare, or as 1 $ per unit-hour, in one world.
    pub(super) fn of(self, jobs: &[Job], settings: &Settings) -> f64 {
        match self {
            WelfareMeasure::Optimum => super::optimum(jobs, settings),
            WelfareMeasure::Bound => super::bound(jobs, settings),
            WelfareMeasure::None => 100.0 * 1e6 * (settings.units * settings.hours) as f64,
        }
    }
}

impl Figure {
    /// The figures of every experiment.
    pub const COMMON: [Figure; 6] =
        [Figure::Welfare, Figure::Churn, Figure::Revenue, Figure::Served, Figure::Envy, Figure::Waiting];

    /// Returns the heading of the figure.
    pub fn label(self, yardstick: WelfareMeasure) -> &'static str {
        match self {
            Figure::Welfare => match yardstick {
                WelfareMeasure::Optimum => "welfare, % of the optimum",
                WelfareMeasure::Bound => "welfare, % of a bound of the optimum",
                WelfareMeasure::None => "welfare, $ per unit-hour",
            },
            Figure::Churn => "evictions per 100 allocations",
            Figure::Revenue => "revenue, $ per unit-hour",
            Figure::Served => "fairness of service (Jain)",
            Figure::Envy => "waiting with envy, %",
            Figure::Waiting => "95th percentile of waiting, hours",
            Figure::ShadersGain => "gain of those who shade, $ per job",
        }
    }
}

/// The figures of one world, in the order of [`Figure`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome([f64; 7]);

impl Outcome {
    pub(super) fn of(played: &RunResult, jobs: &[Job], settings: &Settings, best: f64) -> Outcome {
        let hours = |time: Micros| time.0 as f64 / Micros::HOUR.0 as f64;
        let worth = |n: usize| jobs[n].worth.0 as f64;
        // The worth of the work, less the reserve for the time that units were held.
        let welfare: f64 = played
            .jobs
            .iter()
            .enumerate()
            .map(|(n, job)| hours(job.done) * worth(n) - hours(job.held) * settings.reserve.0 as f64)
            .sum();
        // Jain's index of the shares of their work that jobs got done, of those that could pay the reserve.
        let able = (0..jobs.len()).filter(|n| jobs[*n].worth >= settings.reserve);
        let shares: Vec<f64> = able.map(|n| hours(played.jobs[n].done) / hours(jobs[n].work)).collect();
        let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), s| (sum + s, squares + s * s));
        let mut waits: Vec<f64> = played.jobs.iter().map(|job| hours(job.waited)).collect();
        waits.sort_by(f64::total_cmp);
        let shaders: Vec<f64> = (0..jobs.len())
            .filter(|n| jobs[*n].shades)
            .map(|n| (hours(played.jobs[n].done) * worth(n) - played.jobs[n].paid_micros as f64) / 1e6)
            .collect();
        Outcome([
            100.0 * welfare / best,
            100.0 * played.evictions as f64 / played.allocations as f64,
            played.debits_micros as f64 / 1e6 / (settings.units * settings.hours) as f64,
            sum * sum / (shares.len() as f64 * squares),
            100.0 * played.envied as f64 / played.waited.max(1) as f64,
            // The nearest rank; a world without jobs has no waiting.
            waits.get((waits.len() * 95).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0.0),
            shaders.iter().sum::<f64>() / shaders.len().max(1) as f64,
        ])
    }

    /// Returns one figure.
    pub fn get(&self, figure: Figure) -> f64 {
        self.0[figure as usize]
    }
}

/// One variant of the rules, and the outcome of each world.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The variant.
    pub variant: Variant,
    /// The outcome of each world, by seed.
    pub outcomes: Vec<Outcome>,
}

impl Arm {
    pub(super) fn new(variant: Variant) -> Arm {
        Arm { variant, outcomes: Vec::new() }
    }
}

/// The result of one experiment.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The experiment.
    pub experiment: Experiment,
    /// The yardstick of its welfare.
    pub yardstick: WelfareMeasure,
    /// One arm for each variant.
    pub arms: Vec<Arm>,
}

impl Finding {
    /// Returns the difference between a variant and its base, world by world, so that what the worlds have in common
    /// cancels out. The base of shading is the truth under the same pricing; that of all else is the default.
    pub fn difference(&self, arm: usize, figure: Figure) -> Estimate {
        let truthful = |n: &usize| self.arms[*n].variant.shade == 1.0;
        let base = match self.experiment {
            Experiment::Shading => (0..=arm).rev().find(truthful),
            Experiment::Increment
            | Experiment::MinRuntime
            | Experiment::Notice
            | Experiment::Pricing
            | Experiment::WaitingRule => self.arms.iter().position(|arm| arm.variant.is_default),
        };
        let base = &self.arms[base.expect("a default")];
        let pairs = self.arms[arm].outcomes.iter().zip(&base.outcomes);
        Estimate::of(&pairs.map(|(its, other)| its.get(figure) - other.get(figure)).collect::<Vec<f64>>())
    }

    /// Returns the figures to show.
    pub fn figures(&self) -> Vec<Figure> {
        let own = (self.experiment == Experiment::Shading).then_some(Figure::ShadersGain);
        Figure::COMMON.into_iter().chain(own).collect()
    }
}
