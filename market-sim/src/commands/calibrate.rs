//! `market-sim calibrate`: compares prices and demand of a world with published traces.

use super::stdout::Stdout;
use clap::Args;
use market_sim::calibration::{Table, compare_demand, compare_prices};
use market_sim::world::{Rules, SeriesChoice, Settings};
use std::error::Error;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    /// Simulated days [default: what the world says, else 60]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=3660))]
    days: Option<u32>,
    /// Markets [default: what the world says, else 12]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=1000))]
    markets: Option<u32>,
    /// Everything that is drawn follows from it [default: what the world says, else 1]
    #[arg(long)]
    seed: Option<u64>,
    /// A JSON or YAML object with the fields of the world that differ; docs/simulator.md lists all fields and
    /// their ranges
    #[arg(long, value_name = "FILE")]
    world: Option<PathBuf>,
    /// Markets that live at the same time [default: one for each core]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Leave out the same world under the default rules
    #[arg(long)]
    chosen_rules_only: bool,
    /// Format of the tables
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

const HELP: &str = "\
Lets a world live and prints statistics of its prices and its demand, the median over its markets, beside what
published traces have: EC2 spot prices of 2015 (10th and 90th percentile over 12 markets), jobs of the
ElasticFlow clusters of 2021. Nothing in the world reads these bands; prices come out of the auction. The last
column has the same world under the default rules of a market, to look at.

Prices are shares of the on-demand price, excursions are times above 1.5 × the median price. With fewer than
60 days or 12 markets the statistics scatter more than their bands are wide.

Example:
  market-sim calibrate --days 60 --markets 12 --seed 1

Exit codes: 0 all inside; 1 the run failed; 3 a statistic is out of its band (named in the table).";

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match calibrate(arguments) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(3),
        Err(error) => super::complain(error.as_ref()),
    }
}

/// Prints the tables, and tells how many statistics are out of their bands.
fn calibrate(arguments: &Arguments) -> Result<usize, Box<dyn Error>> {
    let settings = settings(arguments)?;
    let (prices, demand) = tables(arguments, &settings)?;
    match arguments.output {
        Output::Text => print(&settings, &prices, &demand)?,
        Output::Json => {
            let tables = serde_json::json!({ "prices": prices, "demand": demand });
            writeln!(Stdout, "{}", serde_json::to_string_pretty(&tables)?)?;
        }
    }
    Ok(prices.outside().chain(demand.outside()).count())
}

fn settings(arguments: &Arguments) -> Result<Settings, Box<dyn Error>> {
    let world = super::simulate::settings(&Settings::default(), arguments.world.as_deref())?;
    let settings = Settings {
        seed: arguments.seed.unwrap_or(world.seed),
        days: arguments.days.unwrap_or(world.days),
        markets: arguments.markets.unwrap_or(world.markets),
        // The statistics are those of prices every five minutes.
        sample_seconds: Settings::default().sample_seconds,
        kept: SeriesChoice::Prices,
        ..world
    };
    if settings.days < 2 || settings.markets < 2 {
        return Err("a calibration takes a world of at least 2 days and 2 markets".into());
    }
    Ok(settings)
}

fn tables(arguments: &Arguments, settings: &Settings) -> Result<(Table, Table), Box<dyn Error>> {
    let demand = compare_demand(settings);
    let prices = compare_prices(&super::simulate::watched(settings, arguments.threads)?);
    if arguments.chosen_rules_only {
        return Ok((prices, demand));
    }
    let default = Settings { rules: Rules::MARKET_DEFAULT, ..settings.clone() };
    let beside = compare_prices(&super::simulate::watched(&default, arguments.threads)?);
    Ok((prices.beside(&beside), demand))
}

fn print(settings: &Settings, prices: &Table, demand: &Table) -> std::io::Result<()> {
    let Settings { days, markets, seed, rules, .. } = settings;
    writeln!(Stdout, "{markets} markets, {days} days, seed {seed}")?;
    writeln!(Stdout, "rules: {rules}\n")?;
    writeln!(Stdout, "Prices\n{prices}\nDemand\n{demand}")?;
    let out: Vec<&str> = prices.outside().chain(demand.outside()).map(|row| row.statistic.as_str()).collect();
    match out.as_slice() {
        [] => writeln!(Stdout, "All inside their bands."),
        out => writeln!(Stdout, "Out of band: {}.", out.join(", ")),
    }
}
