//! Findings about a policy, what it brings and what it costs others: estimates, tables and charts.

use super::book::{Role, Setting};
use super::ledger::Outcome;
use super::play::Baseline;
use super::policy::Policy;
use super::search::SearchResult;
use crate::estimate::Estimate;
use kubebid_report::{Axis, Chart, Page, Point, Series, Shape, Table, Unit};
use serde::Serialize;
use std::fmt::Write;

/// The harm that counts at all, in dollars a run.
const LEAST_HARM: f64 = 0.05;

/// The effect of a policy in a setting, compared with the truth seed by seed. Dollars are per node-hour that the agent
/// needs or sells; in settings in which it needs nothing, per node-hour of the others.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// The name of the policy.
    pub policy: String,
    /// The description of the policy.
    pub about: String,
    /// Its rules, one on a line.
    pub rules: String,
    /// The name of the setting.
    pub setting: &'static str,
    /// Runs.
    pub seeds: u64,
    /// The nodes that the truthful agent bids for, where it may want fewer than it can use.
    pub truthful_nodes: Option<u32>,
    /// The agent's payoff with the truth, in dollars per node-hour.
    pub truth: Estimate,
    /// The gain over the truth, in dollars per node-hour.
    pub gain: Estimate,
    /// The gain as a share of the truthful payoff, in percent; none if that is 0.
    pub gain_percent: Option<Estimate>,
    /// Dollars that the agent paid per node-hour that it used.
    pub paid: Option<f64>,
    /// Loss of the other tenants, in dollars per node-hour.
    pub tenants_lose: Estimate,
    /// The part of it that is lost work: node time and restarts, and not a higher price.
    pub work_lost: Estimate,
    /// Loss of the other providers, in dollars per node-hour.
    pub providers_lose: Estimate,
    /// The price of harm, if the agent needs nothing.
    pub harm: Option<Harm>,
    /// Notices to the agent in a run.
    pub own_notices: f64,
    /// Notices to other tenants in a run, and with the truth.
    pub notices: [f64; 2],
    /// Claims of other tenants in a run that came to nothing because the holder raised its ceiling, and with the truth.
    pub broken_claims: [f64; 2],
    /// Commands of the agent in a run.
    pub commands: f64,
    #[serde(skip)]
    pub(super) setting_of: Setting,
}

/// The harm of an agent that needs nothing. Harm is lost work of others; a higher price is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Harm {
    /// Dollars of lost work in a run.
    pub dollars: f64,
    /// Dollars that the agent lost in a run.
    pub cost: f64,
    /// Harm per dollar; none without harm, infinite if it is free.
    pub per_dollar: Option<f64>,
}

impl Measurement {
    pub(super) fn new(baseline: &Baseline, policy: &Policy, outcomes: &[Outcome]) -> Measurement {
        let pairs = || outcomes.iter().zip(&baseline.outcomes);
        let each = |of: &dyn Fn(&Outcome, &Outcome) -> f64| {
            let per_hour = |(with, truth): (&Outcome, &Outcome)| of(with, truth) / truth.node_hours;
            Estimate::of(&pairs().map(per_hour).collect::<Vec<f64>>())
        };
        let mean = |of: &dyn Fn(&Outcome) -> f64, all: &[Outcome]| {
            all.iter().map(of).sum::<f64>() / all.len() as f64
        };
        let both = |of: &dyn Fn(&Outcome) -> f64| [mean(of, outcomes), mean(of, &baseline.outcomes)];
        let truth = each(&|_, truth| truth.payoff);
        let gain = each(&|with, truth| with.payoff - truth.payoff);
        let percent = |of: f64| 100.0 * of / truth.mean.abs();
        let gain_percent = (truth.mean.abs() > 1e-6)
            .then(|| Estimate { mean: percent(gain.mean), plus_minus: gain.plus_minus.map(percent) });
        let used = mean(&|outcome| outcome.used, outcomes);
        let work_lost = each(&|with, truth| truth.others_value - with.others_value);
        let griefs = baseline.setting.role() == Role::Griefer;
        let harm = griefs.then(|| {
            let dollars = pairs().map(|(with, truth)| truth.others_value - with.others_value).sum::<f64>()
                / outcomes.len() as f64;
            let cost = -mean(&|outcome| outcome.payoff, outcomes);
            let free = cost < LEAST_HARM / 100.0;
            let per_dollar =
                (dollars > LEAST_HARM).then(|| if free { f64::INFINITY } else { dollars / cost });
            Harm { dollars, cost, per_dollar }
        });
        Measurement {
            policy: policy.name.clone(),
            about: policy.about.clone(),
            rules: policy.to_string(),
            setting: baseline.setting.name(),
            seeds: outcomes.len() as u64,
            truthful_nodes: baseline.nodes,
            truth,
            gain,
            gain_percent,
            paid: (used > 0.0).then(|| mean(&|outcome| outcome.paid, outcomes) / used),
            tenants_lose: each(&|with, truth| truth.others() - with.others()),
            work_lost,
            providers_lose: each(&|with, truth| truth.providers - with.providers),
            harm,
            own_notices: mean(&|outcome| outcome.own_notices, outcomes),
            notices: both(&|outcome| outcome.notices),
            broken_claims: both(&|outcome| outcome.broken_claims),
            commands: mean(&|outcome| outcome.commands, outcomes),
            setting_of: baseline.setting,
        }
    }

