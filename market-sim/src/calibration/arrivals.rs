//! Statistics of jobs: arrivals, durations, numbers of nodes.

use super::{autocorrelation, mean, quantile, variance};
use crate::world::DrawnJob;
use kubebid_core::units::Micros;

const HOUR_SECONDS: u64 = 3600;
const DAY_SECONDS: u64 = 86_400;

/// Statistics of jobs: computed once, then read by name.
#[derive(Clone, Debug)]
pub struct DemandStatistics {
    /// Arrival times in whole seconds since the beginning of the first job's day.
    times: Vec<u64>,
    gaps: Vec<f64>,
    positive_gap_logarithms: Vec<f64>,
    durations: Vec<f64>,
    /// The nodes and the node-seconds of each job.
    work: Vec<(u32, f64)>,
    total_work: f64,
}

impl DemandStatistics {
    /// Computes the statistics of jobs in the order of their arrival, over whole days.
    pub fn of(jobs: &[(Micros, DrawnJob)]) -> DemandStatistics {
        let first_day = jobs.first().map_or(0, |(at, _)| at.0 / 1_000_000 / DAY_SECONDS * DAY_SECONDS);
        let times: Vec<u64> = jobs.iter().map(|(at, _)| at.0 / 1_000_000 - first_day).collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let positive_gap_logarithms = gaps.iter().filter(|gap| **gap > 0.0).map(|gap| gap.ln()).collect();
        let durations: Vec<f64> = jobs.iter().map(|(_, job)| job.duration.0 as f64 / 1e6).collect();
        let work: Vec<(u32, f64)> =
            jobs.iter().zip(&durations).map(|((_, job), d)| (job.nodes, d * f64::from(job.nodes))).collect();
        let total_work = work.iter().map(|(_, work)| work).sum();
        DemandStatistics { times, gaps, positive_gap_logarithms, durations, work, total_work }
    }

    /// Returns the statistic with this name in the bands.
    pub fn named(&self, name: &str) -> Option<f64> {
        let counts = |seconds| self.counts(seconds);
        let duration = |share| quantile(self.durations.clone(), share);
        Some(match name {
            "jobs_per_hour" => mean(&counts(HOUR_SECONDS)),
            "interarrival_cv" => variance(&self.gaps).sqrt() / mean(&self.gaps),
            "zero_gap_share" => share(&self.gaps, |gap| *gap == 0.0),
            "positive_gap_log_mean" => mean(&self.positive_gap_logarithms),
            "positive_gap_log_std" => variance(&self.positive_gap_logarithms).sqrt(),
            "index_of_dispersion_1min" => dispersion(&counts(60)),
            "index_of_dispersion_10min" => dispersion(&counts(600)),
            "index_of_dispersion_1h" => dispersion(&counts(HOUR_SECONDS)),
            "index_of_dispersion_1d" => dispersion(&counts(DAY_SECONDS)),
            "hourly_count_autocorrelation" => autocorrelation(&counts(HOUR_SECONDS), 1),
            "hour_peak_over_trough" => self.peak_over_trough(),
            "weekend_over_weekday" => self.weekend_over_weekday(),
            "duration_seconds_p05" => duration(0.05),
            "duration_seconds_p25" => duration(0.25),
            "duration_seconds_p50" => duration(0.5),
            "duration_seconds_p75" => duration(0.75),
            "duration_seconds_p90" => duration(0.9),
            "duration_seconds_p99" => duration(0.99),
            "duration_hill_top_5_percent" => self.hill(),
            "share_of_jobs_with_1_node" => share(&self.work, |(nodes, _)| *nodes == 1),
            "share_of_jobs_with_8_nodes" => share(&self.work, |(nodes, _)| *nodes == 8),
            "share_of_node_time_of_1_node_jobs" => self.work_share(|nodes| nodes == 1),
            "share_of_node_time_of_8_node_jobs" => self.work_share(|nodes| nodes == 8),
            "share_of_node_time_of_16_or_more" => self.work_share(|nodes| nodes >= 16),
            "top_1_percent_of_jobs_share_of_node_time" => self.top_share(),
            _ => return None,
        })
    }

