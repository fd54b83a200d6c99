//! Statistics of a price on a grid of five minutes, computed in the same way as those of the published traces.

use super::{autocorrelation, correlation, mean, quantile, variance};

/// Steps of an hour and of a day.
const HOUR: usize = 12;
const HOURS_OF_DAY: usize = 24;

/// Statistics of the prices of one market.
#[derive(Clone, Debug, PartialEq)]
pub struct PriceStatistics {
    /// The median, in the unit of the prices.
    pub median: f64,
    /// The highest price.
    pub max: f64,
    /// Standard deviation of the returns: the differences of logarithms from full hour to full hour.
    pub return_std: f64,
    /// Excess kurtosis of the returns.
    pub return_excess_kurtosis: f64,
    /// Autocorrelation of the returns, after one hour.
    pub return_autocorrelation: f64,
    /// Autocorrelation of the logarithm at full hours, after one hour.
    pub autocorrelation_1h: f64,
    /// Autocorrelation of the logarithm at full hours, after a day.
    pub autocorrelation_24h: f64,
    /// Hours: ln 2 over −ln of the autocorrelation after one hour.
    pub half_life_hours: f64,
    /// The same from steps of five minutes, in hours.
    pub half_life_5min_hours: f64,
    /// Share of the time in excursions: times above 1.5 × the median.
    pub share_above: f64,
    /// Excursions a day.
    pub excursions_per_day: f64,
    /// Length of an excursion in hours: median and 95th percentile.
    pub excursion_hours: [f64; 2],
    /// Highest price of an excursion over the median: median and 95th percentile.
    pub excursion_height: [f64; 2],
    /// Share of the changes from one point to the next that go up.
    pub up_steps: f64,
    /// Share of the changes that go the other way than the change before.
    pub reversals: f64,
}

impl PriceStatistics {
    /// Computes the statistics of prices every five minutes. The price at index `full_hour` is the first on a full hour.
    pub fn of(prices: &[f64], full_hour: usize) -> PriceStatistics {
        let median = quantile(prices.to_vec(), 0.5);
        let logarithms: Vec<f64> = prices.iter().map(|price| price.ln()).collect();
        let hourly: Vec<f64> = logarithms.iter().skip(full_hour).step_by(HOUR).copied().collect();
        let returns = returns(&hourly);
        let excursions = excursions(prices, 1.5 * median);
        let hours =
            |share| quantile(excursions.iter().map(|e| e.steps as f64 / HOUR as f64).collect(), share);
        let height = |share| quantile(excursions.iter().map(|e| e.highest / median).collect(), share);
        let above = prices.iter().filter(|price| **price > 1.5 * median).count();
        let days = prices.len() as f64 / (HOUR * HOURS_OF_DAY) as f64;
        let ups: Vec<bool> =
            prices.windows(2).filter(|pair| pair[0] != pair[1]).map(|pair| pair[0] < pair[1]).collect();
        let share = |some: usize, all: usize| some as f64 / all.max(1) as f64;
        PriceStatistics {
            median,
            max: prices.iter().copied().fold(0.0, f64::max),
            return_std: variance(&returns).sqrt(),
            return_excess_kurtosis: excess_kurtosis(&returns),
            return_autocorrelation: autocorrelation(&returns, 1),
            autocorrelation_1h: autocorrelation(&hourly, 1),
            autocorrelation_24h: autocorrelation(&hourly, HOURS_OF_DAY),
            half_life_hours: half_life(autocorrelation(&hourly, 1)),
            half_life_5min_hours: half_life(autocorrelation(&logarithms, 1)) / HOUR as f64,
            share_above: above as f64 / prices.len().max(1) as f64,
            excursions_per_day: excursions.len() as f64 / days,
            excursion_hours: [hours(0.5), hours(0.95)],
            excursion_height: [height(0.5), height(0.95)],
            up_steps: share(ups.iter().filter(|up| **up).count(), ups.len()),
            reversals: share(
                ups.windows(2).filter(|pair| pair[0] != pair[1]).count(),
                ups.len().saturating_sub(1),
            ),
        }
    }

