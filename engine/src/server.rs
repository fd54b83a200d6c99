//! The server: one port for gRPC and REST, another one for health and metrics.

mod accept;
pub mod config;
mod connections;
mod ops;
mod service_slot;
mod tls;

use crate::api::{Api, ApiOptions};
use crate::auth::{BootstrapError, bootstrap};
use crate::lifecycle::engine::{Engine, Running};
use crate::lifecycle::error::EngineError;
use crate::lifecycle::options::Start;
use crate::server::config::ServeArgs;
use crate::store::{Fault, StoreLocation, StoreOptions};
use crate::wire::status::ApiError;
pub use connections::ConnectionLimits;
use connections::Connections;
use futures_util::future::{BoxFuture, ready};
use http::HeaderValue;
use service_slot::{Prepared, ServiceSlot};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

/// The least time to stop. An engine saves a snapshot when it stops, which a short grace for requests
/// should not prevent.
const LEAST_TO_STOP: Duration = Duration::from_secs(10);

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address of gRPC and REST.
    pub listen: SocketAddr,
    /// The address of health and metrics; none are served if absent.
    pub ops: Option<SocketAddr>,
    /// Certificate and key; without them TLS is not used.
    pub tls: Option<TlsFiles>,
    /// The time for which requests may go on when the server stops.
    pub grace: Duration,
    /// Limits of the connections.
    pub connections: ConnectionLimits,
    /// The origins whose pages may call REST, as a browser sends them; `*` for all. No page of another origin may
    /// if this is empty.
    pub cors_origins: Vec<HeaderValue>,
    /// Options of the API.
    pub api: ApiOptions,
}

/// Certificate and key files in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate chain.
    pub certificates: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
}

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A port cannot be bound.
    #[error("{address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The certificate or the key cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// The API could not start on the engine.
    #[error("the service could not begin: {0}")]
    Api(#[from] ApiError),
    /// The first administrator could not be set up.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The SQLite file is missing, but an administrator's token is there.
    #[error(
        "{} is missing, and {} has an administrator's token: put the file back or name the right one with --store; \
         a new store for this token is made with --new-store", .store.display(), .token.display()
    )]
    LostStore {
        /// The missing file.
        store: PathBuf,
        /// The file with the token.
        token: PathBuf,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Fault),
    /// The engine did not start, or ended by itself.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A server that has its ports and does not answer yet.
pub struct Server {
    listener: TcpListener,
    ops: Option<std::net::TcpListener>,
    tls: Option<TlsAcceptor>,
    config: ServerConfig,
}

/// Starts an engine, creates the first administrator if that is asked for, and serves until `shutdown` is
/// ready or the engine ends by itself. A standby answers from the beginning that it does not lead.
pub fn serve<'a>(
    args: &'a ServeArgs,
    shutdown: impl Future<Output = ()> + Send + 'a,
) -> BoxFuture<'a, Result<(), ServeError>> {
    serve_until(args, Box::pin(shutdown))
}

/// Boxed, so that the whole service is not compiled again in every program that runs it.
fn serve_until<'a>(
    args: &'a ServeArgs,
    shutdown: BoxFuture<'a, ()>,
) -> BoxFuture<'a, Result<(), ServeError>> {
    Box::pin(async move {
        let server = Server::bind(args.server_config()).await?;
        let options = args.engine_options()?;
        expect_store(&options.store, args.admin_token_file.as_deref())?;
        let begin = if options.start == Start::Standby { Begin::WhileStandingBy } else { Begin::WhenLeading };
        let starting = async {
            let (engine, running) = Engine::start(options).await?;
            if let Err(error) = bootstrap(engine.store(), args.admin_token_file.as_deref()).await {
                running.stop().await?;
                return Err(error.into());
            }
            Ok((engine, running))
        };
        server.run_here(begin, Box::pin(starting), shutdown).await
    })
}

/// Refuses to start if an administrator's token exists without its store. The store was lost, or another
/// one was meant; a new store in its place would be a market without its bids.
fn expect_store(store: &StoreOptions, token: Option<&Path>) -> Result<(), ServeError> {
    let (StoreLocation::Sqlite(file), Some(token)) = (&store.location, token) else { return Ok(()) };
    if store.over_remains || file.exists() || !token.exists() {
        return Ok(());
    }
    Err(ServeError::LostStore { store: file.clone(), token: token.to_owned() })
}

/// The moment from which requests are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// The ports accept connections once the engine leads. Earlier callers wait for their connection.
    WhenLeading,
    /// Earlier callers are answered that this engine does not lead.
    WhileStandingBy,
}

