//! `market-sim replay-prices`: computes what bids would have got on a price trace.

use super::Output;
use super::stdout::{Stdout, print_json, print_text};
use clap::Args;
use kubebid_core::Price;
use kubebid_core::units::Micros;
use market_sim::replay::prices::{PriceTable, Settings, replay_prices};
use market_sim::trace::PriceTrace;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    /// A price trace: timestamp,instance_type,region,price_usd_per_hour; .gz is unpacked
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// An instance type and its on-demand price, in dollars an hour; others are left out
    #[arg(long, value_name = "TYPE=DOLLARS", required = true, value_delimiter = ',', value_parser = super::on_demand)]
    on_demand: Vec<(String, Price)>,
    /// Only these regions [default: all]
    #[arg(long, value_name = "REGION", value_delimiter = ',')]
    region: Vec<String>,
    /// Bids to try, as shares of the on-demand price
    #[arg(long, value_name = "SHARES", value_delimiter = ',', default_value = "0.15,0.2,0.3,0.5,1,2,5",
          value_parser = super::share)]
    bids: Vec<f64>,
    /// Hours without a change after which a price counts as unknown [default: it holds]
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    longest_gap: Option<u64>,
    /// Format of the result; json and csv have each region too
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

const HELP: &str = "\
A bid runs where the price is at most the bid and pays that price, not the bid. Prices are looked at every 5
minutes, from a market's first row to the end of the trace; a step from at most the bid to above it is a
pre-emption. The figures are the mean over the regions of the type, each counting alike; a region in which a bid
never ran has no pre-emptions and no price to count.

Example:
  market-sim replay-prices --trace traces/aws-spot-2016q4/prices.csv.gz --on-demand m4.4xlarge=1.057

Exit codes: 0 done; 1 the trace cannot be read, or has no such prices; 2 wrong arguments.";

impl Arguments {
    fn check(&self) -> Result<(), String> {
        super::once("--on-demand", self.on_demand.iter().map(|(name, _)| name))?;
        super::once("--region", &self.region)?;
        super::shares_once("--bids", &self.bids)
    }
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(message) = arguments.check() {
        return super::misuse(&message);
    }
    match play(arguments).and_then(|table| print(&table, arguments.output)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::complain(error.as_ref()),
    }
}

fn play(arguments: &Arguments) -> Result<PriceTable, Box<dyn Error>> {
    let settings = Settings {
        shares: arguments.bids.clone(),
        on_demand: BTreeMap::from_iter(arguments.on_demand.iter().cloned()),
        regions: arguments.region.clone(),
        longest_gap: arguments.longest_gap.map(|hours| Micros(hours * Micros::HOUR.0)),
    };
    let bar = super::reading_bar();
    let mut trace = PriceTrace::open(&arguments.trace, &bar)?;
    let table = replay_prices(&mut trace, &settings)?;
    bar.finish_and_clear();
    super::note_rounded(trace.rounded());
    Ok(table)
}

fn print(table: &PriceTable, output: Output) -> Result<(), Box<dyn Error>> {
    match output {
        Output::Text => print_text(table)?,
        Output::Json => print_json(table)?,
        Output::Csv => table.write_csv(Stdout)?,
    }
    Ok(())
}
