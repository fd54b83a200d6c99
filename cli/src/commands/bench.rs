//! `kubebid bench`: puts load on an engine and measures it (`kubebid-loadgen`).

use crate::commands::{local, serve};
use crate::config::Connection;
use crate::failure::{Exit, Failure};
use crate::output::Sheet;
use crate::telemetry;
use clap::{Args, Subcommand, ValueEnum, value_parser};
use kubebid_loadgen::{self as loadgen, BenchError, NewEngine, RunningEngine, Workload};
use std::path::PathBuf;

/// Load an engine and say how it did: one of its own that it starts, or the one of --endpoint
#[derive(Subcommand)]
#[command(after_help = "\
Without --endpoint it starts an engine of this very program on free ports of the loopback, opens a
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
    Place(Place),
    /// The five numbers of a market, by gRPC or REST
    Price(Price),
    /// Events or prices to many subscribers while bids are placed
    Watch(Watch),
    /// The engine that the other commands start and measure
    #[command(hide = true)]
    Engine,
}

/// The arguments of [`Bench::Engine`], which loadgen gives to this program.
const ENGINE: &[&str] = &["bench", "engine"];

/// Durable bids: a call each, or in frames of a stream
#[derive(Args)]
#[command(after_help = "\
Each bid is for one node, waits, and is answered when it is durable and applied. With --frame each
caller has a stream with 4 frames on the way; a call is then a frame, and each bid has the time of
its frame.

Examples:
  kubebid bench place --callers 1                   how long a bid takes that is alone
  kubebid bench place --callers 256 --seconds 30
  kubebid bench place --frame 16 --callers 8
  kubebid bench place --rate 5000 --callers 256     5000 bids a second, whatever the engine does
  kubebid bench place --endpoint http://engine:7440 --token-file tenant.token --market h100/eu")]
pub(crate) struct Place {
    #[command(flatten)]
    load: Load,
    /// Bids in a frame of a stream; where absent each bid is a call of its own. With --rate that many bids fall due
    /// at once
    #[arg(long, value_name = "K", help_heading = "Load", value_parser = value_parser!(u32).range(1..=1000))]
    frame: Option<u32>,
    #[command(flatten)]
    target: Target,
}

/// The five numbers of a market, by gRPC or REST
#[derive(Args)]
#[command(after_help = "\
By REST each caller has a connection of its own, HTTP/1.1 and kept alive; --connections counts for
gRPC only.

Examples:
  kubebid bench price --callers 64
  kubebid bench price --callers 64 --rest
  kubebid bench price --endpoint http://engine:7440 --token-file tenant.token --market h100/eu")]
pub(crate) struct Price {
    #[command(flatten)]
    load: Load,
    /// Ask by REST in place of gRPC
    #[arg(long, help_heading = "Load")]
    rest: bool,
    #[command(flatten)]
    target: Target,
}

/// Events or prices to many subscribers while bids are placed
#[derive(Args)]
#[command(after_help = "\
Each bid makes an event. With --feed prices each offers more than the one before, which changes the
price unless they overtake one another: with --callers 1 --frame 100 none does. The delay of what is
delivered is from its time, which the engine stamps before the commit, to its arrival here; with
--endpoint both have to be by the same clock. Events are watched as administrator, or with
--endpoint as the one who places the bids. Of what arrives only its number and its times are read.

Examples:
  kubebid bench watch --subscribers 100
  kubebid bench watch --feed prices --callers 1 --frame 100
  kubebid bench watch --subscribers 1000 --rate 1000 --seconds 30
  kubebid bench watch --subscribers 1000 --own --frame 10 --rate 500")]
pub(crate) struct Watch {
    /// How many watch
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "Load", value_parser = value_parser!(u32).range(1..=100_000))]
    subscribers: u32,
    /// What they watch
    #[arg(long, value_name = "WHAT", default_value = "events", help_heading = "Load", value_enum)]
    feed: Feed,
    /// Each subscriber is a tenant, and its own bids are what it watches: there are as many callers
    #[arg(long, help_heading = "Load", conflicts_with_all = ["endpoint", "feed", "callers"])]
    own: bool,
    /// Bids in a frame of a stream; where absent each bid is a call of its own
    #[arg(long, value_name = "K", help_heading = "Load", value_parser = value_parser!(u32).range(1..=1000))]
    frame: Option<u32>,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Feed {
    Events,
    Prices,
}

