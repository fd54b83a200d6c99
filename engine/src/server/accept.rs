//! Accepts connections and serves HTTP/1 and HTTP/2 on one port, with or without TLS.

use super::connections::{Activity, Connections, CountedConnection, Silence};
use super::service_slot::Responder;
use crate::auth::held::Held;
use axum::body::Body;
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

/// The most requests that one connection may have open at once.
const STREAMS: u32 = 256;
/// The most bytes of an answer that the connection buffers until the peer reads.
const SEND_BUFFER: usize = 64 * 1024;
/// The time that a peer may take to answer a ping.
const PATIENCE: Duration = Duration::from_secs(20);
/// The time that a connection without any request has from its end being announced to its end.
const FAREWELL: Duration = Duration::from_secs(1);
/// The interval at which a quiet peer gets a ping.
const PING: Duration = Duration::from_secs(30);
/// The time that HTTP/1 waits for the next request of a connection. It is longer than clients keep
/// connections in their pools.
const NEXT_REQUEST: Duration = Duration::from_secs(120);
/// The time to wait after the system refused a connection. The process may have run out of files.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// Serves until `stopping` says so. Open requests then have `grace` to finish.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    responder: impl Responder,
    connections: Connections,
    mut stopping: watch::Receiver<bool>,
    grace: Duration,
) {
    let (alive, _) = watch::channel(());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                // A connection above the limit is closed at once.
                let Some(counted) = connections.admit(peer.ip()) else { continue };
                let (tls, responder, stopping, alive) =
                    (tls.clone(), responder.clone(), stopping.clone(), alive.subscribe());
                let connections = connections.clone();
                tokio::spawn(async move {
                    connection(stream, tls, responder, connections, counted, stopping).await;
                    drop(alive);
                });
            }
            Err(error) => {
                connections.not_accepted(&error);
                tokio::time::sleep(EXHAUSTED).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(grace, alive.closed()).await.is_err() && !grace.is_zero() {
        warn!("some requests did not finish in time");
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    responder: impl Responder,
    connections: Connections,
    counted: CountedConnection,
    stopping: watch::Receiver<bool>,
) {
    let accepted = Instant::now();
    // Answers are small, and a caller waits for each.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        return http(stream, accepted, responder, connections, counted, stopping).await;
    };
    let deadline = accepted + connections.limits().first_request;
    match tokio::time::timeout_at(deadline.into(), tls.accept(stream)).await {
        Ok(Ok(stream)) => http(stream, accepted, responder, connections, counted, stopping).await,
        Ok(Err(error)) => debug!(%error, "a handshake failed"),
        Err(_) => connections.closed(Silence::NoRequest),
    }
}

async fn http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    accepted: Instant,
    responder: impl Responder,
    connections: Connections,
    mut counted: CountedConnection,
    mut stopping: watch::Receiver<bool>,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(NEXT_REQUEST).max_buf_size(SEND_BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PATIENCE)
        .max_concurrent_streams(STREAMS)
        .max_send_buf_size(SEND_BUFFER);
    let activity = Activity::new(accepted);
    let stream = TokioIo::new(stream);
    let (active, origin) = (activity.clone(), counted.origin.clone());
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let open = active.begin();
        request.extensions_mut().insert(origin.clone());
        request.extensions_mut().insert(active.authenticated());
        let answering = responder.call(request);
        answering.map(|answer| answer.map(|response| response.map(|body| Body::new(Held::new(body, open)))))
    });
    let mut serving = pin!(builder.serve_connection(stream, service));
    let stopped = async {
        let _ = stopping.wait_for(|stopping| *stopping).await;
    };
    let served = tokio::select! {
        served = serving.as_mut() => Some(served),
        () = stopped => None,
        reason = activity.until_silent(connections.limits(), &mut counted) => {
            connections.closed(reason);
            // A request that arrives just before the peer sees the end is answered.
            serving.as_mut().graceful_shutdown();
            let patience = if reason == Silence::Idle { PATIENCE } else { FAREWELL };
            let _ = tokio::time::timeout(patience, serving.as_mut()).await;
            return;
        }
    };
    let served = match served {
        Some(served) => served,
        None => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        debug!(error, "a connection broke");
    }
}