    /// Returns true if the policy gains more than 1 % of the truthful payoff beyond its interval, or if a dollar of harm
    /// costs less than 50 cents.
    pub fn is_cheat(&self) -> bool {
        match (self.harm, self.gain_percent) {
            (Some(harm), _) => harm.per_dollar.is_some_and(|per_dollar| per_dollar > 2.0),
            (None, Some(gain)) => gain.mean - gain.plus_minus.unwrap_or(0.0) > 1.0,
            (None, None) => false,
        }
    }

    /// Returns what a search maximises: the gain in percent of the truthful payoff, less its interval, or the harm per
    /// dollar.
    pub(super) fn score(&self) -> f64 {
        match (self.harm, self.gain_percent) {
            (Some(harm), _) => harm.per_dollar.map_or(harm.dollars / 1e3, |per_dollar| per_dollar.min(1e3)),
            (None, Some(gain)) => gain.mean - gain.plus_minus.unwrap_or(0.0),
            (None, None) => 0.0,
        }
    }
}

fn headings(role: Role) -> Vec<String> {
    let words: &[&str] = match role {
        Role::Tenant | Role::Seller => &[
            "policy",
            "gain, $ per node-hour",
            "gain, % of the truth",
            "tenants lose, $",
            "of that, work, $",
            "providers lose, $",
            "own notices",
            "broken claims",
        ],
        Role::Griefer => &[
            "policy",
            "harm, $ a run",
            "cost, $ a run",
            "harm per $",
            "tenants pay more, $ per node-hour",
            "providers lose, $",
            "notices",
            "broken claims",
        ],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn row(measured: &Measurement) -> Vec<String> {
    let mark = if measured.is_cheat() { " \\*" } else { "" };
    let name = format!("{}{mark}", measured.policy);
    let [broken, broken_before] = measured.broken_claims;
    match measured.harm {
        None => vec![
            name,
            format!("{:.4}", measured.gain),
            measured.gain_percent.map_or("–".to_owned(), |gain| format!("{gain:.1}")),
            format!("{:.3}", measured.tenants_lose),
            format!("{:.3}", measured.work_lost),
            format!("{:.3}", measured.providers_lose),
            format!("{:.1}", measured.own_notices),
            format!("{:.1}", broken - broken_before),
        ],
        Some(harm) => vec![
            name,
            format!("{:.2}", harm.dollars),
            format!("{:.2}", harm.cost),
            harm.per_dollar.map_or("–".to_owned(), |per_dollar| match per_dollar {
                free if free > 1e3 => "free".to_owned(),
                per_dollar => format!("{per_dollar:.2}"),
            }),
            format!("{:.3}", measured.tenants_lose.mean - measured.work_lost.mean),
            format!("{:.3}", measured.providers_lose),
            format!("{:.1}", measured.notices[0] - measured.notices[1]),
            format!("{:.1}", broken - broken_before),
        ],
    }
}

fn tables(all: &[Measurement]) -> Vec<(Setting, Table)> {
    let table = |setting: Setting| {
        let here: Vec<&Measurement> = all.iter().filter(|measured| measured.setting_of == setting).collect();
        let first = here.first()?;
        let truth = match setting.role() {
            Role::Griefer => String::new(),
            Role::Tenant | Role::Seller => {
                let nodes = first.truthful_nodes.map_or(String::new(), |nodes| match nodes {
                    1 => ", best with a bid for 1 node".to_owned(),
                    nodes => format!(", best with a bid for {nodes} nodes"),
                });
                format!(" The truth brings ${:.4} per node-hour{nodes}.", first.truth)
            }
        };
        let rows = here.iter().map(|measured| row(measured)).collect();
        let note = format!("{}{truth}", setting.about());
        Some((
            setting,
            Table { title: setting.name().to_owned(), note, headings: headings(setting.role()), rows },
        ))
    };
    Setting::ALL.into_iter().filter_map(table).collect()
}

/// Returns the tables in Markdown, one for each setting, and what a search found.
pub fn markdown(all: &[Measurement], found: &[SearchResult]) -> String {
    let mut out = String::new();
    let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
    for (_, table) in tables(all) {
        let _ = writeln!(out, "**{}**: {}\n\n{}", table.title, table.note, line(&table.headings));
        let _ = writeln!(out, "|---|{}", "---:|".repeat(table.headings.len() - 1));
        table.rows.iter().for_each(|row| out.push_str(&format!("{}\n", line(row))));
        out.push('\n');
    }
    for found in found {
        let measured = &found.measured;
        let figure = match (measured.harm, measured.gain_percent) {
            (Some(harm), _) => format!("harm of ${:.2} a run for ${:.2}", harm.dollars, harm.cost),
            (None, Some(gain)) => {
                format!("gain of {gain:.1} % of the truth on {} fresh seeds", measured.seeds)
            }
            (None, None) => String::new(),
        };
        let mark = if measured.is_cheat() { " \\*" } else { "" };
        let _ = writeln!(out, "**{}**, best of {}{mark}: {figure}\n", measured.setting, found.of);
        measured.rules.lines().for_each(|rule| {
            let _ = writeln!(out, "- {rule}");
        });
        out.push('\n');
    }
    out
}

/// Returns the page with tables and charts.
pub fn page(all: &[Measurement], found: &[SearchResult]) -> Page {
    let chart = |setting: Setting| {
        let here: Vec<&Measurement> = all.iter().filter(|measured| measured.setting_of == setting).collect();
        if here.is_empty() || setting.role() == Role::Griefer {
            return None;
        }
        let point = |(n, measured): (usize, &&Measurement)| {
            let gain = measured.gain_percent?;
            Some(Point { x: n as f64, y: gain.mean, range: gain.range() })
        };
        Some(Chart {
            title: format!("{}: gain over the truth", setting.name()),
            note: setting.about().to_owned(),
            shape: Shape::Dots,
            x: Axis::categories(here.iter().map(|measured| measured.policy.clone())),
            y: Axis::new("percent of the truthful payoff", Unit::Number),
            series: vec![Series {
                name: String::new(),
                points: here.iter().enumerate().filter_map(point).collect(),
            }],
        })
    };
    let mut page = Page {
        title: "Attacks on the market".to_owned(),
        summary: "What policies gain over the truth, and what they cost others. Whiskers are 95 % confidence intervals \
                  over seeds; a star marks more than 1 % beyond the interval, or harm of $1 for less than $0.50."
            .to_owned(),
        charts: Setting::ALL.into_iter().filter_map(chart).collect(),
        tables: tables(all).into_iter().map(|(_, table)| table).collect(),
        ..Page::default()
    };
    if !found.is_empty() {
        page.tables.push(Table {
            title: "The best of the search".to_owned(),
            note: "On fresh seeds.".to_owned(),
            headings: ["setting", "of", "score", "rules"].map(str::to_owned).to_vec(),
            rows: found
                .iter()
                .map(|found| {
                    vec![
                        found.measured.setting.to_owned(),
                        found.of.to_string(),
                        format!("{:.2}", found.measured.score()),
                        found.measured.rules.clone(),
                    ]
                })
                .collect(),
        });
    }
    page
}
