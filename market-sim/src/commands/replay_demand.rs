//! `market-sim replay-demand`: plays the jobs of a demand trace.

use super::stdout::{print_json, print_text};
use clap::Args;
use kubebid_core::Price;
use kubebid_core::units::Micros;
use market_sim::replay::demand::{InProcess, Remote, Report, Settings, Venue, read_demand, replay_and_draw};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    /// A demand trace: submit_time,job_id,tenant,instance_class,nodes,…; .gz is unpacked
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Nodes that the providers offer, of each instance class
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    capacity: u64,
    /// Number of providers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    providers: u32,
    /// The on-demand price, in dollars per node-hour: what a bid_proxy of 1 stands for
    #[arg(long, value_name = "DOLLARS", default_value = "32.00", value_parser = super::dollars_above_zero)]
    on_demand: Price,
    /// The providers' reserve price, in dollars per node-hour
    #[arg(long, value_name = "DOLLARS", default_value = "4.00", value_parser = super::dollars)]
    reserve: Price,
    /// Seconds from a node's award until it is ready
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    boot: u64,
    /// Seconds that a node is protected after it is ready
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    min_runtime: u64,
    /// Seconds from a notice to its deadline
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    notice: u64,
    /// Work that was under way on a lost node starts again
    #[arg(long)]
    no_checkpoint: bool,
    /// GPUs of a node: jobs of one tenant that need fewer share a node; a job that needs more than its nodes have is
    /// refused
    #[arg(long, value_name = "GPUS", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    gpus_per_node: u32,
    /// Each job takes whole nodes, however few GPUs it needs, or many
    #[arg(long, conflicts_with = "gpus_per_node")]
    whole_nodes: bool,
    /// A job of several nodes works only while it has all of them; when it has lost one for good, it gives up the others
    /// and waits for all again
    #[arg(long)]
    gangs: bool,
    /// Jobs go on after their deadline; how many were late is counted
    #[arg(long)]
    ignore_deadlines: bool,
    /// Draws the bids of jobs that have no bid_proxy
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the first jobs of the trace
    #[arg(long, value_name = "JOBS", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    limit: Option<usize>,
    /// Play in this process instead of a running engine
    #[arg(long, conflicts_with_all = ["endpoint", "token"])]
    in_process: bool,
    /// A running engine with `serve --clock stepped`
    #[arg(long, env = "KUBEBID_ENDPOINTS", value_delimiter = ',', default_value = "http://127.0.0.1:7440")]
    endpoint: Vec<String>,
    /// A token of an administrator of that engine
    #[arg(long, env = "KUBEBID_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Also write a page to look at; .json and .csv have its data
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

const HELP: &str = "\
A job bids for all its nodes at once, with a ceiling of its bid_proxy times the on-demand price; without a
bid_proxy the share is drawn, by its priority: low 0.25 to 0.5, normal 0.5 to 0.75, high 0.75 to 1, none 0.25 to 1.
Jobs of one node that need fewer GPUs than it has share it with others of their tenant; its ceiling is the highest
of theirs. A job without GPUs takes whole nodes. Work goes on while a job has any of its nodes, also under notice;
when a node is taken away it goes on on the next one. With --gangs a job of several nodes works only while it has
all; after a deadline that leaves it fewer it regroups: its bid waits for all nodes again. When the work is done, or the deadline cannot be made any
more, the job leaves, and with the last job the bid is cancelled and the nodes are released.

The engine has to be fresh and on the stepped clock. The same seed gives the same result as --in-process.

Examples:
  market-sim replay-demand --trace demand.csv.gz --capacity 64 --in-process
  kubebid serve --store sqlite:trace.db --clock stepped --admin-token-file admin.token &
  KUBEBID_TOKEN=$(cat admin.token) market-sim replay-demand --trace demand.csv.gz --capacity 64";

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match play(arguments).and_then(|report| print(&report, arguments.output)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::complain(error.as_ref()),
    }
}

fn print(report: &Report, output: Output) -> Result<(), Box<dyn Error>> {
    match output {
        Output::Text => print_text(&format!("{report}\n"))?,
        Output::Json => print_json(report)?,
    }
    Ok(())
}

fn play(arguments: &Arguments) -> Result<Report, Box<dyn Error>> {
    let gpus_per_node = (!arguments.whole_nodes).then_some(arguments.gpus_per_node);
    let mut jobs = read_demand(&arguments.trace, gpus_per_node)?;
    jobs.truncate(arguments.limit.unwrap_or(usize::MAX));
    let settings = Settings {
        capacity: arguments.capacity,
        providers: arguments.providers,
        // A reserve is a multiple of the tick.
        reserve: Price(arguments.reserve.0.next_multiple_of(100)),
        on_demand: arguments.on_demand,
        boot: Micros::seconds(arguments.boot),
        min_runtime: Micros::seconds(arguments.min_runtime),
        notice: Micros::seconds(arguments.notice),
        checkpoint: !arguments.no_checkpoint,
        gpus_per_node,
        gangs: arguments.gangs,
        keep_deadlines: !arguments.ignore_deadlines,
        seed: arguments.seed,
    };
    let mut venue = venue(arguments)?;
    let bar = super::counting_bar(jobs.len() as u64, "jobs submitted");
    let started = Instant::now();
    let (mut report, page) =
        replay_and_draw(&jobs, &settings, venue.as_mut(), |submitted| bar.set_position(submitted as u64))?;
    bar.finish_and_clear();
    report.wall_seconds = started.elapsed().as_secs_f64();
    if let Some(path) = &arguments.report {
        super::write_page(&page, path)?;
    }
    Ok(report)
}

fn venue(arguments: &Arguments) -> Result<Box<dyn Venue>, Box<dyn Error>> {
    if arguments.in_process {
        return Ok(Box::new(InProcess::new()));
    }
    let token = arguments.token.clone();
    let token = token.ok_or("an engine asks for a token of an administrator: --token, or KUBEBID_TOKEN")?;
    Ok(Box::new(Remote::connect(arguments.endpoint.clone(), token)?))
}
