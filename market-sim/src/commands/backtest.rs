//! `market-sim backtest`: compares bidding strategies on a trace.

use super::stdout::{Stdout, print_json, print_text};
use clap::Args;
use kubebid_core::Price;
use kubebid_report::Page;
use market_sim::backtest::{self, Backtest, Contestant, DemandSettings, Settings};
use market_sim::backtest::{backtest_demand, page, page_of_demand, read_grids};
use market_sim::trace::{PriceTrace, is_demand, read_demand};
use std::error::Error;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    /// A price trace: timestamp,instance_type,region,price_usd_per_hour; or a demand trace:
    /// submit_time,job_id,tenant,instance_class,nodes,…; .gz is unpacked
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// The instance type (of a demand trace: the class), and its on-demand price in dollars an hour
    #[arg(long, value_name = "TYPE=DOLLARS", value_parser = super::on_demand)]
    on_demand: (String, Price),
    /// Only these regions of a price trace [default: all]
    #[arg(long, value_name = "REGION", value_delimiter = ',')]
    region: Vec<String>,
    /// Contestants; the others are compared with the first
    #[arg(
        long,
        value_name = "STRATEGIES",
        value_delimiter = ',',
        default_value = "balanced,cost-optimized,availability-optimized,max-bid,on-demand"
    )]
    strategy: Vec<Contestant>,
    /// The most that a job's owner would pay, as a share of the on-demand price
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = super::share)]
    max_bid: f64,
    /// Nodes on offer, for a demand trace
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    capacity: Option<u64>,
    /// Their reserve, as a share of the on-demand price
    #[arg(long, value_name = "SHARE", default_value_t = 0.125, value_parser = super::share)]
    reserve: f64,
    /// Share of the jobs of a demand trace that try a strategy; the others bid what a node is worth to them
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = super::fraction)]
    trying: f64,
    /// Minutes that a node of that market is protected after it is ready
    #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=1440))]
    min_runtime: u64,
    /// Number of seeds, each with jobs of its own
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    seed: u64,
    /// Jobs of each seed, on a price trace
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    jobs: u32,
    /// Hours of work of such a job: the median of a lognormal distribution …
    #[arg(long, value_name = "HOURS", default_value_t = 4.0, value_parser = super::hours)]
    work: f64,
    /// … and the standard deviation of its logarithm
    #[arg(long, default_value_t = 1.0, value_parser = super::spread)]
    work_spread: f64,
    /// A deadline comes so many times the work after the submission: drawn between these
    #[arg(long, value_name = "LEAST,MOST", default_value = "1.5,4", value_parser = slack)]
    slack: (f64, f64),
    /// Minutes from a node's award until it works
    #[arg(long, value_name = "MINUTES", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=1440))]
    boot: u64,
    /// Minutes from a notice to the end
    #[arg(long, value_name = "MINUTES", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=1440))]
    notice: u64,
    /// Minutes of work between two checkpoints
    #[arg(long, value_name = "MINUTES", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    checkpoint: u64,
    /// Format of the result; csv has each seed
    #[arg(short, long, value_enum, default_value_t = super::Output::Text)]
    output: super::Output,
    /// Also write a page to look at; .json and .csv have its data
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

const HELP: &str = "\
On a price trace, a job is one node's work in one region: it runs while the price is at most its ceiling, pays
the price, and is given notice when the price steps above. The strategy says what to bid, from the reference
price (of which 65 % is the median of the last 48 hours) and the lowest price of that time, and whether to raise
at a notice. After its deadline a job seeks no further node. Beside the three strategies there are max-bid, which
always bids its whole maximum, and on-demand, which pays that price and is left alone.

On a demand trace the jobs make the price: all of one class bid in the exchange for --capacity nodes, a share of
them (--trying) as the strategy says, the others what a node is worth to them: their bid_proxy, else drawn. Figures
are of those that try. Deadlines are drawn for all; a job works on whatever nodes it gets, and lets its bid expire.

Every strategy gets the same jobs. Figures are means over the seeds ± half the 95 % confidence interval of
Student's t; below them the differences to the first strategy, seed by seed. Cost is all money over the hours of
work that were finished; beside it stands how much of the work asked for that is.