    /// Returns the statistic with this name in the bands.
    pub fn named(&self, name: &str) -> Option<f64> {
        Some(match name {
            "median_over_on_demand" => self.median,
            "max_over_on_demand" => self.max,
            "hourly_log_return_std" => self.return_std,
            "hourly_log_return_excess_kurtosis" => self.return_excess_kurtosis,
            "hourly_log_return_autocorrelation" => self.return_autocorrelation,
            "log_price_autocorrelation_1h" => self.autocorrelation_1h,
            "log_price_autocorrelation_24h" => self.autocorrelation_24h,
            "half_life_hours_from_hourly" => self.half_life_hours,
            "half_life_hours_from_5min" => self.half_life_5min_hours,
            "share_of_time_above_1.5_median" => self.share_above,
            "excursions_per_day" => self.excursions_per_day,
            "excursion_hours_p50" => self.excursion_hours[0],
            "excursion_hours_p95" => self.excursion_hours[1],
            "excursion_height_over_median_p50" => self.excursion_height[0],
            "excursion_height_over_median_p95" => self.excursion_height[1],
            "share_of_up_steps" => self.up_steps,
            "share_of_steps_that_reverse" => self.reversals,
            _ => return None,
        })
    }
}

/// Returns the price at `first`, and every `step` after it up to the last change; both in the unit of the times.
pub fn on_grid(changes: &[(u64, f64)], first: u64, step: usize) -> Vec<f64> {
    let Some((last, _)) = changes.last() else { return Vec::new() };
    let mut at = 0;
    let price = |time: u64| {
        while changes.get(at + 1).is_some_and(|(next, _)| *next <= time) {
            at += 1;
        }
        changes[at].1
    };
    (first..=*last).step_by(step).map(price).collect()
}

/// Returns the mean correlation of hourly returns over all pairs of series, which begin together.
pub fn mean_return_correlation(series: &[Vec<f64>]) -> f64 {
    let hourly =
        |prices: &Vec<f64>| prices.iter().step_by(HOUR).map(|price| price.ln()).collect::<Vec<f64>>();
    let returns: Vec<Vec<f64>> = series.iter().map(|prices| returns(&hourly(prices))).collect();
    let mut pairs = Vec::new();
    for (n, one) in returns.iter().enumerate() {
        for other in &returns[n + 1..] {
            pairs.push(correlation(one, other));
        }
    }
    mean(&pairs)
}

/// Returns the geometric mean price of Saturdays and Sundays over that of other days, in UTC. The prices begin on a
/// Monday at midnight. 1 where there is no weekend yet.
pub fn weekend_over_weekday(prices: &[f64]) -> f64 {
    let of = |weekend: bool| -> Vec<f64> {
        let days = prices.chunks(HOUR * HOURS_OF_DAY).enumerate();
        let some = days.filter(|(day, _)| (day % 7 >= 5) == weekend);
        some.flat_map(|(_, prices)| prices).map(|price| price.ln()).collect()
    };
    let (weekend, weekday) = (of(true), of(false));
    if weekend.is_empty() { 1.0 } else { (mean(&weekend) - mean(&weekday)).exp() }
}

/// Returns the standard deviation of the logarithms of the markets' median prices.
pub fn spread_of_medians(series: &[Vec<f64>]) -> f64 {
    let medians: Vec<f64> = series.iter().map(|prices| quantile(prices.clone(), 0.5).ln()).collect();
    variance(&medians).sqrt()
}

