//! Arrivals of jobs in each market: how many come at each hour of the day and on each day of the week, with bursts and
//! drift.
//!
//! All of a job is drawn when it comes, so that the same jobs come whatever happens in the market.

use super::random::{OrnsteinUhlenbeck, RandomStream, stream_of};
use super::settings::{Jobs, RushSettings, Settings};
use super::tenants::Kind;
use kubebid_core::units::Micros;
use rand_distr::weighted::WeightedIndex;
use statrs::distribution::{ContinuousCDF, Normal};

const HOUR_SECONDS: f64 = 3600.0;
const STEP_SECONDS: f64 = 360.0;
/// The hours of the day between which the busiest one is drawn.
const PEAK_HOURS: (f64, f64) = (13.0, 19.0);

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

/// A job as it arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawnJob {
    /// Nodes that it wants.
    pub nodes: u32,
    /// Time that it takes with all its nodes.
    pub duration: Micros,
    /// The worth of a node-hour, as a share of the on-demand price.
    pub worth: f64,
    /// Its deadline.
    pub deadline: Micros,
    /// The kind of its tenant.
    pub kind: Kind,
    /// The number of its account among those of its kind.
    pub account: u64,
    /// True if its sums are kept apart.
    pub watched: bool,
}

#[derive(Debug)]
pub(super) struct JobSource {
    settings: Jobs,
    random: RandomStream,
    drift: OrnsteinUhlenbeck,
    burst: OrnsteinUhlenbeck,
    value: OrnsteinUhlenbeck,
    sizes: WeightedIndex<f64>,
    kinds: WeightedIndex<f64>,
    peak_hour: f64,
    /// Median of a gap, such that the mean rate is that of the settings.
    median_seconds: f64,
    now: Micros,
    end: Micros,
}

impl JobSource {
    /// Makes a source of the jobs between two instants.
    pub(super) fn new(settings: Jobs, mut random: RandomStream, (start, end): (Micros, Micros)) -> JobSource {
        let drift = OrnsteinUhlenbeck::new(settings.drift_sigma, settings.drift_hours, &mut random);
        let burst = OrnsteinUhlenbeck::new(settings.burst_sigma, settings.burst_hours, &mut random);
        let value =
            OrnsteinUhlenbeck::new(settings.value_drift_sigma, settings.value_drift_hours, &mut random);
        let mean_seconds = HOUR_SECONDS / settings.per_hour / (1.0 - settings.together);
        let median_seconds = mean_seconds / (settings.gap_sigma * settings.gap_sigma / 2.0).exp();
        let peak_hour = random.between(PEAK_HOURS.0, PEAK_HOURS.1);
        let sizes = WeightedIndex::new(SIZES.map(|(_, share, _)| share)).expect("shares above 0");
        let kinds =
            WeightedIndex::new(settings.kinds.iter().map(|(_, share)| share)).expect("a share above 0");
        let now = start;
        JobSource { settings, random, drift, burst, value, sizes, kinds, peak_hour, median_seconds, now, end }
    }

    /// Moves on to the arrival of the next job.
    fn advance(&mut self) -> Micros {
        if self.random.share() >= self.settings.together {
            // In short steps, since the rate drifts during a long gap.
            let mut left = self.random.lognormal(self.median_seconds, self.settings.gap_sigma);
            loop {
                let pace = self.pace();
                let step = (left / pace).min(STEP_SECONDS);
                left -= step * pace;
                self.drift.after(step / HOUR_SECONDS, &mut self.random);
                self.burst.after(step / HOUR_SECONDS, &mut self.random);
                self.value.after(step / HOUR_SECONDS, &mut self.random);
                self.now = self.now.after(Micros((step * 1e6) as u64));
                if left <= 1e-6 || self.now > self.end {
                    break;
                }
            }
        }
        self.now
    }

    /// Returns the present rate of arrivals over the mean rate.
    fn pace(&self) -> f64 {
        let hours = self.now.0 as f64 / 3.6e9;
        let day = of_day(self.now, self.peak_hour, self.settings.day_swing);
        // The epoch was a Thursday.
        let weekday = (hours / 24.0 + 3.0) % 7.0;
        let week = if weekday >= 5.0 { self.settings.weekend } else { 1.0 };
        let mean_week = (5.0 + 2.0 * self.settings.weekend) / 7.0;
        day * week / mean_week * self.drift.factor() * self.burst.factor()
    }

    /// Draws the job that arrives.
    fn draw(&mut self) -> DrawnJob {
        let Jobs { value, value_sigma, value_least, slack, slack_sigma, .. } = self.settings;
        let (nodes, _, longer) = SIZES[self.random.draw(&self.sizes)];
        let seconds = between_quantiles(&DURATIONS, self.random.share()) * longer;
        let median = value * self.value.level().exp();
        let worth = self.random.lognormal(median, value_sigma).max(value_least);
        let slack = self.random.lognormal(slack, slack_sigma);
        let deadline = self.now.after(Micros((1e6 * (seconds * (1.0 + slack) + 1800.0)) as u64));
        let kind = self.settings.kinds[self.random.draw(&self.kinds)].0;
        let duration = Micros((seconds * 1e6) as u64);
        let account = self.random.below(super::tenants::ACCOUNTS);
        DrawnJob { nodes, duration, worth, deadline, kind, account, watched: false }
    }
}

