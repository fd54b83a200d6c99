//! `kubebid bench`: puts load on an engine and measures it.

mod child;
mod http;
mod load;
mod machine;
mod metrics;
mod place;
mod price;
mod report;
mod stage;
mod watch;

use crate::config::Connection;
use crate::failure::{Exit, Failure};
use clap::{Args, Subcommand, value_parser};
use kubebid_engine::server::config::PartArg;
use load::{Run, Tally};
use machine::{Build, Fdatasync, Machine};
use metrics::Figures;
use report::{Report, Shape};
use stage::Stage;
use std::path::PathBuf;
use std::time::Duration;

/// Load an engine and say how it did: one of its own that it starts, or the one of --endpoint
#[derive(Subcommand)]
#[command(after_help = "\
Without --endpoint it starts this very `kubebid serve` on free ports of the loopback, opens a
market, makes a provider and tenants, and stops it at the end. Its store is SQLite in a temporary
folder, or what --store names, which has to be without a journal and keeps its bids afterwards.
Tokens, client keys and metrics are on.

Figures say what machine, build and store they are of, and how long a bare fdatasync takes on the
disk. The load runs on the same machine and takes its share of the processors. Ctrl-C prints what
was measured so far.

Examples:
  kubebid bench place --callers 256                 durable bids, one call each
  kubebid bench place --frame 100                   a hundred bids in each frame of a stream
  kubebid bench place --rate 5000 -o json           an open loop; the figures as JSON
  kubebid bench place --store postgres://kubebid@localhost/empty
  kubebid bench place --without projections --ratio the journal alone, and its share of the rate without it
  kubebid bench price --rest                        the five numbers, by REST
  kubebid bench watch --subscribers 100             how fast events reach those who watch")]
pub(crate) enum Bench {
    /// Durable bids: a call each, or in frames of a stream
    Place(place::Place),
    /// The five numbers of a market, by gRPC or REST
    Price(price::Price),
    /// Events or prices to many subscribers while bids are placed
    Watch(watch::Watch),
}

/// Who calls, how often and for how long.
#[derive(Args, Clone)]
#[command(next_help_heading = "Load")]
pub(crate) struct Load {
    /// How many call at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=100_000))]
    callers: u32,
    /// Connections that the callers share; at most one for each
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// How long is measured
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How long the load runs before that
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = value_parser!(u64).range(0..=3_600))]
    warmup: u64,
    /// So many calls a second in all, due whether or not earlier ones were answered (an open loop). A call's time
    /// then counts from when it was due, which corrects for coordinated omission. Where absent each caller asks
    /// again as soon as it has its answer (a closed loop), and a call's time counts from when it was sent
    #[arg(long, value_name = "R", value_parser = value_parser!(u64).range(1..=10_000_000))]
    rate: Option<u64>,
    /// Each caller is a tenant of its own.
    #[arg(skip)]
    tenants: bool,
}

impl Load {
    /// None of the connections is without a caller.
    fn settled(&self) -> Load {
        Load { connections: self.connections.min(self.callers), ..self.clone() }
    }

    /// By so many tenants, each a caller with a connection of its own.
    fn by_tenants(&self, tenants: u32) -> Load {
        Load { callers: tenants, connections: tenants, tenants: true, ..self.clone() }
    }
}

