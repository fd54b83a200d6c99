//! `market-sim live`: runs the demo market of `kubebid up` against an engine elsewhere.

use axum::Router;
use axum::routing::get;
use clap::Args;
use kubebid_client::v1::{ListMarketsRequest, token::Role};
use kubebid_client::{Client, Code, Options};
use market_sim::demo::profile::{Profile, write_private};
use market_sim::demo::{self, metrics, setup};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;
use tracing_subscriber::EnvFilter;

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    /// Engines of one exchange, tried in this order
    #[arg(long, env = "KUBEBID_ENDPOINTS", value_delimiter = ',', default_value = "http://127.0.0.1:7440")]
    endpoint: Vec<String>,
    /// A file with the token of an administrator
    #[arg(long, env = "KUBEBID_TOKEN_FILE", value_name = "FILE")]
    token_file: PathBuf,
    /// Folder of the tokens of those who trade, each in a file NAME.token, and of a profile for `kubebid`
    #[arg(long, value_name = "FOLDER")]
    tokens: PathBuf,
    /// Address of the engine in the profile, if people reach it at another one
    #[arg(long, env = "KUBEBID_PROFILE_ENDPOINT", value_name = "URL")]
    profile_endpoint: Option<String>,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, default_value = "127.0.0.1:7442", value_name = "ADDRESS")]
    ops_listen: SocketAddr,
    /// Seed of what the synthetic accounts do
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const HELP: &str = "\
It opens three markets with short times (nodes are protected for 30 s, notices take 60 s), makes accounts with
tokens, and lets synthetic providers and tenants trade. An engine that is away is waited for. It is ready
(/readyz) when the markets are open. What is there already stays: it may be started again on the same engine and
folder. Everybody in the folder's profile can be played with `kubebid --profile FOLDER/profile.toml --as NAME`.

Example:
  kubebid serve --admin-token-file admin.token &
  market-sim live --token-file admin.token --tokens tokens
  kubebid --profile tokens/profile.toml --as tenant-a price

Exit codes: 0 stopped by SIGINT or SIGTERM; 1 the engine refused what it needs, or a file or address is of no use.
KUBEBID_LOG says what is logged, as in `info` or `market_sim=debug`.";

/// The maker that is noted with the tokens.
const MAKER: &str = "market-sim live";
/// The time for which an engine that is away is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let filter = EnvFilter::try_from_env("KUBEBID_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = io::stderr().is_terminal();
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(io::stderr);
    // A line that cannot be written would be reported on standard error, and end the thread that logs.
    logs.log_internal_errors(false).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let lived = match runtime {
        Ok(runtime) => runtime.block_on(live(arguments)),
        Err(fault) => Err(fault.into()),
    };
    match lived {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::complain(error.as_ref()),
    }
}

async fn live(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        lived = trade(arguments) => lived,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

async fn trade(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let handle = PrometheusBuilder::new().install_recorder()?;
    metrics::describe();
    let bound = TcpListener::bind(arguments.ops_listen).await;
    let listener = bound.map_err(|fault| format!("--ops-listen {}: {fault}", arguments.ops_listen))?;
    info!(address = %listener.local_addr()?, "listening");
    let (ready, is_ready) = tokio::sync::watch::channel(false);
    let router = ops(handle, is_ready);
    let trading = async {
        let keys = Keys::open(arguments)?;
        setup::open(&keys.admin).await?;
        let clients = setup::clients(async |name, role| keys.client_of(name, role).await).await?;
        keys.write_profile().await?;
        info!(tokens = %arguments.tokens.display(), "the markets are open");
        ready.send_replace(true);
        demo::run(setup::markets(), clients, arguments.seed).await;
        Ok(())
    };
    tokio::select! {
        served = axum::serve(listener, router) => Ok(served?),
        traded = trading => traded,
    }
}

fn ops(handle: PrometheusHandle, ready: tokio::sync::watch::Receiver<bool>) -> Router {
    use axum::http::StatusCode;
    let readyz = async move || match *ready.borrow() {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    };
    let render = async move || {
        handle.run_upkeep();
        handle.render()
    };
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(render))
}

/// The tokens in the folder, and the administrator who makes those that are missing.
struct Keys<'a> {
    arguments: &'a Arguments,
    admin: Client,
}

impl Keys<'_> {
    fn open(arguments: &Arguments) -> Result<Keys<'_>, Box<dyn Error>> {
        let folder = &arguments.tokens;
        fs::create_dir_all(folder).map_err(|fault| format!("--tokens {}: {fault}", folder.display()))?;
        let options = Options { deadline: PATIENCE, tries: u32::MAX, ..Options::default() };
        let builder = Client::builder().endpoints(&arguments.endpoint).token_file(&arguments.token_file);
        Ok(Keys { arguments, admin: builder.options(options).build()? })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.arguments.tokens.join(format!("{name}.token"))
    }

    /// Returns the token of an account: that of its file while the engine knows it, else a new one.
    async fn token(&self, name: &str, role: Role) -> Result<String, Box<dyn Error>> {
        let path = self.file(name);
        match fs::read_to_string(&path) {
            Ok(token) if self.is_known(token.trim()).await? => return Ok(token.trim().to_owned()),
            Ok(_) => {}
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => {}
            Err(fault) => return Err(format!("{}: {fault}", path.display()).into()),
        }
        let token = setup::token(&self.admin, name, role, MAKER).await?;
        write_private(&path, &format!("{token}\n"))
            .map_err(|fault| format!("{}: {fault}", path.display()))?;
        Ok(token)
    }

    async fn is_known(&self, token: &str) -> Result<bool, kubebid_client::Error> {
        match self.client(token)?.list_markets(ListMarketsRequest::default()).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(&Code::Unauthenticated) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn client_of(&self, name: &str, role: Role) -> Result<Client, Box<dyn Error>> {
        Ok(self.client(&self.token(name, role).await?)?)
    }

    fn client(&self, token: &str) -> Result<Client, kubebid_client::Error> {
        Client::builder().endpoints(&self.arguments.endpoint).token(token).build()
    }

    /// Writes the profile: the tokens of the administrator and of the accounts for people.
    async fn write_profile(&self) -> Result<(), Box<dyn Error>> {
        let path = &self.arguments.token_file;
        let admin = fs::read_to_string(path).map_err(|fault| format!("{}: {fault}", path.display()))?;
        let mut tokens = BTreeMap::from([("admin".to_owned(), admin.trim().to_owned())]);
        for (name, role) in setup::PEOPLE {
            tokens.insert(name.to_owned(), self.token(name, role).await?);
        }
        let endpoint =
            self.arguments.profile_endpoint.clone().unwrap_or_else(|| self.arguments.endpoint.join(","));
        let path = self.arguments.tokens.join("profile.toml");
        let profile = Profile { endpoint, default: Some("tenant-a".to_owned()), tokens };
        Ok(profile.write(&path).map_err(|fault| format!("{}: {fault}", path.display()))?)
    }
}