/// Yields jobs in the order of their arrival.
impl Iterator for JobSource {
    type Item = (Micros, DrawnJob);

    fn next(&mut self) -> Option<(Micros, DrawnJob)> {
        if self.settings.per_hour == 0.0 {
            return None;
        }
        let at = self.advance();
        (at <= self.end).then(|| (at, self.draw()))
    }
}

/// Returns the jobs that arrive at one market, the same in every world with these settings.
pub fn jobs_of(settings: &Settings, market: u32) -> Vec<(Micros, DrawnJob)> {
    JobSource::new(settings.jobs.clone(), stream_of(settings, market, "jobs"), settings.span()).collect()
}

/// Returns how much more than on average there is at this time of the day; `swing` is peak over trough.
fn of_day(now: Micros, peak_hour: f64, swing: f64) -> f64 {
    let amplitude = swing.ln() / 2.0;
    let angle = (now.0 as f64 / 3.6e9 - peak_hour) * std::f64::consts::TAU / 24.0;
    (amplitude * angle.cos()).exp() / bessel(amplitude)
}

/// Returns what a standard normal variable exceeds with this probability, at most 8 in size.
fn exceeded_by(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(1.0 - probability).clamp(-8.0, 8.0)
}

/// Returns the modified Bessel function I0, the mean of exp(x cos) over a circle, by its series.
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
    /// Nodes, as a share of the market's capacity.
    pub(super) size: f64,
    pub(super) hold: Micros,
    pub(super) worth: f64,
}

#[derive(Debug)]
pub(super) struct RushSource {
    settings: RushSettings,
    random: RandomStream,
    mood: OrnsteinUhlenbeck,
    /// The mood above which times are hot.
    threshold: f64,
    peak_hour: f64,
    now: Micros,
    end: Micros,
}

impl RushSource {
    pub(super) fn new(
        settings: RushSettings,
        mut random: RandomStream,
        (start, end): (Micros, Micros),
    ) -> RushSource {
        let mood = OrnsteinUhlenbeck::new(1.0, settings.mood_hours, &mut random);
        let peak_hour = random.between(PEAK_HOURS.0, PEAK_HOURS.1);
        let threshold = exceeded_by(settings.hot_share);
        RushSource { settings, random, mood, threshold, peak_hour, now: start, end }
    }

    /// Moves on to the next rush, by the hour, since the rate drifts; none if none comes before the
    /// end.
    pub(super) fn advance(&mut self) -> Option<Micros> {
        if self.settings.calm_rate + self.settings.hot_rate == 0.0 {
            return None;
        }
        let mut left = self.random.exponential(1.0);
        loop {
            let rate = self.rate() / 24.0;
            let hours = (left / rate).min(1.0);
            left -= hours * rate;
            self.mood.after(hours, &mut self.random);
            self.now = self.now.after(Micros((hours * 3.6e9) as u64));
            if self.now > self.end {
                return None;
            }
            if left <= 1e-9 {
                return Some(self.now);
            }
        }
    }

    /// Returns the rushes per day at present.
    fn rate(&self) -> f64 {
        let RushSettings { calm_rate, hot_rate, mood_sharpness, day_swing, .. } = self.settings;
        let heat = 1.0 / (1.0 + (-mood_sharpness * (self.mood.level() - self.threshold)).exp());
        (calm_rate + (hot_rate - calm_rate) * heat) * of_day(self.now, self.peak_hour, day_swing)
    }

    /// Draws the bids of the rush that comes; none if it would be too short.
    pub(super) fn draw(&mut self) -> Vec<Urgent> {
        let settings = self.settings.clone();
        let random = &mut self.random;
        let size = random.lognormal(settings.size, settings.size_sigma);
        let worth = random.pareto(settings.worth, settings.worth_tail);
        let shorter = (worth / settings.worth).powf(settings.brevity);
        let hours = random.lognormal(settings.hours, settings.hours_sigma).min(settings.hours_most) / shorter;
        let tenants = 1 + random.below(settings.tenants);
        let one = |_| {
            let own = random.lognormal(worth, settings.worth_sigma).min(settings.worth_most);
            let hold = Micros((hours * random.between(0.8, 1.0) * 3.6e9) as u64);
            Urgent { size: size / tenants as f64, hold, worth: own }
        };
        let bids = (0..tenants).map(one).collect();
        if hours < settings.hours_least { Vec::new() } else { bids }
    }
}
