//! The page of a world.

use super::outcome::{KindSums, MarketSeries, Outcome};
use super::tenants::Kind;
use kubebid_core::units::Micros;
use kubebid_report::{Axis, Chart, Page, Series, Shape, Table, TimeSeries, Unit};
use std::collections::BTreeMap;

/// The most lines that a reader can distinguish.
const LINES: usize = 6;
const DAY_US: u64 = Micros::DAY.0;

impl Outcome {
    /// Returns the page of a world.
    pub fn page(&self) -> Page {
        let shown = &self.markets[..self.markets.len().min(LINES)];
        let mut page = Page {
            title: "A simulated market".to_owned(),
            summary: format!(
                "{} markets over {} days, seed {}; {}. Lines are means over equal spans of time, their bands the \
                 least and the most.{}",
                self.markets.len(),
                self.settings.days,
                self.settings.seed,
                self.settings.rules,
                if shown.len() < self.markets.len() {
                    format!(" Lines are of the first {LINES} markets, bars and sums of all.")
                } else {
                    String::new()
                }
            ),
            ..Page::default()
        };
        page.fact("bids", self.bids.to_string());
        page.fact("allocations", self.allocations.to_string());
        page.fact("notices", self.notices.to_string());
        page.fact("of these taken back", self.rescinded.to_string());
        page.fact("charged", dollars(self.debits_micros));
        let lines = |title: &str, y: Axis, figure: &dyn Fn(&MarketSeries, usize) -> Option<f64>| {
            let series = shown.iter().map(|market| over_time(market, figure)).collect();
            Chart::over_time(title, Shape::Lines, y, series)
        };
        page.charts = vec![
            lines("Market price", Axis::new("$ per node-hour", Unit::Dollars).logarithmic(), &|market, n| {
                Some(market.market_price_micros[n] as f64 / 1e6).filter(|price| *price > 0.0)
            }),
            lines("Utilisation", Axis::new("nodes held, of all", Unit::Share), &|market, n| {
                let supply = market.supply_nodes[n];
                (supply > 0).then(|| market.nodes_in_use[n] as f64 / supply as f64)
            }),
            lines("Depth", Axis::new("nodes wanted and not held", Unit::Number), &|market, n| {
                Some(market.unmet_nodes[n] as f64)
            }),
            Chart::over_time(
                "Pre-emption",
                Shape::Bars,
                Axis::new("notices a day", Unit::Number),
                vec![by_day("", self.markets.iter().map(|market| (market, &market.notices[..])), 1.0)],
            ),
            Chart {
                note: "By the way in which a tenant bids.".to_owned(),
                ..Chart::over_time(
                    "Cost",
                    Shape::Bars,
                    Axis::new("charged on the day", Unit::Dollars),
                    self.kinds.keys().map(|kind| self.cost_by_day(*kind)).collect(),
                )
            },
        ];
        page.tables = vec![self.by_kind()];
        page
    }

    fn cost_by_day(&self, kind: Kind) -> Series {
        let costs =
            self.markets.iter().filter_map(|market| Some((market, &market.cost_micros.get(&kind)?[..])));
        by_day(kind.name(), costs, 1e6)
    }

    fn by_kind(&self) -> Table {
        let headings = [
            "kind",
            "$ per finished node-hour",
            "work finished, %",
            "jobs",
            "done",
            "late",
            "gave up",
            "notices",
            "cost",
            "mean time to the end",
        ];
        let row = |(kind, sums): (&Kind, &KindSums)| {
            let KindSums { jobs, done, late, given_up, notices, cost_micros, turnaround_us, .. } = *sums;
            let hours = turnaround_us as f64 / done.max(1) as f64 / Micros::HOUR.0 as f64;
            let counts = [jobs, done, late, given_up, notices].map(|count| count.to_string());
            let rest = [dollars(cost_micros), format!("{hours:.1} h")];
            let first = [kind.name().to_owned()].into_iter().chain(sums.cost_and_finished());
            first.chain(counts).chain(rest).collect()
        };
        Table {
            title: "Ways to bid".to_owned(),
            note: "Who gave up had not all its work done by the end of its patience or its budget."
                .to_owned(),
            headings: headings.map(str::to_owned).to_vec(),
            rows: self.kinds.iter().map(row).collect(),
        }
    }
}

fn over_time(market: &MarketSeries, figure: &dyn Fn(&MarketSeries, usize) -> Option<f64>) -> Series {
    let mut trail = TimeSeries::default();
    let points = market.market_price_micros.len();
    let at = |n: usize| Micros(market.start_us + n as u64 * market.sample_us);
    (0..points).for_each(|n| trail.set(at(n), figure(market, n)));
    trail.series(&market.market, at(points))
}

/// Returns the sum of each day, over all markets.
fn by_day<'a>(name: &str, series: impl Iterator<Item = (&'a MarketSeries, &'a [u64])>, unit: f64) -> Series {
    let mut days: BTreeMap<u64, u64> = BTreeMap::new();
    for (market, counts) in series {
        for (n, count) in counts.iter().enumerate() {
            // A point has the sum of the time before it.
            let at = (market.start_us + n as u64 * market.sample_us).saturating_sub(1);
            *days.entry(at / DAY_US).or_default() += count;
        }
    }
    let days = days.into_iter().map(|(day, count)| (day, count as f64 / unit)).collect();
    Series::by_day(name, &days)
}

fn dollars(micros: u128) -> String {
    format!("${}", micros / 1_000_000)
}