impl Server {
    /// Binds the ports. Connections wait until [`Server::run`].
    ///
    /// # Errors
    /// A port is not free, or the certificate or the key cannot be used.
    pub async fn bind(config: ServerConfig) -> Result<Server, ServeError> {
        let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
        let listener = bind(config.listen).await?;
        let ops = match config.ops {
            Some(address) => {
                let listener = bind(address).await?;
                Some(listener.into_std().map_err(|source| ServeError::Listen { address, source })?)
            }
            None => None,
        };
        if tls.is_none() && !config.listen.ip().is_loopback() {
            let said = "tokens and all else can be read on the way to this address: give a certificate (--tls-cert, --tls-key), \
                        or let a proxy on this machine or pod end TLS";
            warn!(address = %config.listen, "{said}");
        }
        Ok(Server { listener, ops, tls, config })
    }

    /// Returns the address of gRPC and REST.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap_or(self.config.listen)
    }

    /// Returns the address of health and metrics, if they are served.
    pub fn ops_address(&self) -> Option<SocketAddr> {
        self.ops.as_ref()?.local_addr().ok()
    }

    /// Serves until `shutdown` is ready or the engine ends by itself. Then it accepts no more
    /// requests, ends the streams, lets the other requests finish, and stops the engine.
    pub fn run<'a>(
        self,
        engine: Engine,
        running: Running,
        shutdown: impl Future<Output = ()> + Send + 'a,
    ) -> BoxFuture<'a, Result<(), ServeError>> {
        self.run_until(engine, running, Box::pin(shutdown))
    }

    fn run_until<'a>(
        self,
        engine: Engine,
        running: Running,
        shutdown: BoxFuture<'a, ()>,
    ) -> BoxFuture<'a, Result<(), ServeError>> {
        let started = Box::pin(ready(Ok((engine, running))));
        Box::pin(self.run_here(Begin::WhenLeading, started, shutdown))
    }

    async fn run_here(
        mut self,
        begin: Begin,
        starting: BoxFuture<'_, Result<(Engine, Running), ServeError>>,
        mut shutdown: BoxFuture<'_, ()>,
    ) -> Result<(), ServeError> {
        let (address, ops_address) = (self.address(), self.ops_address());
        let service_slot = ServiceSlot::new(&self.config.cors_origins);
        let (stop, stopping) = watch::channel(false);
        let (stop_ops, stopping_ops) = watch::channel(false);
        // Started first, because it installs the recorder of metrics: what is counted earlier
        // would be lost.
        if let Some(ops) = self.ops.take() {
            let standby = begin == Begin::WhileStandingBy;
            let served = ops::serve(ops, service_slot.clone(), standby, stopping_ops);
            served
                .map_err(|source| ServeError::Listen { address: ops_address.unwrap_or(address), source })?;
        }
        let prepared = Prepared::new();
        let connections = Connections::new("api", self.config.connections, &self.config.api.limits);
        let grace = self.config.grace;
        let accepting =
            accept::serve(self.listener, self.tls, service_slot.responder(), connections, stopping, grace);
        let mut accepting = Accepting::Not(Box::pin(accepting));
        if begin == Begin::WhileStandingBy {
            accepting.begin();
            info!(%address, ops = ?ops_address, "standing by");
        }
        let led = tokio::select! {
            led = lead(starting, self.config.api) => Some(led),
            () = &mut shutdown => None,
        };
        let result = match led {
            Some(Ok((api, mut running))) => {
                service_slot.open(prepared, api.clone());
                accepting.begin();
                info!(%address, ops = ?ops_address, "serving");
                let ended = tokio::select! {
                    () = shutdown => None,
                    ended = running.wait() => Some(ended),
                };
                info!("stopping");
                api.close();
                stop.send_replace(true);
                accepting.ended().await;
                match ended {
                    Some(ended) => ended,
                    None => running.stop_within(self.config.grace.max(LEAST_TO_STOP)).await,
                }
                .map_err(ServeError::from)
            }
            Some(Err(error)) => Err(error),
            None => Ok(()),
        };
        stop.send_replace(true);
        stop_ops.send_replace(true);
        result
    }
}

/// Waits until the engine leads, and starts the API on it.
async fn lead(
    starting: BoxFuture<'_, Result<(Engine, Running), ServeError>>,
    options: ApiOptions,
) -> Result<(Api, Running), ServeError> {
    let (engine, running) = starting.await?;
    match Api::start(engine, options).await {
        Ok(api) => Ok((api, running)),
        Err(error) => {
            running.stop().await?;
            Err(error.into())
        }
    }
}

/// The task that accepts connections, or what it waits for.
enum Accepting {
    Not(BoxFuture<'static, ()>),
    Since(JoinHandle<()>),
}

impl Accepting {
    fn begin(&mut self) {
        if let Accepting::Not(accepting) = self {
            *self = Accepting::Since(tokio::spawn(std::mem::replace(accepting, Box::pin(ready(())))));
        }
    }

    async fn ended(self) {
        if let Accepting::Since(accepting) = self {
            let _ = accepting.await;
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("config", &self.config).finish_non_exhaustive()
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })
}
