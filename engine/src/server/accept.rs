//! Connections: HTTP/1 and HTTP/2 on one port, with TLS or without, and their end.

use super::entrance::Door;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

/// Requests that one connection may have open at once.
const STREAMS: u32 = 4096;
/// How long a peer may take for a handshake, for the head of a request, for the answer to a ping.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a quiet peer is asked whether it is there.
const PING: Duration = Duration::from_secs(30);
/// How long to wait when the system gives no connections: it may have run out of files.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// Serves until `stopping` says so; then open requests may take `grace` to finish.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    door: impl Door,
    mut stopping: watch::Receiver<bool>,
    grace: Duration,
) {
    let connections = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let (tls, door, watcher) = (tls.clone(), door.clone(), connections.watcher());
                tokio::spawn(connection(stream, tls, door, watcher));
            }
            Err(error) => {
                warn!(%error, "no connection could be taken");
                tokio::time::sleep(EXHAUSTED).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(grace, connections.shutdown()).await.is_err() && !grace.is_zero() {
        warn!("some requests did not finish in time");
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, door: impl Door, watcher: Watcher) {
    // Answers are small and waited for.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return http(stream, door, watcher).await };
    match tokio::time::timeout(PATIENCE, tls.accept(stream)).await {
        Ok(Ok(stream)) => http(stream, door, watcher).await,
        Ok(Err(error)) => debug!(%error, "a handshake failed"),
        Err(_) => debug!("a handshake took too long"),
    }
}

async fn http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    door: impl Door,
    watcher: Watcher,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PATIENCE)
        .max_concurrent_streams(STREAMS);
    let serving = builder.serve_connection(TokioIo::new(stream), door).into_owned();
    if let Err(error) = watcher.watch(serving).await {
        debug!(error, "a connection broke");
    }
}