/// What is loaded.
#[derive(Args, Clone)]
#[command(next_help_heading = "Engine")]
pub(crate) struct Target {
    /// Where the engine that is started keeps everything: sqlite:PATH or postgres://…, without a journal. Where
    /// absent, SQLite in a temporary folder
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The market; with --endpoint one that is there, and for bids to wait in without free units [default: one
    /// that is opened]
    #[arg(long, value_name = "MARKET")]
    market: Option<String>,
    /// With --endpoint: where its /metrics are, as in http://127.0.0.1:7441
    #[arg(long, value_name = "URL")]
    ops_endpoint: Option<String>,
    /// A folder on the disk whose fdatasync is timed [default: that of the SQLite store, else the temporary one]
    #[arg(long, value_name = "FOLDER")]
    disk: Option<PathBuf>,
    /// Does without a part of the engine that is started, to see what it costs
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART", conflicts_with = "endpoint")]
    without: Vec<PartArg>,
    /// Measures once more without journal and tables, and says what share of that rate was reached
    #[arg(long, conflicts_with = "endpoint")]
    ratio: bool,
}

impl Target {
    /// An engine that keeps nothing, on a store of its own.
    fn bare(&self) -> Target {
        Target {
            store: None,
            without: vec![PartArg::Journal, PartArg::Projections],
            ratio: false,
            ..self.clone()
        }
    }
}

impl Bench {
    pub(crate) async fn run(self, connection: &Connection) -> Result<(), Failure> {
        match self {
            Bench::Place(place) => place.run(connection).await,
            Bench::Price(price) => price.run(connection).await,
            Bench::Watch(watch) => watch.run(connection).await,
        }
    }
}

/// What a bench did with its stage.
struct Measured {
    tally: Tally,
    /// Bids in a call, for those that place any.
    bids_per_call: Option<u32>,
    watch: Option<report::Watched>,
}

/// Sets the stage, lets `bench` run on it, and prints what came of it.
async fn perform(
    connection: &Connection,
    target: &Target,
    load: &Load,
    shape: Shape,
    bench: impl AsyncFn(&Stage, &Run) -> Result<Measured, Failure>,
) -> Result<(), Failure> {
    let stopped = load::until_stopped();
    let (played, struck) = play(connection, target, load, &stopped, &bench).await?;
    let mut report = Report::new(shape.clone(), target, load, played);
    if target.ratio && struck.is_ok() && !report.interrupted() {
        let (bare, struck) = play(connection, &target.bare(), load, &stopped, &bench).await?;
        struck?;
        report.compare(&Report::new(shape, &target.bare(), load, bare));
    }
    connection.output().answer(&report, |_| report.text())?;
    struck
}

/// What was measured on a stage, and which that was.
struct Played {
    store: String,
    market: String,
    outcome: Outcome,
}

/// One run; and how the engine ended.
async fn play(
    connection: &Connection,
    target: &Target,
    load: &Load,
    stopped: &load::Stopped,
    bench: &impl AsyncFn(&Stage, &Run) -> Result<Measured, Failure>,
) -> Result<(Played, Result<(), Failure>), Failure> {
    let setting = Stage::set(connection, target, if load.tenants { load.callers } else { 0 });
    let stage = tokio::select! {
        stage = setting => stage?,
        () = stopped.clone().wait() => return Err(Failure::new(Exit::Fault, "stopped before anything was measured")),
    };
    let outcome = measure(&stage, load, stopped.clone(), bench).await;
    let (store, market) = (stage.store.clone(), stage.market.clone());
    let struck = stage.strike().await;
    match (outcome, struck) {
        (Ok(outcome), struck) => Ok((Played { store, market, outcome }, struck)),
        // An engine that failed says why.
        (Err(failure), Ok(())) | (Err(_), Err(failure)) => Err(failure),
    }
}

/// Everything that was measured on a stage.
struct Outcome {
    measured: Measured,
    run: Run,
    machine: Machine,
    build: Build,
    fdatasync: Fdatasync,
    engine: Option<Figures>,
}

async fn measure(
    stage: &Stage,
    load: &Load,
    stopped: load::Stopped,
    bench: &impl AsyncFn(&Stage, &Run) -> Result<Measured, Failure>,
) -> Result<Outcome, Failure> {
    let machine = Machine::this();
    let fdatasync = Fdatasync::of(stage.disk.clone()).await?;
    let run = Run::new(Duration::from_secs(load.warmup), Duration::from_secs(load.seconds), stopped);
    let before = stage.ops.clone().map(|ops| tokio::spawn(metrics::read_at(run.begin, ops)));
    let measured = bench(stage, &run).await?;
    let engine = match (before, &stage.ops) {
        (Some(before), Some(ops)) => {
            let after = metrics::read(ops).await?;
            // Interrupted before the warm-up was over: nothing to compare with.
            let before = if before.is_finished() { before.await.ok().and_then(Result::ok) } else { None };
            Some(Figures::between(before.as_ref(), &after))
        }
        (Some(_) | None, _) => None,
    };
    Ok(Outcome { measured, run, machine, build: Build::this(), fdatasync, engine })
}
