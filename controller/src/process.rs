//! The process of an operator: its flags, its probes, and the loop in which it leads, works, and hands over.

use crate::api_error;
use crate::failpoint;
use crate::leader_election::{Candidate, Leadership, LeaseTimes, TermEnd, until_done};
use crate::manager::{Manager, Options};
use crate::metrics;
use crate::ops::{self, Ops};
use crate::rate_limiter::BackoffRange;
use clap::Parser;
use http::Request;
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use metrics_exporter_prometheus::PrometheusHandle;
use std::error::Error;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tower::util::MapRequestLayer;
use tracing::{error, info};
use tracing_subscriber::EnvFilter;

/// The time that the API server may take for one answer at the start.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest time that a connection with the API server is silent while an answer or a watch waits. A watch is never silent
/// for so long, since the API server sends a bookmark every minute.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(100);

/// The flags that every operator has.
#[derive(Parser, Clone, Debug)]
pub struct ProcessArgs {
    /// Address of /healthz, /readyz and /metrics
    #[arg(long, default_value = "127.0.0.1:7443", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Objects of a kind that are reconciled at once [default: as each controller has it]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Controllers")]
    pub concurrency: Option<u16>,
    /// The wait after the first failure of an object, ± 20 %, which doubles with each, and the longest wait, as in 5ms..5m
    /// [default: as the program has it]
    #[arg(long, value_name = "LEAST..MOST", value_parser = backoff, help_heading = "Controllers")]
    pub backoff: Option<BackoffRange>,
    /// The longest time for the first list of all objects; then the process ends with code 1
    #[arg(long, default_value = "2m", value_name = "TIME", value_parser = time, help_heading = "Controllers")]
    pub sync_timeout: Duration,
    /// Send every write with dryRun=All and log it; needs no Lease, and no other replica notices
    #[arg(long, help_heading = "Controllers")]
    pub dry_run: bool,
    /// The namespace of the Lease by which one replica leads [default: that of the pod, or of the kubeconfig]
    #[arg(long, value_name = "NAMESPACE", help_heading = "Leader election")]
    pub lease_namespace: Option<String>,
    /// The name of the Lease [default: the name of the program]
    #[arg(long, value_name = "NAME", help_heading = "Leader election")]
    pub lease_name: Option<String>,
    /// The duration of the Lease, in seconds; at least 3
    #[arg(long, default_value_t = 15, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(3..=3600), help_heading = "Leader election")]
    pub lease_seconds: u64,
    /// The time after which a leader that does not see its Lease stops writing, in seconds [default: a third of the duration]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Leader election")]
    pub renew_deadline_seconds: Option<u64>,
    /// The time between two renewals of the Lease, in seconds [default: two thirds of the duration]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Leader election")]
    pub retry_period_seconds: Option<u64>,
    /// This replica's name in the Lease, before a random suffix: no other process has the whole [default: the name of the
    /// program]
    #[arg(long, env = "HOSTNAME", value_name = "NAME", help_heading = "Leader election")]
    pub identity: Option<String>,
    /// Run without a Lease: there is no other replica
    #[arg(long, help_heading = "Leader election")]
    pub alone: bool,
    /// The longest time that a connection with the API server is silent while an answer or a watch waits; for tests
    #[arg(long, hide = true, value_name = "TIME", value_parser = time)]
    pub silence_limit: Option<Duration>,
    /// End the process at this failpoint, as a crash would; for tests
    #[arg(long, hide = true)]
    pub abort_at: Option<String>,
    /// Panic at this failpoint, once; for tests
    #[arg(long, hide = true)]
    pub panic_at: Option<String>,
}

/// Parses a time such as `90s` or `15m`.
///
/// # Errors
/// A sentence for the command line.
pub fn time(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<kube::core::Duration>();
    let parsed = parsed.map_err(|error| format!("{error}: write it as in 90s or 15m"))?;
    let time = if parsed.is_negative() { Duration::ZERO } else { Duration::from(parsed) };
    if time.is_zero() { Err("it is not longer than nothing".to_owned()) } else { Ok(time) }
}

fn backoff(text: &str) -> Result<BackoffRange, String> {
    let (least, most) = text.split_once("..").ok_or("write it as in 5ms..5m")?;
    let (least, most) = (time(least)?, time(most)?);
    if least > most { Err(format!("{least:?} is longer than {most:?}")) } else { Ok(least..=most) }
}

