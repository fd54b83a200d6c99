//! Arrivals of jobs in each market, with bursts, daily and weekly rhythm, and drift.
//!
//! All of a job is drawn when it comes, so that the same jobs come whatever happens in the market.

use super::chance::{Chance, Drift, chance_of};
use super::settings::{Jobs, Rushes, Settings};
use super::tenants::Kind;
use kubebid_core::units::Micros;

const HOUR_SECONDS: f64 = 3600.0;
const STEP_SECONDS: f64 = 360.0;

/// Quantiles of the duration of a job of one node in seconds, log-linear between them.
const DURATIONS: [(f64, f64); 9] = [
    (0.0, 200.0),
    (0.05, 821.0),
    (0.25, 2467.0),
    (0.5, 12_958.0),
    (0.75, 17_600.0),
    (0.9, 24_000.0),
    (0.99, 62_000.0),
    (0.999, 300_000.0),
    (1.0, 1_200_000.0),
];

/// Nodes of a job, how often, and how much longer it takes than one of a single node.
const SIZES: [(u32, f64, f64); 7] = [
    (1, 0.871, 1.0),
    (2, 0.019, 0.84),
    (4, 0.015, 4.3),
    (8, 0.086, 1.93),
    (16, 0.005, 3.3),
    (32, 0.002, 6.7),
    (64, 0.002, 2.7),
];

/// A job as it comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    pub nodes: u32,
    pub duration: Micros,
    /// Of the on-demand price, per node-hour.
    pub worth: f64,
    pub deadline: Micros,
    pub kind: Kind,
    /// Which of the accounts of its kind.
    pub account: u64,
    /// Its sums are kept apart.
    pub watched: bool,
}

#[derive(Debug)]
pub(super) struct Crowd {
    settings: Jobs,
    chance: Chance,
    drift: Drift,
    burst: Drift,
    value: Drift,
    peak_hour: f64,
    /// Of a gap, so that the mean rate is the one wanted.
    median_seconds: f64,
    now: Micros,
    end: Micros,
}

impl Crowd {
    /// The jobs between two instants; after the end the next one is not looked for.
    pub(super) fn new(settings: Jobs, mut chance: Chance, (start, end): (Micros, Micros)) -> Crowd {
        let drift = Drift::new(settings.drift_sigma, settings.drift_hours, &mut chance);
        let burst = Drift::new(settings.burst_sigma, settings.burst_hours, &mut chance);
        let value = Drift::new(settings.value_drift_sigma, settings.value_drift_hours, &mut chance);
        let mean_seconds = HOUR_SECONDS / settings.per_hour / (1.0 - settings.together);
        let median_seconds = mean_seconds / (settings.gap_sigma * settings.gap_sigma / 2.0).exp();
        let peak_hour = chance.between(13.0, 19.0);
        Crowd { settings, chance, drift, burst, value, peak_hour, median_seconds, now: start, end }
    }

    /// Goes on to when the next job comes.
    fn advance(&mut self) -> Micros {
        if self.chance.share() >= self.settings.together {
            // In short steps: a long gap passes through several moods.
            let mut left = self.chance.lognormal(self.median_seconds, self.settings.gap_sigma);
            loop {
                let pace = self.pace();
                let step = (left / pace).min(STEP_SECONDS);
                left -= step * pace;
                self.drift.after(step / HOUR_SECONDS, &mut self.chance);
                self.burst.after(step / HOUR_SECONDS, &mut self.chance);
                self.value.after(step / HOUR_SECONDS, &mut self.chance);
                self.now = self.now.after(Micros((step * 1e6) as u64));
                if left <= 1e-6 || self.now > self.end {
                    break;
                }
            }
        }
        self.now
    }

    /// Returns how much faster than on average time passes for the crowd.
    fn pace(&self) -> f64 {
        let hours = self.now.0 as f64 / 3.6e9;
        let day = of_day(self.now, self.peak_hour, self.settings.day_swing);
        // The epoch was a Thursday.
        let weekday = (hours / 24.0 + 3.0) % 7.0;
        let week = if weekday >= 5.0 { self.settings.weekend } else { 1.0 };
        let mean_week = (5.0 + 2.0 * self.settings.weekend) / 7.0;
        day * week / mean_week * self.drift.factor() * self.burst.factor()
    }

    /// The job that comes.
    fn draw(&mut self) -> Drawn {
        let Jobs { value, value_sigma, value_least, slack, slack_sigma, .. } = self.settings;
        let size = self.chance.weighted(&SIZES.map(|(_, share, _)| share));
        let (nodes, _, longer) = SIZES[size];
        let seconds = between_quantiles(&DURATIONS, self.chance.share()) * longer;
        let median = value * self.value.level().exp();
        let worth = self.chance.lognormal(median, value_sigma).max(value_least);
        let slack = self.chance.lognormal(slack, slack_sigma);
        let deadline = self.now.after(Micros((1e6 * (seconds * (1.0 + slack) + 1800.0)) as u64));
        let weights: Vec<f64> = self.settings.kinds.iter().map(|(_, share)| *share).collect();
        let kind = self.settings.kinds[self.chance.weighted(&weights)].0;
        let duration = Micros((seconds * 1e6) as u64);
        let account = self.chance.below(super::tenants::ACCOUNTS);
        Drawn { nodes, duration, worth, deadline, kind, account, watched: false }
    }
}

