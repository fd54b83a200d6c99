//! The service: one port for gRPC and REST, another for health and metrics.

mod accept;
mod ops;
mod tls;

use crate::api::{Api, ApiOptions};
use crate::auth::{BootstrapError, bootstrap_admin};
use crate::config::ServeArgs;
use crate::engine::{Engine, EngineError, Running};
use crate::grpc;
use crate::store::Fault;
use crate::wire::status::ApiError;
use axum::body::Body;
use axum::response::Response;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::future::Either;
use http::header;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;
use tracing::info;

#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where gRPC and REST are served.
    pub listen: SocketAddr,
    /// Where health and metrics are served; nowhere if absent.
    pub ops: Option<SocketAddr>,
    pub tls: Option<TlsFiles>,
    /// For how long requests may go on when the server stops.
    pub grace: Duration,
    pub api: ApiOptions,
}

/// In PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificates: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("TLS: {0}")]
    Tls(String),
    #[error("the service could not begin: {0}")]
    Api(#[from] ApiError),
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error(transparent)]
    Store(#[from] Fault),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Bound to its ports; nothing is answered yet.
pub struct Server {
    listener: TcpListener,
    ops: Option<TcpListener>,
    tls: Option<TlsAcceptor>,
    config: ServerConfig,
}

/// Starts an engine, makes the first administrator where that is asked for, and serves until `shutdown` is done
/// or the engine ends by itself.
pub fn serve<'a>(
    args: &'a ServeArgs,
    shutdown: impl Future<Output = ()> + Send + 'a,
) -> BoxFuture<'a, Result<(), ServeError>> {
    serve_until(args, Box::pin(shutdown))
}

/// Boxes are what keeps the whole service from being compiled again in every program that runs it.
fn serve_until<'a>(
    args: &'a ServeArgs,
    shutdown: BoxFuture<'a, ()>,
) -> BoxFuture<'a, Result<(), ServeError>> {
    Box::pin(async move {
        let server = Server::bind(args.server_config()).await?;
        let (engine, running) = Engine::start(args.engine_options()?).await?;
        if let Some(path) = &args.admin_token_file
            && let Err(error) = bootstrap_admin(engine.store(), path).await
        {
            running.stop().await?;
            return Err(error.into());
        }
        server.run(engine, running, shutdown).await
    })
}

impl Server {
    pub async fn bind(config: ServerConfig) -> Result<Server, ServeError> {
        let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
        let listener = bind(config.listen).await?;
        let ops = match config.ops {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        Ok(Server { listener, ops, tls, config })
    }

    /// Where gRPC and REST are served.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap_or(self.config.listen)
    }

    /// Where health and metrics are served.
    pub fn ops_address(&self) -> Option<SocketAddr> {
        self.ops.as_ref()?.local_addr().ok()
    }

    /// Serves until `shutdown` is done or the engine ends by itself: then it takes no more requests, ends the
    /// streams, lets the other requests finish, and stops the engine.
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
        Box::pin(self.run_here(engine, running, shutdown))
    }

    async fn run_here(
        self,
        engine: Engine,
        mut running: Running,
        shutdown: BoxFuture<'_, ()>,
    ) -> Result<(), ServeError> {
        let (address, ops_address) = (self.address(), self.ops_address());
        let api = match Api::start(engine, self.config.api).await {
            Ok(api) => api,
            Err(error) => {
                running.stop().await?;
                return Err(error.into());
            }
        };
        let (stop, stopping) = watch::channel(false);
        let (stop_ops, stopping_ops) = watch::channel(false);
        // First: what is counted goes where the metrics are then.
        if let Some(ops) = self.ops {
            let router = TowerToHyperService::new(ops::router(api.clone()));
            tokio::spawn(accept::serve(ops, None, router, stopping_ops, Duration::ZERO));
        }
        let serving = tokio::spawn(accept::serve(
            self.listener,
            self.tls,
            door(api.clone()),
            stopping,
            self.config.grace,
        ));
        info!(%address, ops = ?ops_address, "serving");
        let ended = tokio::select! {
            () = shutdown => None,
            ended = running.wait() => Some(ended),
        };
        info!("stopping");
        api.close();
        stop.send_replace(true);
        let _ = serving.await;
        let result = match ended {
            Some(ended) => ended,
            None => running.stop().await,
        };
        stop_ops.send_replace(true);
        Ok(result?)
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

/// What answers the requests of a connection.
trait Door:
    hyper::service::Service<
        hyper::Request<Incoming>,
        Response = Response,
        Error = Infallible,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
}

impl<S> Door for S where
    S: hyper::service::Service<
            hyper::Request<Incoming>,
            Response = Response,
            Error = Infallible,
            Future: Send + 'static,
        > + Clone
        + Send
        + 'static
{
}

/// gRPC and REST on one port, told apart by what they say they carry.
fn door(api: Api) -> impl Door {
    let (grpc, rest) = (grpc::Services::new(api.clone()), crate::rest::router(api));
    service_fn(move |request: hyper::Request<Incoming>| {
        let request = request.map(Body::new);
        let kind = request.headers().get(header::CONTENT_TYPE);
        let is_grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        if is_grpc {
            Either::Left(grpc.clone().answer(request).map(Ok))
        } else {
            Either::Right(rest.clone().oneshot(request))
        }
    })
}
