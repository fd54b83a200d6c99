//! `market-sim experiment`: plays small worlds while a market rule changes.

use super::stdout::Stdout;
use clap::Args;
use kubebid_core::units::Micros;
use kubebid_report::pictures;
use market_sim::experiment::{
    Experiment, Finding, Settings, WelfareMeasure, charts, experiment, markdown, page, with_tables,
};
use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    /// Rules that change: increment, min-runtime, notice, pricing, shading, waiting-rule [default: all]
    #[arg(value_parser = named)]
    experiments: Vec<Experiment>,
    /// Number of worlds
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: u64,
    /// Units on offer
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=200))]
    units: u64,
    /// Hours in which jobs come
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u64).range(1..=1000))]
    hours: u64,
    /// Work that comes, as a share of what the units can do
    #[arg(long, default_value_t = 1.3, value_parser = super::load)]
    load: f64,
    /// Mean hours of a job's work
    #[arg(long, value_name = "HOURS", default_value_t = 3.0, value_parser = super::hours)]
    work: f64,
    /// Minutes from a node's award until it works: what every restart costs
    #[arg(long, value_name = "MINUTES", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=14))]
    boot: u64,
    /// Standard deviation of the logarithm of worths
    #[arg(long, default_value_t = 0.5, value_parser = super::spread)]
    worth_spread: f64,
    /// Yardstick of welfare [default: exact, or bound if more than 400 jobs are expected]
    #[arg(long, value_enum)]
    optimum: Option<Optimum>,
    /// Write a picture for each experiment into this folder
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
    /// Write the tables into this page of documentation, between <!-- tables: EXPERIMENT --> and
    /// <!-- end of tables -->
    #[arg(long, value_name = "FILE.md")]
    into: Option<PathBuf>,
    /// Section: the text before the experiment's name in those comments, with a slash
    #[arg(long, value_name = "NAME", requires = "into")]
    section: Option<String>,
    /// Write a page to look at; .json and .csv have its data
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Optimum {
    /// The optimum itself; hours where there are thousands of jobs
    Exact,
    /// An upper bound of the optimum, within some percent of it
    Bound,
    /// Nothing: welfare is dollars per unit-hour
    None,
}

/// The largest number of jobs for which the exact optimum is the default: beyond it, it takes longer than the runs.
const JOBS_FOR_EXACT: f64 = 400.0;

const HELP: &str = "\
Jobs want one node each and bid what it is worth to them. Each world is played once for each value of the rule
that changes, all other rules at their defaults. Printed are tables in Markdown: mean ± half the 95 % confidence
interval over the worlds, by Student's t. Without the waiting rule the slow reference model plays: with many units
waiting-rule takes much longer than the others.

  welfare   worth of the work done less the reserve of the time held, in % of what a planner who knows all jobs
            beforehand and moves them for free can reach: computed exactly, or an upper bound of it, or left out
            (--optimum)
  churn     allocations that ended because somebody else bid more, per 100
  revenue   dollars per unit-hour on offer
  fairness  Jain's index of the shares of their work that jobs got done: 1 is all alike
  envy      how much of all waiting was beside somebody running to whom a node is worth less
  waiting   hours without a node that 95 of 100 jobs do not exceed

Examples:
  market-sim experiment increment min-runtime --seeds 100 --report experiments.html
  market-sim experiment notice --units 40 --seeds 10

Exit codes: 0 done; 1 a file could not be read or written; 2 wrong arguments.";

fn named(text: &str) -> Result<Experiment, String> {
    let known = Experiment::ALL.into_iter().find(|experiment| experiment.name() == text);
    let names = Experiment::ALL.map(Experiment::name).join(", ");
    known.ok_or_else(|| format!("{text:?} is no experiment: there are {names}"))
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(message) = super::once("EXPERIMENTS", arguments.experiments.iter().map(|one| one.name())) {
        return super::misuse(&message);
    }
    match play(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::complain(error.as_ref()),
    }
}

fn play(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let settings = Settings {
        units: arguments.units,
        hours: arguments.hours,
        load: arguments.load,
        work_hours: arguments.work,
        boot: Micros::seconds(60 * arguments.boot),
        worth_spread: arguments.worth_spread,
        ..Settings::default()
    };
    let chosen = match arguments.experiments.as_slice() {
        [] => Experiment::ALL.to_vec(),
        chosen => chosen.to_vec(),
    };
    let jobs = settings.load * (settings.units * settings.hours) as f64 / settings.work_hours;
    let yardstick = match arguments.optimum {
        Some(Optimum::Exact) => WelfareMeasure::Optimum,
        Some(Optimum::Bound) => WelfareMeasure::Bound,
        Some(Optimum::None) => WelfareMeasure::None,
        None if jobs > JOBS_FOR_EXACT => WelfareMeasure::Bound,
        None => WelfareMeasure::Optimum,
    };
    let worlds = arguments.seeds * chosen.len() as u64;
    let bar = super::counting_bar(worlds, "worlds");
    let mut findings: Vec<Finding> = Vec::new();
    for one in chosen {
        let finding = experiment(one, &settings, yardstick, 0..arguments.seeds, || bar.inc(1));
        // A table is there as soon as its experiment is done: others may take much longer.
        bar.suspend(|| write(arguments, &finding))?;
        findings.push(finding);
    }
    bar.finish_and_clear();
    if let Some(path) = &arguments.report {
        super::write_page(&page(&findings, &settings, arguments.seeds), path)?;
    }
    Ok(())
}

/// Prints the tables of a finding, and writes them and its picture where that is asked for.
fn write(arguments: &Arguments, finding: &Finding) -> Result<(), Box<dyn Error>> {
    write!(Stdout, "{}\n\n{}", finding.experiment.title(), markdown(finding))?;
    if let Some(path) = &arguments.into {
        let page = std::fs::read_to_string(path);
        let page = page.map_err(|fault| format!("cannot read {}: {fault}", path.display()))?;
        let section = arguments.section.iter().map(|section| format!("{section}/")).collect::<String>();
        let place = format!("{section}{}", finding.experiment.name());
        let page = with_tables(&page, &place, &markdown(finding));
        let page = page.map_err(|none| format!("{}: {none}", path.display()))?;
        std::fs::write(path, page).map_err(|fault| format!("cannot write {}: {fault}", path.display()))?;
    }
    if let Some(folder) = &arguments.pictures {
        let path = folder.join(finding.experiment.name()).with_extension("svg");
        let written = std::fs::write(&path, pictures(finding.experiment.title(), &charts(finding)));
        written.map_err(|fault| format!("cannot write {}: {fault}", path.display()))?;
    }
    Ok(())
}