/// In the order in which they come.
impl Iterator for Crowd {
    type Item = (Micros, Drawn);

    fn next(&mut self) -> Option<(Micros, Drawn)> {
        if self.settings.per_hour == 0.0 {
            return None;
        }
        let at = self.advance();
        (at <= self.end).then(|| (at, self.draw()))
    }
}

/// The jobs that come to one market, as every world with these settings has them.
pub fn jobs_of(settings: &Settings, market: u32) -> Vec<(Micros, Drawn)> {
    Crowd::new(settings.jobs.clone(), chance_of(settings, market, "crowd"), settings.span()).collect()
}

/// Returns how much more than on average there is at this time of the day; `swing` is peak over trough.
fn of_day(now: Micros, peak_hour: f64, swing: f64) -> f64 {
    let amplitude = swing.ln() / 2.0;
    let angle = (now.0 as f64 / 3.6e9 - peak_hour) * std::f64::consts::TAU / 24.0;
    (amplitude * angle.cos()).exp() / bessel(amplitude)
}

/// Returns what a normal variable exceeds with this probability, by halving.
fn exceeded_by(probability: f64) -> f64 {
    let (mut low, mut high) = (-8.0f64, 8.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if libm::erfc(middle / std::f64::consts::SQRT_2) / 2.0 > probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The mean of exp(x cos) over a circle: I0, by its series.
fn bessel(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    (1..12)
        .fold((1.0, 1.0), |(sum, term), k| {
            let term = term * quarter / f64::from(k * k);
            (sum + term, term)
        })
        .0
}

fn between_quantiles(quantiles: &[(f64, f64)], at: f64) -> f64 {
    let upper = quantiles.partition_point(|(share, _)| *share <= at).min(quantiles.len() - 1);
    let ((low, from), (high, to)) = (quantiles[upper - 1], quantiles[upper]);
    (from.ln() + (to.ln() - from.ln()) * (at - low) / (high - low)).exp()
}

/// One bid of a rush.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Urgent {
    /// Of the market's capacity.
    pub(super) size: f64,
    pub(super) hold: Micros,
    pub(super) worth: f64,
}

#[derive(Debug)]
pub(super) struct RushSource {
    settings: Rushes,
    chance: Chance,
    mood: Drift,
    /// Of the mood, above which times are hot.
    threshold: f64,
    peak_hour: f64,
    now: Micros,
    end: Micros,
}

impl RushSource {
    pub(super) fn new(settings: Rushes, mut chance: Chance, (start, end): (Micros, Micros)) -> RushSource {
        let mood = Drift::new(1.0, settings.mood_hours, &mut chance);
        let peak_hour = chance.between(13.0, 19.0);
        let threshold = exceeded_by(settings.hot_share);
        RushSource { settings, chance, mood, threshold, peak_hour, now: start, end }
    }

    /// Goes on to when the next rush comes, by the hour, since the rate drifts; none where none comes before the
    /// end.
    pub(super) fn advance(&mut self) -> Option<Micros> {
        if self.settings.calm_rate + self.settings.hot_rate == 0.0 {
            return None;
        }
        let mut left = self.chance.exponential(1.0);
        loop {
            let rate = self.rate() / 24.0;
            let hours = (left / rate).min(1.0);
            left -= hours * rate;
            self.mood.after(hours, &mut self.chance);
            self.now = self.now.after(Micros((hours * 3.6e9) as u64));
            if self.now > self.end {
                return None;
            }
            if left <= 1e-9 {
                return Some(self.now);
            }
        }
    }

    /// A day.
    fn rate(&self) -> f64 {
        let Rushes { calm_rate, hot_rate, mood_sharpness, day_swing, .. } = self.settings;
        let heat = 1.0 / (1.0 + (-mood_sharpness * (self.mood.level() - self.threshold)).exp());
        (calm_rate + (hot_rate - calm_rate) * heat) * of_day(self.now, self.peak_hour, day_swing)
    }

    /// The bids of the rush that comes; none where it would not be worth coming.
    pub(super) fn draw(&mut self) -> Vec<Urgent> {
        let settings = self.settings.clone();
        let chance = &mut self.chance;
        let size = chance.lognormal(settings.size, settings.size_sigma);
        let worth = chance.pareto(settings.worth, settings.worth_tail);
        let shorter = (worth / settings.worth).powf(settings.brevity);
        let hours = chance.lognormal(settings.hours, settings.hours_sigma).min(settings.hours_most) / shorter;
        let tenants = 1 + chance.below(settings.tenants);
        let one = |_| {
            let own = chance.lognormal(worth, settings.worth_sigma).min(settings.worth_most);
            let hold = Micros((hours * chance.between(0.8, 1.0) * 3.6e9) as u64);
            Urgent { size: size / tenants as f64, hold, worth: own }
        };
        let bids = (0..tenants).map(one).collect();
        if hours < settings.hours_least { Vec::new() } else { bids }
    }
}
