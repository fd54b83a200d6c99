//! The results of a backtest: a figure for each seed, and the summary of all seeds.

use super::Contestant;
use super::run::Run;
use crate::estimate::Estimate;
use kubebid_report::csv::{CsvWriter, number};
use serde::Serialize;
use std::fmt;

/// A figure by which strategies are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Dollars paid over hours of work that were finished.
    CostPerFinishedHour,
    /// Finished work, in percent of the work that was asked for.
    Finished,
    /// Hours per job without a node that works.
    WaitHours,
    /// Nodes lost per job.
    Interruptions,
    /// Hours of work per job that had to be done again.
    LostHours,
    /// Jobs not done by their deadline, in percent.
    Missed,
}

impl Figure {
    /// All figures, in the order of tables.
    pub const ALL: [Figure; 6] = [
        Figure::CostPerFinishedHour,
        Figure::Finished,
        Figure::WaitHours,
        Figure::Interruptions,
        Figure::LostHours,
        Figure::Missed,
    ];

    /// Returns the heading of the figure.
    pub fn label(self) -> &'static str {
        match self {
            Figure::CostPerFinishedHour => "cost, $ per finished hour",
            Figure::Finished => "work finished, %",
            Figure::WaitHours => "waiting, h per job",
            Figure::Interruptions => "interruptions per job",
            Figure::LostHours => "work lost, h per job",
            Figure::Missed => "deadlines missed, %",
        }
    }
}

/// The figures of one contestant and seed, in the order of [`Figure::ALL`]. Without a finished hour there is no
/// cost of one.
pub type Results = [Option<f64>; 6];

/// Computes the figures: all money over all finished work, that work over all work that was asked for; the rest are
/// means over the jobs.
pub(super) fn results(runs: impl Iterator<Item = Run>) -> Results {
    let (mut sum, mut jobs) = (Run::default(), 0.0);
    let mut missed = 0.0;
    for run in runs {
        jobs += 1.0;
        sum.work_hours += run.work_hours;
        sum.finished_hours += run.finished_hours;
        sum.cost_usd += run.cost_usd;
        sum.waited_hours += run.waited_hours;
        sum.interruptions += run.interruptions;
        sum.lost_hours += run.lost_hours;
        missed += f64::from(u8::from(run.missed));
    }
    [
        (sum.finished_hours > 0.0).then(|| sum.cost_usd / sum.finished_hours),
        Some(100.0 * sum.finished_hours / sum.work_hours),
        Some(sum.waited_hours / jobs),
        Some(sum.interruptions / jobs),
        Some(sum.lost_hours / jobs),
        Some(100.0 * missed / jobs),
    ]
}

fn some(values: Vec<f64>) -> Option<Estimate> {
    (!values.is_empty()).then(|| Estimate::of(&values))
}

/// The results of all contestants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Backtest {
    /// Number of seeds.
    pub seeds: usize,
    /// The contestants; the others are compared with the first.
    pub contestants: Vec<Entry>,
}

/// The results of one contestant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Name of the contestant.
    pub name: String,
    /// The figures of each seed.
    pub results: Vec<Results>,
}

impl Backtest {
    pub(super) fn new(contestants: &[Contestant]) -> Backtest {
        let entry = |contestant: &Contestant| Entry { name: contestant.to_string(), results: Vec::new() };
        Backtest { seeds: 0, contestants: contestants.iter().map(entry).collect() }
    }

    pub(super) fn add(&mut self, results: impl IntoIterator<Item = Results>) {
        self.seeds += 1;
        for (entry, results) in self.contestants.iter_mut().zip(results) {
            entry.results.push(results);
        }
    }

    /// Returns the estimate over the seeds that have the figure; `None` where none has.
    pub fn estimate(&self, contestant: usize, figure: Figure) -> Option<Estimate> {
        let results = &self.contestants[contestant].results;
        some(results.iter().filter_map(|result| result[figure as usize]).collect())
    }

    /// Returns how much more than the first contestant, seed by seed: what the jobs have in common cancels out.
    pub fn difference(&self, contestant: usize, figure: Figure) -> Option<Estimate> {
        let pairs = self.contestants[contestant].results.iter().zip(&self.contestants[0].results);
        let difference =
            |(its, first): (&Results, &Results)| Some(its[figure as usize]? - first[figure as usize]?);
        some(pairs.filter_map(difference).collect())
    }

    /// Contestants down, figures across.
    pub fn rows(&self, of: impl Fn(usize, Figure) -> Option<Estimate>) -> Vec<Vec<String>> {
        let row = |(n, entry): (usize, &Entry)| {
            let figures =
                Figure::ALL.map(|figure| of(n, figure).map_or("-".to_owned(), |known| known.to_string()));
            std::iter::once(entry.name.clone()).chain(figures).collect()
        };
        self.contestants.iter().enumerate().map(row).collect()
    }

    /// Writes one line for each contestant and seed.
    pub fn write_csv(&self, to: impl std::io::Write) -> std::io::Result<()> {
        let mut out = CsvWriter::new(to);
        out.row([
            "strategy",
            "seed",
            "cost_usd_per_finished_hour",
            "finished_percent",
            "wait_hours",
            "interruptions",
            "lost_hours",
            "missed_percent",
        ])?;
        for entry in &self.contestants {
            for (seed, results) in entry.results.iter().enumerate() {
                let cells = [entry.name.clone(), seed.to_string()].into_iter().chain(results.map(number));
                out.row(cells)?;
            }
        }
        out.finish()
    }
}

impl fmt::Display for Backtest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = ["$/h finished", "finished %", "waiting h", "interruptions", "lost h", "missed %"];
        let mut print = |title: &str, rows: Vec<Vec<String>>| {
            write!(f, "{title:<24}")?;
            headings.iter().try_for_each(|heading| write!(f, "{heading:>18}"))?;
            writeln!(f)?;
            rows.iter().try_for_each(|row| {
                write!(f, "{:<24}", row[0])?;
                row[1..].iter().try_for_each(|cell| write!(f, "{cell:>18}"))?;
                writeln!(f)
            })
        };
        print("", self.rows(|n, figure| self.estimate(n, figure)))?;
        if self.contestants.len() > 1 {
            let mut rows = self.rows(|n, figure| self.difference(n, figure));
            rows.remove(0);
            print(&format!("more than {}", self.contestants[0].name), rows)?;
        }
        Ok(())
    }
}