/// An operator: what its process serves and is called.
pub struct Program {
    /// The name of the program: reporter of its events, default name of its Lease.
    pub name: &'static str,
    /// The environment variable of the log filter, as in `KUBEBID_LOG`.
    pub log_variable: &'static str,
    /// The metrics of the process.
    pub metrics: PrometheusHandle,
    /// Metrics that are rendered when they are asked for.
    pub more_metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// The default of `--backoff`.
    pub backoff: BackoffRange,
    /// Is called after each pass with the name of the controller, the result and the duration.
    pub on_pass: fn(&'static str, &'static str, Duration),
}

impl Program {
    /// Returns a program that has no metrics besides those of the library. `prefix` is the first word of their names.
    ///
    /// # Errors
    /// A second call in a process with another recorder.
    pub fn new(name: &'static str, prefix: &'static str) -> Result<Program, Box<dyn Error>> {
        Ok(Program {
            name,
            log_variable: "RUST_LOG",
            metrics: metrics::install(prefix, &[])?,
            more_metrics: Arc::new(String::new),
            backoff: Options::default().backoff,
            on_pass: |_, _, _| (),
        })
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Runs an operator until the process is told to stop or another replica leads. `build` adds the controllers, once for
/// each term in which this replica leads.
///
/// # Errors
/// A cluster that is not configured, an address that cannot be bound, and whatever `build` fails with.
pub async fn run(
    program: Program,
    args: &ProcessArgs,
    build: impl AsyncFnMut(&mut Manager) -> Result<(), Box<dyn Error>>,
) -> Result<ExitCode, Box<dyn Error>> {
    start_logging(program.log_variable)?;
    if let Some(point) = args.abort_at.clone() {
        failpoint::abort_at(point);
    }
    if let Some(point) = args.panic_at.clone() {
        failpoint::panic_at(point);
    }
    let client = args.client().await?;
    let ops = Ops {
        metrics: program.metrics.clone(),
        more_metrics: Arc::clone(&program.more_metrics),
        ready: Arc::default(),
    };
    let listener =
        TcpListener::bind(args.listen).await.map_err(|error| format!("--listen {}: {error}", args.listen))?;
    info!(address = %listener.local_addr()?, "listening");
    let serving = ops::serve(listener, ops.clone());
    let mut stop = std::pin::pin!(stop_signal());
    tokio::select! {
        served = serving => served.map(|()| ExitCode::FAILURE).map_err(Into::into),
        worked = work(&program, args, client, &ops, stop.as_mut(), build) => worked,
    }
}

fn start_logging(variable: &str) -> Result<(), Box<dyn Error>> {
    let filter = EnvFilter::builder()
        .with_env_var(variable)
        .with_default_directive(tracing::level_filters::LevelFilter::INFO.into())
        .from_env()?;
    let ansi = std::io::stderr().is_terminal();
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr);
    // A line that cannot be written would be reported on standard error, and end the thread that logs.
    logs.log_internal_errors(false).init();
    Ok(())
}

impl ProcessArgs {
    /// Returns a client of the cluster by these flags.
    ///
    /// # Errors
    /// A cluster that is not configured.
    pub async fn client(&self) -> Result<Client, Box<dyn Error>> {
        // A pass that fails is repeated as a whole.
        client(self.silence_limit.unwrap_or(SILENCE_LIMIT), false).await
    }

