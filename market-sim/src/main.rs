//! The `market-sim` tool: its commands and flags.

// `println!` panics when nobody reads: `stdout.rs`.
#![warn(clippy::print_stdout)]

use clap::{Parser, Subcommand};
mod backtest_command;
mod calibrate;
mod experiment_command;
mod live;
mod replay_demand;
mod replay_prices;
mod replay_supply;
mod simulate;
mod stdout;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kubebid_core::Price;
use market_sim::play::{self, PlayError, Shown};
use market_sim::report::Page;
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Plays worlds, traces and commands against a KubeBid market, in this process or against an engine.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Answer commands one by one, from an empty market on
    ///
    /// Reads one JSON object a line and writes one a line: what the command brought about, and how the
    /// market stands afterwards. A command that the rules refuse is answered with a Rejected event; a
    /// line that is no command ends the run.
    #[command(after_long_help = PLAY_HELP)]
    Play {
        /// Where to read commands from [default: standard input]
        file: Option<PathBuf>,
        /// Ask the slow reference model instead of the exchange
        #[arg(long)]
        model: bool,
        /// Answer with seq, at_us and events only, without the state of the market
        #[arg(long)]
        events_only: bool,
    },
    /// Feed the jobs of a demand trace to a market and say what came of it
    ReplayDemand(replay_demand::Arguments),
    /// Say what bids would have got on a price trace: availability, pre-emptions, what they paid
    ReplayPrices(replay_prices::Arguments),
    /// Let a trace drive the supply of a market and say what bids get of it
    ReplaySupply(replay_supply::Arguments),
    /// Compare bidding strategies on a price trace: cost, waiting, interruptions, work lost, deadlines
    Backtest(backtest_command::Arguments),
    /// Play small worlds while a market rule changes: churn, revenue, fairness, welfare against the optimum
    Experiment(experiment_command::Arguments),
    /// Compare the prices and the demand of a world with published traces
    Calibrate(calibrate::Arguments),
    /// Let a world of providers and tenants live, and say what came of it
    Simulate(simulate::Arguments),
    /// Make a living market of a running engine, in real time, until it is stopped
    Live(live::Arguments),
}

const PLAY_HELP: &str = r#"Example: one market, one unit, one bid that gets it.

  market-sim play <<'END'
  {"at_us": 0, "command": "OpenMarket", "market": "h100/eu", "rules": {}}
  {"at_us": 0, "command": "PutOffer", "provider": "p", "market": "h100/eu", "capacity": 1, "reserve": 1000}
  {"at_us": 1000000, "command": "PlaceBid", "tenant": "a", "markets": ["h100/eu"], "ceiling": 1500, "max_nodes": 1}
  END

Commands (at_us always; key, an idempotency key, where there is an account):
  OpenMarket         market, rules
  ChangeRules        market, rules
  PutOffer           provider, market, capacity, reserve
  WithdrawUnit       provider, unit
  ReportUnitLost     provider, unit
  PlaceBid           tenant, markets or instance_type, ceiling, max_nodes
                     [min_nodes, tif, expire_at_us, on_preemption]
  AmendBid           tenant, bid [ceiling, max_nodes]
  CancelBid          tenant, bid, mode
  ReleaseAllocation  tenant, allocation
  ReportReady        allocation [by]
  AdvanceTime

Prices are whole micro-dollars per node-hour, times microseconds. A bid is named by the number of the
command that placed it, an allocation by its order from 1, a unit market:provider#number.

Exit codes: 0 all answered; 1 could not read or write; 2 a line that is no command (named on stderr)."#;

fn main() -> ExitCode {
    match Arguments::parse().task {
        Task::Play { file, model, events_only } => {
            let shown = if events_only { Shown::Events } else { Shown::Everything };
            play_from(file.as_deref(), model, shown)
        }
        Task::ReplayDemand(arguments) => replay_demand::run(&arguments),
        Task::ReplayPrices(arguments) => replay_prices::run(&arguments),
        Task::ReplaySupply(arguments) => replay_supply::run(&arguments),
        Task::Backtest(arguments) => backtest_command::run(&arguments),
        Task::Experiment(arguments) => experiment_command::run(&arguments),
        Task::Calibrate(arguments) => calibrate::run(&arguments),
        Task::Simulate(arguments) => simulate::run(&arguments),
        Task::Live(arguments) => live::run(&arguments),
    }
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
    Csv,
}

/// Follows how much of a trace has been read.
fn reading_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes}, {eta} left");
    bar.with_style(style.expect("a sound template"))
}

/// Follows how many of them are done.
fn counting_bar(of: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(of), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template(&format!("{{bar:40}} {{pos}}/{{len}} {what}, {{eta}} left"));
    bar.with_style(style.expect("a sound template"))
}

fn write_page(page: &Page, path: &Path) -> Result<(), Box<dyn Error>> {
    page.write(path).map_err(|fault| format!("cannot write {}: {fault}", path.display()))?;
    eprintln!("market-sim: wrote {}", path.display());
    Ok(())
}

/// A price on the command line.
fn dollars(text: &str) -> Result<Price, String> {
    let price = market_sim::trace::dollars(text);
    price.ok_or_else(|| format!("{text:?} is not a price in dollars with at most 6 decimals, like 2.50"))
}

/// Says what went wrong, and because of what.
fn complain(error: &dyn Error) -> ExitCode {
    eprintln!("market-sim: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprintln!("  because {cause}");
        source = cause.source();
    }
    ExitCode::from(1)
}

fn play_from(file: Option<&Path>, model: bool, shown: Shown) -> ExitCode {
    let input: Box<dyn BufRead> = match file {
        None => Box::new(stdin().lock()),
        Some(path) => match File::open(path) {
            Ok(file) => Box::new(BufReader::new(file)),
            Err(fault) => {
                eprintln!("market-sim: cannot open {}: {fault}", path.display());
                return ExitCode::from(1);
            }
        },
    };
    let mut auction = market_sim::auction(model);
    match play::play(input, stdout().lock(), auction.as_mut(), shown) {
        Ok(()) => ExitCode::SUCCESS,
        Err(PlayError::Write(fault)) if fault.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("market-sim: {error}");
            match error {
                PlayError::BadLine { .. } => ExitCode::from(2),
                PlayError::Read(_) | PlayError::Write(_) => ExitCode::from(1),
            }
        }
    }
}
