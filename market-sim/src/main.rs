//! The `market-sim` tool: its commands and flags.

// `println!` panics if nothing can be written; `commands/stdout.rs` does not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod commands;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Plays worlds, traces and commands against a KubeBid market, in this process or against an engine.
#[derive(Debug, Parser)]
#[command(version = kubebid_client::VERSION, arg_required_else_help = true)]
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
    Play(commands::play::Arguments),
    /// Feed the jobs of a demand trace to a market and say what came of it
    ReplayDemand(commands::replay_demand::Arguments),
    /// Say what bids would have got on a price trace: availability, pre-emptions, what they paid
    ReplayPrices(commands::replay_prices::Arguments),
    /// Let a trace drive the supply of a market and say what bids get of it
    ReplaySupply(commands::replay_supply::Arguments),
    /// Compare bidding strategies on a price trace: cost, waiting, interruptions, work lost, deadlines
    Backtest(commands::backtest::Arguments),
    /// Play small worlds while a market rule changes: churn, revenue, fairness, welfare against the optimum
    Experiment(commands::experiment::Arguments),
    /// Search for cheats: policies that gain by anything but the truth, or do harm for nothing
    Attack(commands::attack::Arguments),
    /// Compare the prices and the demand of a world with published traces
    Calibrate(commands::calibrate::Arguments),
    /// Let a world of providers and tenants live, and say what came of it
    Simulate(commands::simulate::Arguments),
    /// Make a living market of a running engine, in real time, until it is stopped
    Live(commands::live::Arguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(said) => return commands::stdout::explain(&said),
    };
    let ended = match arguments.task {
        Task::Play(arguments) => commands::play::run(&arguments),
        Task::ReplayDemand(arguments) => commands::replay_demand::run(&arguments),
        Task::ReplayPrices(arguments) => commands::replay_prices::run(&arguments),
        Task::ReplaySupply(arguments) => commands::replay_supply::run(&arguments),
        Task::Backtest(arguments) => commands::backtest::run(&arguments),
        Task::Experiment(arguments) => commands::experiment::run(&arguments),
        Task::Attack(arguments) => commands::attack::run(&arguments),
        Task::Calibrate(arguments) => commands::calibrate::run(&arguments),
        Task::Simulate(arguments) => commands::simulate::run(&arguments),
        Task::Live(arguments) => commands::live::run(&arguments),
    };
    commands::stdout::finish(ended)
}
