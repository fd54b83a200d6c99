//! The results of a world: series for each market, sums for each kind of account.

use super::settings::{SeriesChoice, Settings};
use super::tenants::{Kind, Want};
use crate::audit::{Market, Sums};
use kubebid_core::units::Micros;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The outcome of a world. It serialises to the same bytes for the same settings, on any venue.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The settings of the world.
    pub settings: Settings,
    /// The series of each market.
    pub markets: Vec<MarketSeries>,
    /// Sums by kind of tenant.
    pub kinds: BTreeMap<Kind, KindSums>,
    /// Sums of the jobs that are watched, which are in no other sums.
    #[serde(skip)]
    pub watched: KindSums,
    /// Commands of providers and tenants.
    pub commands: u64,
    /// Bids.
    pub bids: u64,
    /// Commands that only moved the clock: how many it takes depends on how many markets share it.
    #[serde(skip)]
    pub clock_steps: u64,
    /// Refusals by their code.
    pub refused: BTreeMap<&'static str, u64>,
    /// Allocations.
    pub allocations: u64,
    /// Notices.
    pub notices: u64,
    /// Notices that were taken back.
    pub rescinded: u64,
    /// Micro-dollars charged.
    pub debits_micros: u128,
    /// Bills, each of which the auditor knew to the micro-dollar beforehand.
    pub bills_exact: u64,
    /// Jobs that did not bid because the account had spent its budget of the day.
    pub over_budget: u64,
}

/// Series of one market: one point for every `sample_us` from `start_us` on. Notices and cost are
/// those since the point before.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MarketSeries {
    /// Name of the market.
    pub market: String,
    /// Time of the first point, microseconds since the epoch.
    pub start_us: u64,
    /// Microseconds between two points.
    pub sample_us: u64,
    /// The on-demand price, micro-dollars per node-hour.
    pub on_demand_micros: u64,
    /// Micro-dollars per node-hour.
    pub market_price_micros: Vec<u64>,
    /// The entry price; none if no node was to be had.
    pub entry_price_micros: Vec<Option<u64>>,
    /// Nodes that open bids wanted and did not have.
    pub unmet_nodes: Vec<u64>,
    /// Nodes that were held.
    pub nodes_in_use: Vec<u64>,
    /// Units on offer.
    pub supply_nodes: Vec<u64>,
    /// Notices since the point before.
    pub notices: Vec<u64>,
    /// Micro-dollars charged.
    pub cost_micros: BTreeMap<Kind, Vec<u64>>,
    #[serde(skip)]
    notices_before: u64,
}

/// Sums over the jobs of one kind of tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct KindSums {
    /// Jobs.
    pub jobs: u64,
    /// Jobs with all their work done.
    pub done: u64,
    /// Jobs that were done after their deadline.
    pub late: u64,
    /// Jobs that gave up before their work was done.
    pub given_up: u64,
    /// Jobs that were neither done nor given up at the end.
    pub open: u64,
    /// Notices on their nodes.
    pub notices: u64,
    /// Nodes that the market took from a job under way.
    pub interruptions: u64,
    /// Micro-dollars charged.
    pub cost_micros: u128,
    /// Work that was asked for, in node-microseconds.
    pub work_us: u128,
    /// Work that was finished, in node-microseconds.
    pub finished_us: u128,
    /// Work that had to be done again, in node-microseconds.
    pub lost_us: u128,
    /// Microseconds in which a job had no node that was ready, summed over the jobs.
    pub waited_us: u128,
    /// Microseconds from submission to the end, summed over the jobs that are done.
    pub turnaround_us: u128,
}

impl MarketSeries {
    pub(super) fn new(market: &str, settings: &Settings, start_us: u64) -> MarketSeries {
        MarketSeries {
            market: market.to_owned(),
            start_us,
            sample_us: settings.sample_seconds * 1_000_000,
            on_demand_micros: settings.on_demand_micros,
            ..MarketSeries::default()
        }
    }

    pub(super) fn sample(&mut self, market: &Market, charged: &mut BTreeMap<Kind, u64>, kept: SeriesChoice) {
        let (numbers, supply) = (market.numbers(), market.supply());
        let before = self.market_price_micros.len();
        match kept {
            SeriesChoice::All => self.market_price_micros.push(numbers.market_price.0),
            SeriesChoice::Prices => return self.market_price_micros.push(numbers.market_price.0),
            SeriesChoice::None => return,
        }
        self.entry_price_micros.push(numbers.entry_price.map(|price| price.0));
        self.unmet_nodes.push(market.unmet());
        self.nodes_in_use.push(supply.allocated + supply.notice);
        self.supply_nodes.push(supply.total);
        self.notices.push(market.notices() - self.notices_before);
        self.notices_before = market.notices();
        for (kind, cost) in charged {
            let series = self.cost_micros.entry(*kind).or_default();
            series.resize(before, 0);
            series.push(std::mem::take(cost));
        }
    }

