//! `market-sim simulate`: simulates a world of providers and tenants.

use super::stdout::Stdout;
use clap::Args;
use indicatif::ProgressBar;
use kubebid_report::pictures;
use market_sim::file::{WORLD, read_text};
use market_sim::venue::{JournaledVenue, Remote, Venue};
use market_sim::world::{Outcome, Rules, SeriesChoice, Settings, simulate_parallel};
use std::error::Error;
use std::io::Write as _;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    /// Simulated days [default: what the world says, else 7]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3660))]
    days: Option<u32>,
    /// Markets [default: what the world says, else 4]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    markets: Option<u32>,
    /// Everything that is drawn follows from it [default: what the world says, else 1]
    #[arg(long)]
    seed: Option<u64>,
    /// A JSON or YAML object with the fields of the world that differ; docs/simulator.md lists all fields and
    /// their ranges, and the outcome has them too
    #[arg(long, value_name = "FILE")]
    world: Option<PathBuf>,
    /// Markets with the default rules, instead of no minimum runtime, 120 s of notice and a cap on ceilings
    #[arg(long)]
    default_rules: bool,
    /// Seconds between two points of the series [default: what the world says, else 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    sample: Option<u64>,
    /// Markets that live at the same time, each in an exchange of its own [default: one for each core]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Number of commands after which the exchange is lost and recovered from its journal, again and again
    #[arg(long, value_name = "COMMANDS", conflicts_with_all = ["threads", "endpoint"])]
    lose_every: Option<NonZeroU64>,
    /// Write series and sums as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write a page to look at; .json and .csv have its data
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write the first charts of that page, prices and utilisation, as a picture
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
    /// A running engine with `serve --clock stepped`, instead of this process
    #[arg(long, value_delimiter = ',')]
    endpoint: Vec<String>,
    /// A token of an administrator of that engine
    #[arg(long, env = "KUBEBID_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

const HELP: &str = "\
Providers offer, boot nodes, change their reserves once a day at most, and fail now and then; tenants bring
jobs, bid for them as their kind does, and let go when the work is done. The auditor listens and ends the run
where an event cannot be so. The same settings give the same JSON, byte for byte, on any venue.

Examples:
  market-sim simulate --days 30 --markets 4 --report world.html
  market-sim simulate --days 30 --markets 12 --json world.json
  kubebid serve --store sqlite:world.db --clock stepped --admin-token-file admin.token &
  KUBEBID_TOKEN=$(cat admin.token) market-sim simulate --days 1 --markets 2 --endpoint http://127.0.0.1:7440

Exit codes: 0 done; 1 the world is not as it should be (the message names the field), the venue or the auditor
ended the run, or the result could not be written.";

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match simulate(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::complain(error.as_ref()),
    }
}

fn simulate(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let wanted = [&arguments.json, &arguments.report, &arguments.picture].into_iter().any(Option::is_some);
    let usual = Settings { days: 7, markets: 4, ..Settings::default() };
    let world = settings(&usual, arguments.world.as_deref())?;
    let settings = Settings {
        seed: arguments.seed.unwrap_or(world.seed),
        days: arguments.days.unwrap_or(world.days),
        markets: arguments.markets.unwrap_or(world.markets),
        rules: if arguments.default_rules { Rules::MARKET_DEFAULT } else { world.rules },
        sample_seconds: arguments.sample.unwrap_or(world.sample_seconds),
        kept: if wanted { SeriesChoice::All } else { SeriesChoice::None },
        ..world
    };
    let started = Instant::now();
    let outcome = match venue(arguments)? {
        None => watched(&settings, arguments.threads)?,
        Some(mut venue) => {
            let bar = bar(&settings);
            let outcome = market_sim::world::simulate(&settings, venue.as_mut(), |hours| bar.inc(hours))?;
            bar.finish_and_clear();
            outcome
        }
    };
    if let Some(path) = &arguments.json {
        std::fs::write(path, serde_json::to_vec(&outcome)?)
            .map_err(|fault| format!("cannot write {}: {fault}", path.display()))?;
    }
    if let Some(path) = &arguments.report {
        super::write_page(&outcome.page(), path)?;
    }
    if let Some(path) = &arguments.picture {
        let charts = &outcome.page().charts[..2];
        std::fs::write(path, pictures("A simulated market: prices and utilisation", charts))
            .map_err(|fault| format!("cannot write {}: {fault}", path.display()))?;
    }
    write!(Stdout, "{outcome}")?;
    let seconds = started.elapsed().as_secs_f64();
    writeln!(
        Stdout,
        "wall time         {seconds:.1} s: {:.0} commands, {:.0} bids a second; {} steps of the clock",
        (outcome.commands + outcome.clock_steps) as f64 / seconds,
        outcome.bids as f64 / seconds,
        outcome.clock_steps
    )?;
    if let Some(kilobytes) = peak_memory_kilobytes() {
        writeln!(Stdout, "peak memory       {:.1} MB", kilobytes as f64 / 1e3)?;
    }
    Ok(())
}

/// Returns the peak of resident memory, if the system reports it.
fn peak_memory_kilobytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns one venue for all markets, or none if each market has its own.
fn venue(arguments: &Arguments) -> Result<Option<Box<dyn Venue>>, Box<dyn Error>> {
    if let Some(every) = arguments.lose_every {
        return Ok(Some(Box::new(JournaledVenue::new(every))));
    }
    if arguments.endpoint.is_empty() {
        return Ok(None);
    }
    let token = arguments.token.clone();
    let token = token.ok_or("an engine asks for a token of an administrator: --token, or KUBEBID_TOKEN")?;
    Ok(Some(Box::new(Remote::connect(arguments.endpoint.clone(), token)?)))
}

/// Returns the usual settings with the changes of a file.
pub(crate) fn settings(usual: &Settings, file: Option<&Path>) -> Result<Settings, Box<dyn Error>> {
    let Some(path) = file else { return Ok(usual.clone()) };
    let text = read_text(path, &WORLD)?;
    Ok(usual.with(&text).map_err(|error| format!("{}: {error}", path.display()))?)
}

/// Returns the default number of markets that run at the same time.
pub(crate) fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Simulates in this process, with a progress bar on stderr if that is a terminal.
pub(crate) fn watched(settings: &Settings, threads: Option<NonZeroUsize>) -> Result<Outcome, Box<dyn Error>> {
    let bar = bar(settings);
    let outcome = simulate_parallel(settings, threads.unwrap_or_else(cores), |hours| bar.inc(hours))?;
    bar.finish_and_clear();
    Ok(outcome)
}

fn bar(settings: &Settings) -> ProgressBar {
    super::counting_bar(u64::from(settings.days) * 24 * u64::from(settings.markets), "market-hours")
}