    /// Jobs in each span, up to the last full one.
    fn counts(&self, seconds: u64) -> Vec<f64> {
        let spans = self.times.last().map_or(0, |last| last / seconds);
        let mut counts = vec![0.0; spans as usize];
        for time in &self.times {
            if let Some(count) = counts.get_mut((time / seconds) as usize) {
                *count += 1.0;
            }
        }
        counts
    }

    fn peak_over_trough(&self) -> f64 {
        let mut by_hour = [0.0; 24];
        for time in &self.times {
            by_hour[(time / HOUR_SECONDS % 24) as usize] += 1.0;
        }
        let (low, high) =
            by_hour.iter().fold((f64::MAX, 0.0), |(l, h): (f64, f64), n| (l.min(*n), h.max(*n)));
        high / low
    }

    /// Days are counted from a Monday.
    fn weekend_over_weekday(&self) -> f64 {
        let days = self.counts(DAY_SECONDS);
        let of = |weekend: bool| {
            let some = days.iter().enumerate().filter(|(day, _)| (day % 7 >= 5) == weekend);
            mean(&some.map(|(_, count)| *count).collect::<Vec<f64>>())
        };
        of(true) / of(false)
    }

    /// Hill's estimate of the exponent of the tail.
    fn hill(&self) -> f64 {
        let mut durations = self.durations.clone();
        durations.sort_unstable_by(f64::total_cmp);
        let top = durations.len() / 20;
        let (below, tail) = durations.split_at(durations.len() - top);
        let least = below.last().copied().unwrap_or(1.0);
        1.0 / mean(&tail.iter().map(|duration| (duration / least).ln()).collect::<Vec<f64>>())
    }

    fn work_share(&self, of: impl Fn(u32) -> bool) -> f64 {
        let some = self.work.iter().filter(|(nodes, _)| of(*nodes));
        some.map(|(_, work)| work).sum::<f64>() / self.total_work
    }

    fn top_share(&self) -> f64 {
        let mut work: Vec<f64> = self.work.iter().map(|(_, work)| *work).collect();
        work.sort_unstable_by(|a, b| b.total_cmp(a));
        work.iter().take(work.len() / 100).sum::<f64>() / self.total_work
    }
}

fn share<T>(values: &[T], of: impl Fn(&T) -> bool) -> f64 {
    values.iter().filter(|value| of(value)).count() as f64 / values.len().max(1) as f64
}

/// Returns variance over mean: 1 if jobs come independently.
fn dispersion(counts: &[f64]) -> f64 {
    variance(counts) / mean(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Kind;

    fn job(second: u64, nodes: u32, duration: u64) -> (Micros, DrawnJob) {
        let (duration, deadline) = (Micros::seconds(duration), Micros::seconds(second));
        let drawn = DrawnJob {
            nodes,
            duration,
            worth: 1.0,
            deadline,
            kind: Kind::Truthful,
            account: 0,
            watched: false,
        };
        (Micros::seconds(second), drawn)
    }

    #[test]
    fn a_job_a_minute_is_no_burst() {
        let jobs: Vec<_> = (0..60 * 48).map(|n| job(n * 60, 1, 100)).collect();
        let statistics = DemandStatistics::of(&jobs);
        let named = |name: &str| statistics.named(name).expect("a name");
        assert_eq!((named("jobs_per_hour"), named("interarrival_cv")), (60.0, 0.0));
        assert_eq!((named("index_of_dispersion_1h"), named("hour_peak_over_trough")), (0.0, 1.0));
        assert_eq!(named("zero_gap_share"), 0.0);
    }

    #[test]
    fn few_jobs_may_be_most_of_the_work() {
        let jobs: Vec<_> = (0..1000).map(|n| if n < 10 { job(n, 8, 1000) } else { job(n, 1, 10) }).collect();
        let statistics = DemandStatistics::of(&jobs);
        let big = 80_000.0 / (80_000.0 + 9900.0);
        assert_eq!(statistics.named("share_of_node_time_of_8_node_jobs"), Some(big));
        assert_eq!(statistics.named("top_1_percent_of_jobs_share_of_node_time"), Some(big));
        assert_eq!(statistics.named("share_of_jobs_with_1_node"), Some(0.99));
        assert_eq!(statistics.named("duration_seconds_p50"), Some(10.0));
    }
}