fn returns(logarithms: &[f64]) -> Vec<f64> {
    logarithms.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn excess_kurtosis(values: &[f64]) -> f64 {
    let (mean_value, variance) = (mean(values), variance(values));
    if variance == 0.0 {
        return 0.0;
    }
    let fourth: Vec<f64> = values.iter().map(|value| (value - mean_value).powi(4)).collect();
    mean(&fourth) / (variance * variance) - 3.0
}

/// Returns the half-life in steps; 0 if the autocorrelation is not positive.
fn half_life(autocorrelation: f64) -> f64 {
    if autocorrelation <= 0.0 { 0.0 } else { std::f64::consts::LN_2 / -autocorrelation.ln() }
}

struct Excursion {
    steps: usize,
    highest: f64,
}

/// Runs of prices above a threshold, one that is under way at the end too.
fn excursions(prices: &[f64], threshold: f64) -> Vec<Excursion> {
    let runs = prices.chunk_by(|a, b| (*a > threshold) == (*b > threshold));
    let above = runs.filter(|run| run[0] > threshold);
    above
        .map(|run| Excursion { steps: run.len(), highest: run.iter().copied().fold(0.0, f64::max) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    /// Returns two days at 1; on each, one hour at 4 from 6:00 on and ten minutes at 2 from 12:30 on.
    fn two_days() -> Vec<f64> {
        let mut prices = vec![1.0; 2 * 288];
        for day in 0..2 {
            prices[day * 288 + 72..day * 288 + 84].fill(4.0);
            prices[day * 288 + 150..day * 288 + 152].fill(2.0);
        }
        prices
    }

    #[test]
    fn excursions_are_counted_measured_and_timed() {
        let statistics = PriceStatistics::of(&two_days(), 0);
        close(statistics.median, 1.0);
        close(statistics.max, 4.0);
        close(statistics.share_above, 28.0 / 576.0);
        close(statistics.excursions_per_day, 2.0);
        close(statistics.excursion_hours[0], (1.0 + 2.0 / 12.0) / 2.0);
        close(statistics.excursion_height[0], 3.0);
        close(statistics.excursion_height[1], 4.0);
    }

    #[test]
    fn returns_are_from_full_hour_to_full_hour() {
        let statistics = PriceStatistics::of(&two_days(), 0);
        // Of 47 returns two are ln 4 and two −ln 4, each right after the other; 12:30 is on no full hour.
        let variance = 4.0 * 4f64.ln().powi(2) / 47.0;
        close(statistics.return_std, variance.sqrt());
        close(statistics.return_excess_kurtosis, 47.0 / 4.0 - 3.0);
        close(statistics.return_autocorrelation, -0.5);
        let shifted = PriceStatistics::of(&two_days(), 6);
        close(shifted.return_std, ((2.0 * 4f64.ln().powi(2) * 2.0 + 4.0 * 2f64.ln().powi(2)) / 47.0).sqrt());
    }

    #[test]
    fn a_decaying_memory_has_its_half_life() {
        // A square wave of two days: at lag one hour 47 of 48 pairs agree.
        let prices: Vec<f64> = (0..60 * 288).map(|n| if n / 576 % 2 == 0 { 1.0 } else { 3.0 }).collect();
        let statistics = PriceStatistics::of(&prices, 0);
        assert!((statistics.autocorrelation_1h - (1.0 - 2.0 / 48.0)).abs() < 0.002, "{statistics:?}");
        assert!(statistics.autocorrelation_24h.abs() < 0.03, "{statistics:?}");
        close(statistics.half_life_hours, 2f64.ln() / -statistics.autocorrelation_1h.ln());
    }

    #[test]
    fn a_constant_price_has_no_statistics_that_are_no_numbers() {
        let statistics = PriceStatistics::of(&vec![2.0; 600], 0);
        assert_eq!((statistics.return_std, statistics.return_excess_kurtosis), (0.0, 0.0));
        assert_eq!((statistics.excursions_per_day, statistics.excursion_hours), (0.0, [0.0, 0.0]));
    }

    #[test]
    fn steps_have_a_sign_and_reverse_or_go_on() {
        // Up, up, down, up: the price stands still between them.
        let statistics = PriceStatistics::of(&[1.0, 1.0, 2.0, 3.0, 3.0, 2.0, 2.0, 4.0], 0);
        close(statistics.up_steps, 3.0 / 4.0);
        close(statistics.reversals, 2.0 / 3.0);
        let still = PriceStatistics::of(&[1.0; 20], 0);
        assert_eq!((still.up_steps, still.reversals), (0.0, 0.0));
    }

    #[test]
    fn weekends_are_compared_with_the_other_days() {
        let mut week = vec![4.0; 7 * 288];
        week[5 * 288..].fill(1.0);
        close(weekend_over_weekday(&week), 0.25);
        close(weekend_over_weekday(&week[..288]), 1.0);
    }

    #[test]
    fn markets_with_the_same_median_have_no_spread() {
        close(spread_of_medians(&[vec![2.0; 9], two_days().iter().map(|price| price * 2.0).collect()]), 0.0);
        close(spread_of_medians(&[vec![1.0; 9], vec![4.0; 9]]), 2f64.ln());
    }

    #[test]
    fn a_price_holds_until_the_next_change() {
        let changes = [(10, 1.0), (12, 2.0), (17, 3.0), (20, 4.0)];
        assert_eq!(on_grid(&changes, 10, 5), [1.0, 2.0, 4.0]);
    }

    #[test]
    fn opposite_markets_are_correlated_negatively() {
        let up: Vec<f64> = two_days();
        let down: Vec<f64> = up.iter().map(|price| 1.0 / price).collect();
        close(mean_return_correlation(&[up.clone(), down]), -1.0);
        close(mean_return_correlation(&[up.clone(), up]), 1.0);
    }
}
