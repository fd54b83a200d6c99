//! The report of a replay.

use super::run::Settings;
use kubebid_core::units::Micros;
use kubebid_core::{Amount, Price};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The report of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// GPUs of a node that jobs share; none where each job takes whole nodes.
    pub gpus_per_node: Option<u32>,
    /// True if a job of several nodes works only on all of them.
    pub gangs: bool,
    /// True if a job that cannot make its deadline gives up.
    pub deadlines_kept: bool,
    /// Name of the venue.
    pub venue: String,
    /// Jobs of the trace.
    pub jobs: usize,
    /// Bids.
    pub bids: u64,
    /// Jobs that shared a node which another job had bid for.
    pub jobs_joined: u64,
    /// Refusals by their code.
    pub refused: BTreeMap<String, u64>,
    /// Jobs that had a node.
    pub jobs_started: u64,
    /// Jobs with all their work done.
    pub jobs_done: u64,
    /// Jobs that were done after their deadline.
    pub jobs_late: u64,
    /// Jobs that could not make their deadline any more.
    pub jobs_gave_up: u64,
    /// Jobs that gave up and never had the time for their work.
    #[serde(rename = "jobs_gave_up_at_once")]
    pub hopeless: u64,
    /// Jobs that still waited or worked when nothing could happen any more.
    pub jobs_unfinished: usize,
    /// Allocations.
    pub nodes_served: u64,
    /// Notices.
    pub preemptions: u64,
    /// Notices that were taken back.
    pub rescinded: u64,
    /// Times that a job of several nodes gave up all of them since it lacked one.
    pub regroupings: u64,
    /// Seconds from submission to the first node, summed over all jobs that started.
    #[serde(rename = "waited_seconds")]
    pub waited: f64,
    /// Seconds from submission to the end, summed over all jobs that are done.
    #[serde(rename = "wait_and_run_seconds")]
    pub wait_and_run: f64,
    /// Node-hours that had to be done again.
    #[serde(rename = "work_lost_node_hours")]
    pub work_lost: f64,
    /// Micro-dollars charged.
    #[serde(serialize_with = "as_text")]
    pub revenue_micros: u128,
    /// The part of the revenue that is fees.
    #[serde(serialize_with = "as_text")]
    pub fees_micros: u128,
    /// Quantiles of the price of each market, in micro-dollars per node-hour, weighted by time with supply.
    pub prices: BTreeMap<String, Quantiles>,
    /// Seconds that the replay took.
    pub wall_seconds: f64,
}

/// Quantiles of a price, micro-dollars per node-hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// The 10th percentile.
    pub p10: u64,
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The highest price.
    pub max: u64,
}

fn as_text<S: serde::Serializer>(value: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl Report {
    pub(super) fn new(venue: String, jobs: usize, settings: &Settings) -> Report {
        let Settings { gpus_per_node, gangs, keep_deadlines, .. } = *settings;
        Report { gpus_per_node, gangs, deadlines_kept: keep_deadlines, venue, jobs, ..Report::default() }
    }

    /// Returns how jobs lie on nodes, and what a deadline is.
    pub(super) fn assumptions(&self) -> String {
        let nodes = match self.gpus_per_node {
            Some(gpus) => format!("jobs of a tenant share nodes of {gpus} GPUs"),
            None => "NOT packed: each job takes whole nodes, whatever its GPUs".to_owned(),
        };
        let deadlines = if self.deadlines_kept { "deadlines are kept" } else { "deadlines are ignored" };
        let gangs = if self.gangs { "; a job works on all of its nodes or on none" } else { "" };
        format!("{nodes}; {deadlines}{gangs}")
    }

    pub(super) fn charge(&mut self, debit: Amount, fee: Amount) {
        self.revenue_micros += debit.0;
        self.fees_micros += fee.0;
    }

    pub(super) fn refuse(&mut self, reason: String) {
        *self.refused.entry(reason).or_default() += 1;
    }
}

/// The time that each market spent at each price.
#[derive(Debug, Default)]
pub(super) struct Prices {
    current: BTreeMap<String, (Micros, Option<Price>)>,
    spans: BTreeMap<String, BTreeMap<Price, u64>>,
}

impl Prices {
    pub(super) fn change(&mut self, at: Micros, market: String, price: Option<Price>) {
        if let Some((since, Some(before))) = self.current.insert(market.clone(), (at, price)) {
            *self.spans.entry(market).or_default().entry(before).or_default() += at.since(since).0;
        }
    }

    pub(super) fn quantiles(&self) -> BTreeMap<String, Quantiles> {
        self.spans.iter().map(|(market, spans)| (market.clone(), quantiles(spans))).collect()
    }
}

fn quantiles(spans: &BTreeMap<Price, u64>) -> Quantiles {
    let total: u64 = spans.values().sum();
    let at = |percent: u64| {
        let mut passed = 0;
        let reached = spans.iter().find(|(_, span)| {
            passed += **span;
            u128::from(passed) * 100 >= u128::from(total) * u128::from(percent)
        });
        reached.map_or(0, |(price, _)| price.0)
    };
    let max = spans.last_key_value().map_or(0, |(price, _)| price.0);
    Quantiles { p10: at(10), p50: at(50), p90: at(90), p99: at(99), max }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dollars = |micros: u128| format!("{}.{:02}", micros / 1_000_000, micros / 10_000 % 100);
        let mean = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 / 3600.0 };
        writeln!(f, "packing           {}", self.assumptions())?;
        writeln!(f, "venue             {}", self.venue)?;
        writeln!(
            f,
            "jobs              {} ({} done, {} gave up, {} neither)",
            self.jobs, self.jobs_done, self.jobs_gave_up, self.jobs_unfinished
        )?;
        if self.jobs_gave_up > 0 {
            let once = self.hopeless;
            writeln!(f, "  deadlines       {once} of those that gave up never had the time for their work")?;
        }
        if self.jobs_late > 0 {
            writeln!(f, "  deadlines       {} were done too late", self.jobs_late)?;
        }
        writeln!(f, "bids              {}, {} jobs joined a node of others", self.bids, self.jobs_joined)?;
        for (reason, count) in &self.refused {
            writeln!(f, "  refused         {count} {reason}")?;
        }
        writeln!(f, "nodes served      {}", self.nodes_served)?;
        writeln!(f, "pre-emptions      {} notices, {} taken back", self.preemptions, self.rescinded)?;
        if self.gangs {
            writeln!(f, "regrouped         {} times a job gave up its other nodes", self.regroupings)?;
        }
        writeln!(f, "mean wait         {:.2} h to the first node", mean(self.waited, self.jobs_started))?;
        writeln!(f, "mean turnaround   {:.2} h to the end", mean(self.wait_and_run, self.jobs_done))?;
        if self.work_lost > 0.0 {
            writeln!(f, "work done again   {:.0} node-hours", self.work_lost)?;
        }
        writeln!(
            f,
            "revenue           ${} (fees ${})",
            dollars(self.revenue_micros),
            dollars(self.fees_micros)
        )?;
        for (market, q) in &self.prices {
            let price = |micros: u64| format!("{:.4}", micros as f64 / 1e6);
            writeln!(
                f,
                "price {market:<11} p10 {} p50 {} p90 {} p99 {} max {} $/node-hour",
                price(q.p10),
                price(q.p50),
                price(q.p90),
                price(q.p99),
                price(q.max)
            )?;
        }
        write!(f, "wall time         {:.1} s", self.wall_seconds)
    }
}
