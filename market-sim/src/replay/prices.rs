//! Computes what bids would have got on a price trace, without a market.
//!
//! Each market is looked at on a grid of 5 minutes, from its first row to the end of the trace. A bid runs
//! while the price is at most the bid, pays that price, and is pre-empted when the price steps above it
//! from one grid point to the next. A type's figures are the mean over its markets, each counting alike.

mod table;

pub use table::{Outcome, PriceTable, TypeTable};

use crate::trace::{PriceChange, TraceError};
use kubebid_core::Price;
use kubebid_core::units::Micros;
use std::collections::BTreeMap;

const GRID: u64 = 300_000_000;

/// The settings of a price replay.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Shares of the on-demand price to bid.
    pub shares: Vec<f64>,
    /// The on-demand price of each instance type; types without one are left out.
    pub on_demand: BTreeMap<String, Price>,
    /// Only these regions, where there are any.
    pub regions: Vec<String>,
    /// A price older than this is unknown until the next row: it counts for nothing.
    pub longest_gap: Option<Micros>,
}

/// The counts of one market so far.
#[derive(Debug)]
struct Market {
    price: Price,
    since: Micros,
    /// The next grid point that has not been counted.
    next: u64,
    points: u64,
    bids: Vec<Bid>,
}

#[derive(Clone, Debug)]
struct Bid {
    bid: Price,
    running: bool,
    /// Grid points at which it ran, and the sum of the prices there.
    ran: u64,
    paid: u128,
    preempted: u64,
}

/// Reads the trace to its end; holds one row for each market.
pub fn replay_prices(
    trace: impl Iterator<Item = Result<PriceChange, TraceError>>,
    settings: &Settings,
) -> Result<PriceTable, TraceError> {
    let mut markets: BTreeMap<(String, String), Market> = BTreeMap::new();
    let mut end = Micros(0);
    for change in trace {
        let PriceChange { at, instance_type, region, price } = change?;
        end = at;
        let Some(on_demand) = settings.on_demand.get(&instance_type) else { continue };
        if !settings.regions.is_empty() && !settings.regions.contains(&region) {
            continue;
        }
        let market = markets
            .entry((instance_type, region))
            .or_insert_with(|| Market::new(at, price, *on_demand, &settings.shares));
        market.count_before(at.0.div_ceil(GRID), settings.longest_gap);
        (market.price, market.since) = (price, at);
    }
    for market in markets.values_mut() {
        market.count_before(end.0 / GRID + 1, settings.longest_gap);
    }
    if markets.values().all(|market| market.points == 0) {
        return Err(TraceError::Empty("prices of such types and regions"));
    }
    Ok(table::of(&markets, settings))
}

impl Market {
    fn new(at: Micros, price: Price, on_demand: Price, shares: &[f64]) -> Market {
        let bids = shares.iter().map(|share| {
            let bid = Price((share * on_demand.0 as f64).round() as u64);
            Bid { bid, running: false, ran: 0, paid: 0, preempted: 0 }
        });
        Market { price, since: at, next: at.0.div_ceil(GRID), points: 0, bids: bids.collect() }
    }

    /// Counts the grid points before `end`, at the price that holds.
    fn count_before(&mut self, end: u64, longest_gap: Option<Micros>) {
        let known = longest_gap.map_or(end, |gap| end.min((self.since.0 + gap.0) / GRID + 1));
        let points = known.saturating_sub(self.next);
        if points > 0 {
            self.points += points;
            for bid in &mut self.bids {
                bid.count(points, self.price);
            }
        }
        if known < end {
            self.bids.iter_mut().for_each(|bid| bid.running = false);
        }
        self.next = self.next.max(end);
    }
}

impl Bid {
    fn count(&mut self, points: u64, price: Price) {
        let runs = price <= self.bid;
        self.preempted += u64::from(self.running && !runs);
        if runs {
            self.ran += points;
            self.paid += u128::from(points) * u128::from(price.0);
        }
        self.running = runs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::PriceTrace;

    fn table(rows: &str, longest_gap_minutes: Option<u64>) -> PriceTable {
        let text = format!("timestamp,instance_type,region,price_usd_per_hour\n{rows}");
        let settings = Settings {
            shares: vec![0.5, 1.0],
            on_demand: BTreeMap::from([("g".to_owned(), Price(1_000_000))]),
            regions: Vec::new(),
            longest_gap: longest_gap_minutes.map(|minutes| Micros::seconds(minutes * 60)),
        };
        let trace = PriceTrace::of(Box::new(std::io::Cursor::new(text))).expect("a heading");
        replay_prices(trace, &settings).expect("a trace")
    }

    /// Returns availability, pre-emptions per running hour and mean paid, of the mean over the markets.
    fn means(table: &PriceTable) -> Vec<(f64, f64, f64)> {
        let rows = table.types[0].mean.iter();
        let figures = rows.map(|o| (o.availability, o.preemptions_per_hour, o.mean_paid_usd));
        figures.map(|(a, p, m)| (a, p.unwrap_or(-1.0), m.unwrap_or(-1.0))).collect()
    }

    #[test]
    fn a_bid_runs_where_the_price_is_at_most_the_bid() {
        // 12 grid points: 6 at 0.30, 6 at 0.60.
        let rows =
            "1970-01-01T00:00:00Z,g,a,0.30\n1970-01-01T00:30:00Z,g,a,0.60\n1970-01-01T00:55:00Z,x,a,9\n";
        assert_eq!(means(&table(rows, None)), [(0.5, 2.0, 0.3), (1.0, 0.0, 0.45)]);
    }

    #[test]
    fn what_happens_between_two_grid_points_is_not_seen() {
        let rows = "1970-01-01T00:00:00Z,g,a,0.30\n1970-01-01T00:01:00Z,g,a,7\n1970-01-01T00:02:00Z,g,a,0.30\n1970-01-01T00:55:00Z,x,a,9\n";
        assert_eq!(means(&table(rows, None)), [(1.0, 0.0, 0.3), (1.0, 0.0, 0.3)]);
    }

    #[test]
    fn a_constant_price_holds_to_the_end_of_the_trace() {
        let rows = "1970-01-01T00:00:00Z,g,a,0.60\n1970-01-31T00:00:00Z,x,a,9\n";
        assert_eq!(means(&table(rows, None)), [(0.0, -1.0, -1.0), (1.0, 0.0, 0.6)]);
    }

    #[test]
    fn in_a_gap_nothing_is_known() {
        // Known for 00:00 to 00:10 and 02:00 to 02:10: six points, and no step between them.
        let rows =
            "1970-01-01T00:00:00Z,g,a,0.30\n1970-01-01T02:00:00Z,g,a,0.60\n1970-01-01T09:00:00Z,x,a,9\n";
        let table = table(rows, Some(10));
        assert_eq!(means(&table), [(0.5, 0.0, 0.3), (1.0, 0.0, 0.45)]);
        assert_eq!(table.types[0].markets[0].hours, 0.5);
    }

    #[test]
    fn markets_count_alike_however_long_they_are() {
        let rows =
            "1970-01-01T00:00:00Z,g,a,0.30\n1970-01-01T09:00:00Z,g,b,0.60\n1970-01-01T09:55:00Z,x,a,9\n";
        assert_eq!(means(&table(rows, None))[0].0, 0.5);
    }
}