    /// Returns the market price at each point, as a share of the on-demand price.
    pub fn prices(&self) -> Vec<f64> {
        self.market_price_micros.iter().map(|price| *price as f64 / self.on_demand_micros as f64).collect()
    }
}

impl Outcome {
    pub(super) fn new(settings: Settings) -> Outcome {
        Outcome {
            settings,
            markets: Vec::new(),
            kinds: BTreeMap::new(),
            watched: KindSums::default(),
            commands: 0,
            bids: 0,
            clock_steps: 0,
            refused: BTreeMap::new(),
            allocations: 0,
            notices: 0,
            rescinded: 0,
            debits_micros: 0,
            bills_exact: 0,
            over_budget: 0,
        }
    }

    pub(super) fn close(&mut self, sums: Sums) {
        (self.allocations, self.notices, self.rescinded) = (sums.allocations, sums.notices, sums.rescinded);
        self.bills_exact = sums.bills_exact;
        self.debits_micros = sums.debits.0;
    }

    /// Returns the sums that a job belongs to.
    pub(super) fn sums(&mut self, want: Want) -> &mut KindSums {
        if want.watched { &mut self.watched } else { self.kinds.entry(want.kind).or_default() }
    }

    /// Takes in what became of further markets.
    pub(super) fn join(&mut self, other: Outcome) {
        self.markets.extend(other.markets);
        for (kind, sums) in other.kinds {
            self.kinds.entry(kind).or_default().add(&sums);
        }
        self.watched.add(&other.watched);
        for (reason, count) in other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
        self.commands += other.commands;
        self.bids += other.bids;
        self.clock_steps += other.clock_steps;
        self.allocations += other.allocations;
        self.notices += other.notices;
        self.rescinded += other.rescinded;
        self.debits_micros += other.debits_micros;
        self.bills_exact += other.bills_exact;
        self.over_budget += other.over_budget;
    }
}

impl KindSums {
    fn add(&mut self, other: &KindSums) {
        self.jobs += other.jobs;
        self.done += other.done;
        self.late += other.late;
        self.given_up += other.given_up;
        self.open += other.open;
        self.notices += other.notices;
        self.interruptions += other.interruptions;
        self.cost_micros += other.cost_micros;
        self.work_us += other.work_us;
        self.finished_us += other.finished_us;
        self.lost_us += other.lost_us;
        self.waited_us += other.waited_us;
        self.turnaround_us += other.turnaround_us;
    }

    /// Returns the cost of a finished node-hour in dollars, rushes and other work without an end left out.
    pub fn cost_per_finished_hour(&self) -> Option<f64> {
        let hours = self.finished_us as f64 / Micros::HOUR.0 as f64;
        (self.finished_us > 0).then(|| self.cost_micros as f64 / 1e6 / hours)
    }

    /// Returns the work that was finished, as a share of the work that was asked for.
    pub fn finished_share(&self) -> Option<f64> {
        (self.work_us > 0).then(|| self.finished_us as f64 / self.work_us as f64)
    }

    /// Returns cost and finished share as text: dollars, and percent.
    pub(super) fn cost_and_finished(&self) -> [String; 2] {
        let none = || "-".to_owned();
        [
            self.cost_per_finished_hour().map_or_else(none, |cost| format!("${cost:.4}")),
            self.finished_share().map_or_else(none, |share| format!("{:.1}", 100.0 * share)),
        ]
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dollars = |micros: u128| format!("{}.{:02}", micros / 1_000_000, micros / 10_000 % 100);
        writeln!(f, "commands          {}, {} of them bids", self.commands, self.bids)?;
        for (reason, count) in &self.refused {
            writeln!(f, "  refused         {count} {reason}")?;
        }
        writeln!(f, "allocations       {}", self.allocations)?;
        writeln!(f, "notices           {}, {} taken back", self.notices, self.rescinded)?;
        writeln!(f, "charged           ${}", dollars(self.debits_micros))?;
        writeln!(f, "audited           {} bills, all of them to the micro-dollar", self.bills_exact)?;
        writeln!(
            f,
            "{:<24}{:>16}{:>12}{:>9}{:>9}{:>7}{:>9}{:>9}{:>14}",
            "kind", "$/h finished", "finished %", "jobs", "done", "late", "gave up", "notices", "cost"
        )?;
        for (kind, sums) in &self.kinds {
            let KindSums { jobs, done, late, given_up, notices, cost_micros, .. } = *sums;
            let cost = format!("${}", dollars(cost_micros));
            let [each, finished] = sums.cost_and_finished();
            write!(f, "{:<24}{each:>16}{finished:>12}", kind.name())?;
            writeln!(f, "{jobs:>9}{done:>9}{late:>7}{given_up:>9}{notices:>9}{cost:>14}")?;
        }
        Ok(())
    }
}
