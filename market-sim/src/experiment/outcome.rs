//! The figures of one world under one setting.

use super::world::{Job, Played, World};
use super::{Experiment, Setting};
use crate::estimate::Estimate;
use kubebid_core::units::Micros;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    Welfare,
    Churn,
    Revenue,
    Served,
    Envy,
    ShadersGain,
}

/// What welfare is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yardstick {
    /// The optimum, exactly: a time that grows with the cube of the jobs, and more.
    Optimum,
    /// An upper bound of the optimum, within some percent of it.
    Bound,
    /// Nothing: welfare is dollars per unit-hour on offer.
    None,
}

impl Yardstick {
    /// For each world: micro-dollars that are 100 % of welfare, or 1 $ per unit-hour.
    pub(super) fn of(self, jobs: &[Job], world: &World) -> f64 {
        match self {
            Yardstick::Optimum => super::optimum(jobs, world),
            Yardstick::Bound => super::bound(jobs, world),
            Yardstick::None => 100.0 * 1e6 * (world.units * world.hours) as f64,
        }
    }
}

impl Figure {
    /// Those of every experiment.
    pub const COMMON: [Figure; 5] =
        [Figure::Welfare, Figure::Churn, Figure::Revenue, Figure::Served, Figure::Envy];

    pub fn label(self, yardstick: Yardstick) -> &'static str {
        match self {
            Figure::Welfare => match yardstick {
                Yardstick::Optimum => "welfare, % of the optimum",
                Yardstick::Bound => "welfare, % of a bound of the optimum",
                Yardstick::None => "welfare, $ per unit-hour",
            },
            Figure::Churn => "evictions per 100 allocations",
            Figure::Revenue => "revenue, $ per unit-hour",
            Figure::Served => "fairness of service (Jain)",
            Figure::Envy => "waiting with envy, %",
            Figure::ShadersGain => "gain of those who shade, $ per job",
        }
    }
}

/// Of one world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome([f64; 6]);

impl Outcome {
    pub(super) fn of(played: &Played, jobs: &[Job], world: &World, best: f64) -> Outcome {
        let hours = |time: Micros| time.0 as f64 / Micros::HOUR.0 as f64;
        let worth = |n: usize| jobs[n].worth.0 as f64;
        // What the work is worth, less what the units cost their provider while they were held.
        let welfare: f64 = played
            .jobs
            .iter()
            .enumerate()
            .map(|(n, job)| hours(job.done) * worth(n) - hours(job.held) * world.reserve.0 as f64)
            .sum();
        // Jain's index of the shares of their work that jobs got done which could pay the reserve.
        let able = (0..jobs.len()).filter(|n| jobs[*n].worth >= world.reserve);
        let shares: Vec<f64> = able.map(|n| hours(played.jobs[n].done) / hours(jobs[n].work)).collect();
        let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), s| (sum + s, squares + s * s));
        let shaders: Vec<f64> = (0..jobs.len())
            .filter(|n| jobs[*n].shades)
            .map(|n| (hours(played.jobs[n].done) * worth(n) - played.jobs[n].paid_micros as f64) / 1e6)
            .collect();
        Outcome([
            100.0 * welfare / best,
            100.0 * played.evictions as f64 / played.allocations as f64,
            played.debits_micros as f64 / 1e6 / (world.units * world.hours) as f64,
            sum * sum / (shares.len() as f64 * squares),
            100.0 * played.envied as f64 / played.waited.max(1) as f64,
            shaders.iter().sum::<f64>() / shaders.len().max(1) as f64,
        ])
    }

    pub fn get(&self, figure: Figure) -> f64 {
        self.0[figure as usize]
    }
}

/// One setting, and what each world came to.
#[derive(Clone, Debug)]
pub struct Arm {
    pub setting: Setting,
    pub outcomes: Vec<Outcome>,
}

impl Arm {
    pub(super) fn new(setting: Setting) -> Arm {
        Arm { setting, outcomes: Vec::new() }
    }
}

#[derive(Clone, Debug)]
pub struct Finding {
    pub experiment: Experiment,
    pub yardstick: Yardstick,
    pub arms: Vec<Arm>,
}

impl Finding {
    /// Returns how a setting differs from what it is to be compared with, world by world: what the worlds have in
    /// common cancels out. Who shades is compared with the truth under the same pricing, all else with the default.
    pub fn difference(&self, arm: usize, figure: Figure) -> Estimate {
        let truthful = |n: &usize| self.arms[*n].setting.shade == 1.0;
        let base = match self.experiment {
            Experiment::Shading => (0..=arm).rev().find(truthful),
            Experiment::Increment
            | Experiment::MinRuntime
            | Experiment::Notice
            | Experiment::Pricing
            | Experiment::WaitingRule => self.arms.iter().position(|arm| arm.setting.is_default),
        };
        let base = &self.arms[base.expect("a default")];
        let pairs = self.arms[arm].outcomes.iter().zip(&base.outcomes);
        Estimate::of(&pairs.map(|(its, other)| its.get(figure) - other.get(figure)).collect::<Vec<f64>>())
    }

    pub fn figures(&self) -> Vec<Figure> {
        let own = (self.experiment == Experiment::Shading).then_some(Figure::ShadersGain);
        Figure::COMMON.into_iter().chain(own).collect()
    }
}