    /// Returns the namespace of the Lease: without the flag, that of the pod, or of the kubeconfig.
    pub fn lease_namespace<'a>(&'a self, client: &'a Client) -> &'a str {
        self.lease_namespace.as_deref().unwrap_or_else(|| client.default_namespace())
    }
}

/// Returns a client of the cluster of the Pod that the process runs in, or of the kubeconfig. It counts its requests.
///
/// A connection that stays silent for `silence_limit` is given up: if the API server has gone without a word, no answer
/// comes, and kube waits for it without a limit. [`SILENCE_LIMIT`] is the default. With `retries`, a request that the API
/// server refuses for its load is repeated.
///
/// # Errors
/// A cluster that is not configured.
pub async fn client(silence_limit: Duration, retries: bool) -> Result<Client, Box<dyn Error>> {
    let mut config = Config::infer().await?;
    config.read_timeout = Some(silence_limit);
    // The time in which a connection has nothing to do does not count.
    config.reset_reader_on_write = true;
    config.default_retry = retries;
    let counted = MapRequestLayer::new(|request: Request<Body>| {
        metrics::api_request(&request);
        request
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&counted).build())
}

async fn work(
    program: &Program,
    args: &ProcessArgs,
    client: Client,
    ops: &Ops,
    mut stop: Pin<&mut impl Future<Output = ()>>,
    mut build: impl AsyncFnMut(&mut Manager) -> Result<(), Box<dyn Error>>,
) -> Result<ExitCode, Box<dyn Error>> {
    let asked = until_done("the cluster cannot be asked", async || {
        let version = tokio::time::timeout(PATIENCE, client.apiserver_version()).await;
        version.map_err(|_| "no answer within 5 s".to_owned())?.map_err(|error| api_error::message(&error))
    });
    tokio::select! {
        _ = asked => {}
        () = stop.as_mut() => return Ok(stopped()),
    }
    ops.ready.store(true, Ordering::Relaxed);
    let options = Options {
        reporter: program.name.to_owned(),
        dry_run: args.dry_run,
        backoff: args.backoff.clone().unwrap_or_else(|| program.backoff.clone()),
        sync_timeout: args.sync_timeout,
        on_pass: program.on_pass,
    };
    if args.alone || args.dry_run {
        let leadership = Leadership::alone();
        let mut manager = Manager::new(client, leadership.clone(), options);
        tokio::select! {
            built = build(&mut manager) => built?,
            () = stop.as_mut() => return Ok(stopped()),
        }
        let mut working = std::pin::pin!(manager.run());
        tokio::select! {
            ended = working.as_mut() => return Err(ended.map_or_else(Into::into, |()| "ended".into())),
            () = stop.as_mut() => {}
        }
        tokio::select! { _ = working => {} () = leadership.finish() => {} }
        return Ok(stopped());
    }
    let lease = args.lease_name.as_deref().unwrap_or(program.name);
    // Two processes of one name, as on one host, would both lead.
    let identity = with_suffix(args.identity.as_deref().unwrap_or(program.name));
    let candidate = candidate(lease, &identity, args, client.clone())?;
    loop {
        let mut term = tokio::select! {
            term = candidate.lead() => term,
            () = stop.as_mut() => return Ok(stopped()),
        };
        let leadership = term.leadership.clone();
        let mut manager = Manager::new(client.clone(), leadership.clone(), options.clone());
        let is_built = tokio::select! {
            built = build(&mut manager) => built.map(|()| true)?,
            () = stop.as_mut() => false,
        };
        let is_stopped = !is_built || {
            let mut working = std::pin::pin!(manager.run());
            let is_stopped = tokio::select! {
                ended = working.as_mut() => return Err(ended.map_or_else(Into::into, |()| "ended".into())),
                () = term.ended() => false,
                () = stop.as_mut() => true,
            };
            if is_stopped {
                tokio::select! { _ = working => {} () = term.ended() => {} () = leadership.finish() => {} }
            }
            is_stopped
        };
        if is_stopped {
            term.release().await;
            return Ok(stopped());
        }
        let lost = tokio::select! {
            lost = term.lost() => lost,
            () = stop.as_mut() => return Ok(stopped()),
        };
        if lost == TermEnd::ToAnother {
            error!("another replica leads: this one ends");
            return Ok(ExitCode::from(3));
        }
    }
}

/// Returns the candidate for a Lease of an operator.
///
/// # Errors
/// Times of the Lease that do not fit each other.
pub(crate) fn candidate(
    lease: &str,
    identity: &str,
    args: &ProcessArgs,
    client: Client,
) -> Result<Candidate, &'static str> {
    let namespace = args.lease_namespace(&client).to_owned();
    Ok(Candidate::new(client, &namespace, lease, identity, lease_times(args)?))
}

/// Returns a name that no other process has.
pub(crate) fn with_suffix(name: &str) -> String {
    format!("{name}-{:08x}", fastrand::u32(..))
}

/// Returns the times of the Lease.
fn lease_times(args: &ProcessArgs) -> Result<LeaseTimes, &'static str> {
    let mut times = LeaseTimes::new(Duration::from_secs(args.lease_seconds));
    if let Some(seconds) = args.renew_deadline_seconds {
        times.renew_deadline = Duration::from_secs(seconds);
    }
    if let Some(seconds) = args.retry_period_seconds {
        times.retry_period = Duration::from_secs(seconds);
    }
    // A leader sees its Lease for the last time just before it should be renewed.
    let is_safe = times.renew_deadline.saturating_add(times.retry_period) <= times.duration;
    if is_safe { Ok(times) } else { Err("renew deadline and retry period are longer than the Lease lasts") }
}

fn stopped() -> ExitCode {
    info!("stopped; another replica, or the next start, goes on from here");
    ExitCode::SUCCESS
}

/// Waits until the process is told to stop, by SIGTERM or Ctrl-C.
pub async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
