//! Series of a replay over time, in bounded memory, and the page made of them.

use super::report::Report;
use super::run::Settings;
use kubebid_core::Price;
use kubebid_core::units::Micros;
use kubebid_report::{Axis, Chart, Page, Point, Series, Shape, TimeSeries, Unit};
use std::collections::BTreeMap;

/// Series of all markets, recorded while the replay runs.
#[derive(Debug, Default)]
pub(super) struct History {
    markets: BTreeMap<String, MarketHistory>,
    /// Notices and micro-dollars charged on each day since the epoch.
    days: BTreeMap<u64, (u64, u128)>,
    end: Micros,
}

#[derive(Debug, Default)]
struct MarketHistory {
    price: TimeSeries,
    held: (u64, TimeSeries),
    /// Nodes of jobs that are submitted and not done.
    wanted: u64,
    waiting: TimeSeries,
}

impl History {
    pub(super) fn price(&mut self, at: Micros, market: &str, price: Option<Price>) {
        self.end = self.end.max(at);
        self.market(market).price.set(at, price.map(|price| price.0 as f64 / 1e6));
    }

    /// Changes the number of nodes that are wanted, and of those that are held.
    pub(super) fn change(&mut self, at: Micros, market: &str, wanted: i64, held: i64) {
        self.end = self.end.max(at);
        let market = self.market(market);
        market.wanted = market.wanted.saturating_add_signed(wanted);
        market.held.0 = market.held.0.saturating_add_signed(held);
        market.held.1.set(at, Some(market.held.0 as f64));
        // A job that is done holds its nodes for a moment longer.
        market.waiting.set(at, Some(market.wanted.saturating_sub(market.held.0) as f64));
    }

    pub(super) fn notice(&mut self, at: Micros) {
        self.days.entry(at.0 / Micros::DAY.0).or_default().0 += 1;
    }

    pub(super) fn charge(&mut self, at: Micros, debit_micros: u128) {
        self.days.entry(at.0 / Micros::DAY.0).or_default().1 += debit_micros;
    }

    fn market(&mut self, name: &str) -> &mut MarketHistory {
        self.markets.entry(name.to_owned()).or_default()
    }

    pub(super) fn page(self, report: &Report, settings: &Settings) -> Page {
        let mut page = Page {
            title: "Replay of a demand trace".to_owned(),
            summary: format!(
                "{} jobs bid for {} nodes of each class, {}; {}. Lines are means over equal spans of time, \
                 their bands the least and the most.",
                report.jobs,
                settings.capacity,
                report.venue,
                report.assumptions()
            ),
            ..Page::default()
        };
        let hours = |sum: f64, count: u64| format!("{:.2} h", sum / count.max(1) as f64 / 3600.0);
        page.fact("jobs done", format!("{} of {}", report.jobs_done, report.jobs));
        page.fact("jobs that gave up for their deadline", report.jobs_gave_up.to_string());
        page.fact("mean wait for the first node", hours(report.waited, report.jobs_started));
        page.fact("mean time to the end", hours(report.wait_and_run, report.jobs_done));
        page.fact("notices", report.preemptions.to_string());
        page.fact("of these taken back", report.rescinded.to_string());
        page.fact("revenue", format!("${}", report.revenue_micros / 1_000_000));

        let end = self.end;
        let (mut prices, mut used, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for (name, history) in self.markets {
            prices.push(history.price.series(&name, end));
            let mut share = history.held.1.series(&name, end);
            share.points.iter_mut().for_each(|point| *point = per(*point, settings.capacity as f64));
            used.push(share);
            waiting.push(history.waiting.series(&name, end));
        }
        page.charts = vec![
            Chart::over_time(
                "Market price",
                Shape::Lines,
                Axis::new("$ per node-hour", Unit::Dollars),
                prices,
            ),
            Chart::over_time("Utilisation", Shape::Lines, Axis::new("nodes held, of all", Unit::Share), used),
            Chart::over_time(
                "Depth",
                Shape::Lines,
                Axis::new("nodes wanted and not held", Unit::Number),
                waiting,
            ),
            Chart::over_time(
                "Pre-emption",
                Shape::Bars,
                Axis::new("notices a day", Unit::Number),
                by_day(&self.days, |(notices, _)| *notices as f64),
            ),
            Chart::over_time(
                "Cost",
                Shape::Bars,
                Axis::new("charged on the day", Unit::Dollars),
                by_day(&self.days, |(_, micros)| *micros as f64 / 1e6),
            ),
        ];
        page
    }
}

fn per(point: Point, all: f64) -> Point {
    Point { y: point.y / all, range: point.range.map(|(low, high)| (low / all, high / all)), ..point }
}

/// Returns a bar for each day; no series without days.
fn by_day(days: &BTreeMap<u64, (u64, u128)>, figure: impl Fn(&(u64, u128)) -> f64) -> Vec<Series> {
    let days: BTreeMap<u64, f64> = days.iter().map(|(day, sums)| (*day, figure(sums))).collect();
    if days.is_empty() { Vec::new() } else { vec![Series::by_day("", &days)] }
}