/// The callers, their rate and the time.
#[derive(Args)]
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
}

/// The engine that is loaded.
#[derive(Args)]
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
    without: Vec<Part>,
    /// Measures once more without journal and tables, and says what share of that rate was reached
    #[arg(long, conflicts_with = "endpoint")]
    ratio: bool,
}

/// A part of the engine that a bench may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Bids are answered before they are durable, and forgotten in the end
    Journal,
    /// The tables that people read are not written
    Projections,
}

impl Bench {
    pub(crate) async fn run(self, connection: &Connection) -> Result<(), Failure> {
        let (workload, load, target) = match self {
            Bench::Place(Place { load, frame, target }) => (Workload::Place { frame }, load, target),
            Bench::Price(Price { load, rest, target }) => (Workload::Price { rest }, load, target),
            Bench::Watch(Watch { subscribers, feed, own, frame, load, target }) => {
                let feed = match feed {
                    Feed::Events => loadgen::Feed::Events,
                    Feed::Prices => loadgen::Feed::Prices,
                };
                (Workload::Watch(loadgen::Watch { subscribers, feed, own, frame }), load, target)
            }
            Bench::Engine => {
                telemetry::log_to_stderr(serve::LOGGED);
                return Ok(loadgen::engine::run().await?);
            }
        };
        let target = target.named_by(connection)?;
        let (report, ended) = loadgen::run(&workload, &load.load(), &target, local::stop_signal()).await?;
        connection.output().answer(&report, |view| {
            let mut sheet = Sheet::new(view);
            report.lines().into_iter().for_each(|(name, value)| {
                sheet.line(name, value);
            });
            sheet.text()
        })?;
        Ok(ended?)
    }
}

impl Load {
    fn load(self) -> loadgen::Load {
        let Load { callers, connections, seconds, warmup, rate } = self;
        loadgen::Load { callers, connections, seconds, warmup, rate }
    }
}

impl Target {
    /// Returns the engine of --endpoint, or else a new one.
    fn named_by(self, connection: &Connection) -> Result<loadgen::Target, Failure> {
        let Target { store, market, ops_endpoint, disk, without, ratio } = self;
        let Some(endpoint) = connection.endpoint() else {
            if connection.names_a_caller() {
                return Err(Failure::usage("a token is for an engine that runs: name it with --endpoint"));
            }
            if ops_endpoint.is_some() {
                return Err(Failure::usage("--ops-endpoint goes with --endpoint: what is started is known"));
            }
            let without = without.into_iter().map(|part| match part {
                Part::Journal => loadgen::Part::Journal,
                Part::Projections => loadgen::Part::Projections,
            });
            let without = without.collect();
            return Ok(loadgen::Target::New(NewEngine {
                arguments: ENGINE,
                store,
                market,
                disk,
                without,
                ratio,
            }));
        };
        if store.is_some() {
            return Err(Failure::usage(
                "--store is for an engine that is started, --endpoint names one that runs",
            ));
        }
        let Some(market) = market else {
            return Err(Failure::usage("with --endpoint say which market, as in --market h100-8x/eu-west")
                .next("see the markets: kubebid market list"));
        };
        let engine = RunningEngine {
            endpoint: endpoint.to_owned(),
            ops_endpoint,
            client: connection.builder()?,
            market,
            disk,
        };
        Ok(loadgen::Target::Running(Box::new(engine)))
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        let (failure, advice) = match error {
            BenchError::Usage { what, advice } => (Failure::usage(what), advice),
            BenchError::Fault { what, advice } => (Failure::new(Exit::Fault, what), advice),
            BenchError::Unavailable(what) => (Failure::new(Exit::Unavailable, what), None),
            BenchError::Call(error) => (error.into(), None),
            BenchError::Engine(error) => (local::fault(&error), None),
        };
        match advice {
            Some(advice) => failure.next(advice),
            None => failure,
        }
    }
}
