//! `market-sim replay-supply`: lets a trace drive the supply of a market.

use super::Output;
use super::stdout::{Stdout, print_json, print_text};
use clap::Args;
use kubebid_core::Price;
use kubebid_core::units::Micros;
use market_sim::replay::supply::{Settings, SupplyTable, replay_supply};
use market_sim::trace::SupplyTrace;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    /// timestamp,instance_type,region,available or timestamp,pool,capacity_gpus,running_gpus,… or
    /// start_time,instance_type,region,lifetime_s,…; .gz is unpacked
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Bids that compete for each instance type, in any region, as shares of the on-demand price
    #[arg(long, value_name = "SHARES", value_delimiter = ',', default_value = "0.15,0.2,0.3,0.5,1",
          value_parser = super::share)]
    bids: Vec<f64>,
    /// Nodes that each of them wants
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    nodes: u32,
    /// The on-demand price, in dollars per node-hour
    #[arg(long, value_name = "DOLLARS", default_value = "1.00", value_parser = super::dollars_above_zero)]
    on_demand: Price,
    /// The provider's reserve price, in dollars per node-hour
    #[arg(long, value_name = "DOLLARS", default_value = "0.10", value_parser = super::dollars)]
    reserve: Price,
    /// Seconds from a node's award until it is ready
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(0..=899))]
    boot: u64,
    /// Seconds that a node is protected after it is ready; the trace knows no protection
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    min_runtime: u64,
    /// Seconds from a notice to its deadline
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    notice: u64,
    /// Hours without a row after which a region offers nothing and does not count [default: the row holds]
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    longest_gap: Option<u64>,
    /// Format of the result; csv has the bids
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

const HELP: &str = "\
Each region of the trace is a market in which one provider offers what the trace says, changed by a new offer at
every row; of a pool, what does not run, by eight GPUs a node; of lifetimes, a node for each machine alive. For each
instance type the bids compete, each for its nodes in any region. What the trace takes away gets notice, so a node
may outlive the trace's word by that.
Printed: what there was, and what each bid ran, lost and paid.

Example:
  market-sim replay-supply --trace availability.csv.gz --nodes 4 --bids 0.2,0.5,1

Exit codes: 0 done; 1 the trace cannot be read; 2 wrong arguments.";

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(message) = super::shares_once("--bids", &arguments.bids) {
        return super::misuse(&message);
    }
    match play(arguments).and_then(|table| print(&table, arguments.output)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::complain(error.as_ref()),
    }
}

fn play(arguments: &Arguments) -> Result<SupplyTable, Box<dyn Error>> {
    let settings = Settings {
        shares: arguments.bids.clone(),
        nodes: arguments.nodes,
        on_demand: arguments.on_demand,
        reserve: Price(arguments.reserve.0.next_multiple_of(100)),
        boot: Micros::seconds(arguments.boot),
        min_runtime: Micros::seconds(arguments.min_runtime),
        notice: Micros::seconds(arguments.notice),
        longest_gap: arguments.longest_gap.map(|hours| Micros(hours * Micros::HOUR.0)),
    };
    let bar = super::reading_bar();
    let table = replay_supply(SupplyTrace::open(&arguments.trace, &bar)?, &settings)?;
    bar.finish_and_clear();
    Ok(table)
}

fn print(table: &SupplyTable, output: Output) -> Result<(), Box<dyn Error>> {
    match output {
        Output::Text => print_text(table)?,
        Output::Json => print_json(table)?,
        Output::Csv => table.write_csv(Stdout)?,
    }
    Ok(())
}
