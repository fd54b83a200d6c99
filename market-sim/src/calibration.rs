//! Calibration: compares statistics of a simulated world with those of published traces.

mod arrivals;
mod bands;
mod prices;
mod table;

pub use arrivals::DemandStatistics;
pub use bands::{Band, demand_bands, price_bands};
pub use prices::{
    PriceStatistics, mean_return_correlation, on_grid, spread_of_medians, weekend_over_weekday,
};
pub use table::{Row, Table};

use crate::world::{Outcome, Settings, jobs_of};

/// Compares the prices of a world with their bands: the median over its markets of each statistic.
pub fn compare_prices(outcome: &Outcome) -> Table {
    let series: Vec<Vec<f64>> = outcome.markets.iter().map(|market| market.prices()).collect();
    let each: Vec<PriceStatistics> = series.iter().map(|prices| PriceStatistics::of(prices, 0)).collect();
    let correlation = mean_return_correlation(&series);
    let spread = spread_of_medians(&series);
    let weekend = quantile(series.iter().map(|prices| weekend_over_weekday(prices)).collect(), 0.5);
    let measured = |name: &str| match name {
        "return_correlation_between_markets" => Some(correlation),
        "spread_of_medians_between_markets" => Some(spread),
        "weekend_over_weekday" => Some(weekend),
        name => {
            let of_markets: Option<Vec<f64>> = each.iter().map(|market| market.named(name)).collect();
            of_markets.map(|values| quantile(values, 0.5))
        }
    };
    Table::new(price_bands(), measured)
}

/// Compares the jobs of a world with their bands. They do not depend on the market, so none is simulated.
pub fn compare_demand(settings: &Settings) -> Table {
    let each: Vec<DemandStatistics> =
        (0..settings.markets).map(|market| DemandStatistics::of(&jobs_of(settings, market))).collect();
    let measured = |name: &str| {
        let of_markets: Option<Vec<f64>> = each.iter().map(|market| market.named(name)).collect();
        of_markets.map(|values| quantile(values, 0.5))
    };
    Table::new(demand_bands(), measured)
}

/// Returns a quantile, linear between the values around it; 0 of no values.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let at = last as f64 * share;
    let (low, part) = (at.floor() as usize, at.fract());
    values[low] + part * (values[(low + 1).min(last)] - values[low])
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / (values.len().max(1)) as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len().max(1)) as f64
}

/// Returns Pearson's correlation; 0 if one of the two never changes.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (mean_a, mean_b) = (mean(a), mean(b));
    let product: f64 = a.iter().zip(b).map(|(x, y)| (x - mean_a) * (y - mean_b)).sum();
    let norm = (variance(a) * variance(b)).sqrt() * a.len() as f64;
    if norm > 0.0 { product / norm } else { 0.0 }
}

/// Returns the autocorrelation with the mean and the variance of the whole; 0 if nothing ever changes.
fn autocorrelation(values: &[f64], lag: usize) -> f64 {
    let (mean, variance) = (mean(values), variance(values));
    if lag >= values.len() || variance == 0.0 {
        return 0.0;
    }
    let products = values.iter().zip(&values[lag..]).map(|(a, b)| (a - mean) * (b - mean));
    products.sum::<f64>() / (variance * values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Excursions are counted in steps of five minutes, so the tenth percentile of the real ones is exactly two.
    #[test]
    fn an_excursion_of_two_grid_points_is_inside_its_band_of_two_grid_points() {
        let bands =
            price_bands().into_iter().filter(|band| band.statistic == "excursion_hours_p50").collect();
        let table = Table::new(bands, |_| Some(2.0 / 12.0));
        assert_eq!(table.outside().count(), 0, "{table}");
    }
}