Examples:
  market-sim backtest --trace traces/aws-spot-2016q4/prices.csv.gz --on-demand m4.4xlarge=1.057 --report b.html
  market-sim backtest --trace traces/elasticflow-2021/demand.csv --on-demand gpu=32 --capacity 20 --seeds 3

Exit codes: 0 done; 1 the trace cannot be read, or has too few prices or no jobs of the type; 2 wrong arguments.";

impl Arguments {
    fn check(&self) -> Result<(), String> {
        super::once("--region", &self.region)?;
        super::once("--strategy", &self.strategy)
    }
}

fn slack(text: &str) -> Result<(f64, f64), String> {
    let pair = text.split_once(',').and_then(|(least, most)| Some((least.parse().ok()?, most.parse().ok()?)));
    let pair = pair.filter(|(least, most): &(f64, f64)| 1.0 <= *least && least <= most && *most <= 1000.0);
    pair.ok_or_else(|| format!("{text:?} is not LEAST,MOST with factors from 1 to 1000, like 1.5,4"))
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(message) = arguments.check() {
        return super::misuse(&message);
    }
    match play(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::complain(error.as_ref()),
    }
}

fn play(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (result, page) =
        if is_demand(&arguments.trace)? { on_demand_trace(arguments)? } else { on_price_trace(arguments)? };
    match arguments.output {
        super::Output::Text => print_text(&result)?,
        super::Output::Json => print_json(&result)?,
        super::Output::Csv => result.write_csv(Stdout)?,
    }
    match &arguments.report {
        Some(path) => super::write_page(&page, path),
        None => Ok(()),
    }
}

fn seeds(arguments: &Arguments) -> Range<u64> {
    arguments.seed..arguments.seed + arguments.seeds
}

fn on_demand_trace(arguments: &Arguments) -> Result<(Backtest, Page), Box<dyn Error>> {
    let (class, on_demand) = &arguments.on_demand;
    let market = DemandSettings {
        capacity: arguments
            .capacity
            .ok_or("a demand trace does not say how many nodes there are: --capacity")?,
        reserve: Price((on_demand.0 as f64 * arguments.reserve).round() as u64),
        on_demand: *on_demand,
        max_bid: arguments.max_bid,
        share: arguments.trying,
        slack: arguments.slack,
        boot_minutes: arguments.boot,
        notice_minutes: arguments.notice,
        min_runtime_minutes: arguments.min_runtime,
        checkpoint_minutes: arguments.checkpoint,
    };
    let mut jobs = read_demand(&arguments.trace, None)?;
    jobs.retain(|job| job.class == *class);
    if jobs.is_empty() {
        return Err(format!("the trace has no jobs of the class {class:?}").into());
    }
    let bar = super::counting_bar(arguments.seeds, "seeds");
    let result = backtest_demand(&jobs, &arguments.strategy, &market, seeds(arguments), || bar.inc(1))?;
    bar.finish_and_clear();
    let page = page_of_demand(&result, jobs.len(), &market);
    Ok((result, page))
}

fn on_price_trace(arguments: &Arguments) -> Result<(Backtest, Page), Box<dyn Error>> {
    let (instance_type, on_demand) = &arguments.on_demand;
    let settings = Settings {
        on_demand: *on_demand,
        max_bid: Price((on_demand.0 as f64 * arguments.max_bid).round() as u64),
        jobs: arguments.jobs as usize,
        work_hours: arguments.work,
        work_spread: arguments.work_spread,
        slack: arguments.slack,
        boot_minutes: arguments.boot,
        notice_minutes: arguments.notice,
        checkpoint_minutes: arguments.checkpoint,
        increment_bps: 500,
        tick_micros: 100,
    };
    let bar = super::reading_bar();
    let mut trace = PriceTrace::open(&arguments.trace, &bar)?;
    let grids = read_grids(&mut trace, instance_type, &arguments.region)?;
    bar.finish_and_clear();
    super::note_rounded(trace.rounded());
    let bar = super::counting_bar(arguments.seeds, "seeds");
    let result = backtest::backtest(&grids, &arguments.strategy, &settings, seeds(arguments), || bar.inc(1));
    bar.finish_and_clear();
    let page = page(&result, &grids, &arguments.strategy, &settings);
    Ok((result, page))
}
