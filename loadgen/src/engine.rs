//! The engine that a bench starts and measures: on loopback ports, with limits that no load reaches, and without the
//! parts that the bench leaves out.
//!
//! It is not `kubebid serve`: no flag, file or environment variable of that command can leave out a part. The engine
//! runs in a process of its own. [`run`](crate::run) starts this program again, writes the settings to its standard
//! input and reads the addresses from its standard output, each as one line of JSON. The engine stops when its
//! standard input is closed, so it does not outlive the bench.

use crate::error::BenchError;
use crate::options::Part;
use kubebid_engine::api::ApiOptions;
use kubebid_engine::auth::bootstrap_admin;
use kubebid_engine::auth::limits::Defaults;
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::server::{ConnectionLimits, ServeError, Server, ServerConfig};
use kubebid_engine::store::{Fault, Journal, StoreLocation, StoreOptions};
use kubebid_engine::{Engine, EngineOptions, OmittedParts, Start};
use serde::{Deserialize, Serialize};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// More than any load reaches: the engine is measured, not its limits.
const NO_LIMIT: u64 = 1_000_000_000_000;
/// More connections than any load has.
const CONNECTIONS: usize = 1_000_000;
const IDLE: Duration = Duration::from_secs(600);
/// The time that open requests have when the engine stops.
const GRACE: Duration = Duration::from_secs(10);
/// The interval of `kubebid serve` between two checks of the journal.
const SCRUB_EVERY: Duration = Duration::from_secs(24 * 3600);

/// The settings that the bench gives to the engine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The URL of a store without a journal. It may hold a password, which the arguments of a process would show.
    pub(crate) store: String,
    /// The file that is to hold the token of an administrator.
    pub(crate) admin_token_file: PathBuf,
    /// The parts to leave out.
    pub(crate) without: Vec<Part>,
}

/// The answer of the engine when it is ready.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Addresses {
    /// The address of gRPC and REST.
    pub(crate) api: SocketAddr,
    /// The address of health and metrics.
    pub(crate) ops: SocketAddr,
}

/// Runs an engine for the bench that started this process, until standard input is closed.
///
/// # Errors
///
/// Returns why the engine did not start or did not end well. It refuses a store that has a journal.
pub async fn run() -> Result<(), BenchError> {
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let settings = input.next_line().await.map_err(|error| protocol(&error))?.unwrap_or_default();
    let settings: Settings = serde_json::from_str(&settings).map_err(|error| protocol(&error))?;
    let store = new_store(&settings.store).await?;
    let server = Server::bind(server_config()).await?;
    let (engine, running) =
        Engine::start(engine_options(store, &settings.without)).await.map_err(ServeError::from)?;
    bootstrap_admin(engine.store(), &settings.admin_token_file).await.map_err(ServeError::from)?;
    // From here on connections are accepted once the server runs.
    let ops = server.ops_address().ok_or_else(|| BenchError::fault("metrics have no address"))?;
    let addresses = serde_json::to_string(&Addresses { api: server.address(), ops });
    say(&addresses.map_err(|error| protocol(&error))?).map_err(|error| protocol(&error))?;
    let closed = async move { while let Ok(Some(_)) = input.next_line().await {} };
    Ok(server.run(engine, running, closed).await?)
}

/// Returns the options of a store after it made sure that the store has no journal to which bids would be added.
pub(crate) async fn new_store(url: &str) -> Result<StoreOptions, BenchError> {
    let store = StoreOptions::from_url(url).map_err(|error| BenchError::usage(error.to_string()))?;
    let has_journal = match &store.location {
        StoreLocation::Sqlite(path) => path.metadata().is_ok_and(|file| file.len() > 0),
        StoreLocation::Postgres(_) => match Journal::open_to_read(&store).await {
            Ok(_) => true,
            // The table of the journal is missing.
            Err(Fault::Database { .. }) => false,
            Err(fault) => return Err(ServeError::from(fault).into()),
        },
    };
    if has_journal {
        return Err(BenchError::Usage {
            what: "the store is not empty, and a bench would fill it with bids".to_owned(),
            advice: Some("name one that is not there yet, or the engine that runs on it with --endpoint"),
        });
    }
    Ok(store)
}

fn engine_options(store: StoreOptions, without: &[Part]) -> EngineOptions {
    EngineOptions {
        projection_lag: NO_LIMIT,
        scrub_every: Some(SCRUB_EVERY),
        start: Start::Alone,
        omitted: OmittedParts {
            journal: without.contains(&Part::Journal),
            projections: without.contains(&Part::Projections),
        },
        ..EngineOptions::new(store, Clock::Real)
    }
}

fn server_config() -> ServerConfig {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let limits = Defaults {
        open_bids: NO_LIMIT,
        nodes_wanted: NO_LIMIT,
        ceiling_micros: u64::MAX,
        requests_per_second: NO_LIMIT,
        open_requests: NO_LIMIT,
        watches: NO_LIMIT,
        anonymous_requests_per_second: NO_LIMIT,
        units_offered: NO_LIMIT,
        units_per_command: NO_LIMIT,
        refusals_per_second: NO_LIMIT,
        commands_per_day: NO_LIMIT,
    };
    ServerConfig {
        listen: loopback,
        ops: Some(loopback),
        tls: None,
        grace: GRACE,
        connections: ConnectionLimits::new(Some(CONNECTIONS), Some(CONNECTIONS), IDLE),
        cors_origins: Vec::new(),
        api: ApiOptions { limits, ..ApiOptions::default() },
    }
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn protocol(error: &dyn std::error::Error) -> BenchError {
    BenchError::fault(format!("`kubebid bench` starts this command: {error}"))
}
