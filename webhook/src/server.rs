//! The HTTPS server of the webhooks.
//!
//! A server that is told to stop says at `/readyz` that it is not ready, and asks the client of each connection to close it
//! with its next answer. After a while, in which clients go elsewhere, it closes what is left. The API server speaks HTTP/1.1
//! with webhooks and repeats nothing, so a connection that is closed while it sends would cost a request.

use crate::admission::{self, Mutate, Validate};
use crate::authority::{Authority, Readiness};
use crate::conversion::Conversions;
use crate::metrics;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use axum_server::Handle;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use futures_util::FutureExt as _;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use std::io;
use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// The path of the conversions.
const CONVERT: &str = "/convert";
/// The longest body: a list of many objects comes in one request.
const BODY_BYTES_MAX: usize = 100 << 20;
/// The size from which a body is large: other requests do not wait until it is converted, and its memory is counted.
const LARGE_BODY_BYTES: usize = 64 << 10;
/// The size of all large bodies that are read or converted at the same time. Others wait. Each takes about three times its
/// size.
const LARGE_BODIES_KIB: usize = 128 << 10;
/// The time for a request. The API server waits for 30 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The webhooks of a server, by path.
#[derive(Clone, Debug, Default)]
pub struct Webhooks {
    router: Router<Probe>,
}

/// Times of a server that stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// The time in which clients see that it is not ready, and the server goes on as before.
    pub shutdown_delay: Duration,
    /// The time that requests have to finish after that.
    pub drain_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions { shutdown_delay: Duration::from_secs(5), drain_timeout: Duration::from_secs(20) }
    }
}

impl Webhooks {
    /// Returns no webhooks.
    pub fn new() -> Webhooks {
        Webhooks::default()
    }

    /// Adds the conversions, at `/convert`.
    #[must_use]
    pub fn conversions(self, conversions: Conversions) -> Webhooks {
        let convert = async move |memory: Option<Extension<Memory>>, body: Bytes| {
            let conversions = conversions.clone();
            if body.len() < LARGE_BODY_BYTES {
                return answer(conversions.review(&body));
            }
            let convert = move || {
                // Held until the work is done, also if its client has gone.
                let _memory = memory;
                conversions.review(&body)
            };
            match tokio::task::spawn_blocking(convert).await {
                Ok(converted) => answer(converted),
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }
        };
        Webhooks { router: self.router.route(CONVERT, post(convert)) }
    }

    /// Adds a webhook that fills in defaults.
    #[must_use]
    pub fn mutate(self, path: &str, webhook: impl Mutate) -> Webhooks {
        let webhook = Arc::new(webhook);
        let mutate = async move |body: Bytes| answer(admission::mutated(&*webhook, &body));
        Webhooks { router: self.router.route(path, post(mutate)) }
    }

    /// Adds a webhook that warns.
    #[must_use]
    pub fn validate(self, path: &str, webhook: impl Validate) -> Webhooks {
        let webhook = Arc::new(webhook);
        let validate = move |body: Bytes| {
            let webhook = Arc::clone(&webhook);
            async move { answer(admission::validated(&*webhook, &body).await) }
        };
        Webhooks { router: self.router.route(path, post(validate)) }
    }
}

/// Returns the answer of a webhook.
fn answer(answer: Result<Vec<u8>, serde_json::Error>) -> Response {
    match answer {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

/// Counts the request of a webhook. One that panics is an error of the server, which goes on.
async fn count(path: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let response = answered.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response());
    // Clients may invent other paths.
    if let Some(path) = path {
        metrics::request(path.as_str(), response.status().as_u16());
    }
    response
}

/// The state of a server that its probe tells.
#[derive(Clone)]
struct Probe {
    authority: Authority,
    is_stopping: Arc<AtomicBool>,
}

async fn readyz(State(probe): State<Probe>) -> Response {
    let refuse = |reason: &str| (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response();
    if probe.is_stopping.load(Ordering::SeqCst) {
        return refuse("this replica stops");
    }
    match probe.authority.readiness() {
        Readiness::Ready => "ok\n".into_response(),
        Readiness::NotReady(reason) => refuse(&reason),
    }
}

async fn close_while_stopping(State(probe): State<Probe>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if probe.is_stopping.load(Ordering::SeqCst) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The memory that the body of a request has, until the last copy of this is dropped.
#[derive(Clone)]
struct Memory(
    #[expect(dead_code, reason = "it is held, and never looked at")] Arc<Option<OwnedSemaphorePermit>>,
);

/// Answers a request in time, with large bodies only as far as there is memory for them.
async fn limit(State(memory): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    // A body of unknown length may be as long as any.
    let length = length.unwrap_or(BODY_BYTES_MAX);
    if length > BODY_BYTES_MAX {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    }
    let kibibytes =
        if length < LARGE_BODY_BYTES { 0 } else { u32::try_from(length >> 10).unwrap_or(u32::MAX) };
    let answered = async {
        let mut request = request;
        let held = Memory(Arc::new(memory.acquire_many_owned(kibibytes).await.ok()));
        request.extensions_mut().insert(held.clone());
        let response = next.run(request).await;
        drop(held);
        response
    };
    let answered = timeout(REQUEST_TIMEOUT, answered).await;
    answered.unwrap_or_else(|_| StatusCode::SERVICE_UNAVAILABLE.into_response())
}

/// Returns a router whose requests are bound in size, time and memory.
fn limited<S: Clone + Send + Sync + 'static>(router: Router<S>, large_bodies_kib: usize) -> Router<S> {
    let memory = Arc::new(Semaphore::new(large_bodies_kib));
    router.layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).layer(middleware::from_fn_with_state(memory, limit))
}

/// Serves webhooks and keeps the certificate of this replica valid, until `stop` ends and the requests under way are
/// answered.
///
/// # Errors
/// A listener that does not accept.
pub async fn serve(
    listener: TcpListener,
    authority: &Authority,
    webhooks: Webhooks,
    options: ServerOptions,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let probe = Probe { authority: authority.clone(), is_stopping: Arc::default() };
    let router = limited(webhooks.router, LARGE_BODIES_KIB)
        .layer(middleware::from_fn(count))
        .route("/readyz", get(readyz))
        .layer(middleware::from_fn_with_state(probe.clone(), close_while_stopping))
        .with_state(probe.clone());
    metrics::describe();
    listener.set_nonblocking(true)?;
    let handle = Handle::new();
    // The API server asks for one object after the other: no answer may wait until the one before is acknowledged.
    let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(authority.server_config()))
        .acceptor(NoDelayAcceptor::new());
    let server = axum_server::from_tcp(listener)?.acceptor(acceptor).handle(handle.clone());
    let server = async {
        // A connection that comes before waits in the backlog of the listener: without a certificate its handshake would be denied.
        authority.certified().await;
        server.serve(router.into_make_service()).await
    };
    let stopping = async {
        stop.await;
        probe.is_stopping.store(true, Ordering::SeqCst);
        sleep(options.shutdown_delay).await;
        handle.graceful_shutdown(Some(options.drain_timeout));
        std::future::pending().await
    };
    tokio::select! {
        served = server => served,
        () = authority.run() => Ok(()),
        () = stopping => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::post as routing_post;
    use std::sync::atomic::AtomicUsize;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    /// Requests that a handler has in hand.
    #[derive(Debug, Default)]
    struct Load {
        under_way: AtomicUsize,
        most: AtomicUsize,
    }

    async fn post(address: std::net::SocketAddr, length: usize) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head =
            format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'x'; length]).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn large_bodies_wait_for_memory_and_small_ones_do_not() {
        let load = Arc::new(Load::default());
        let small = Arc::new(tokio::sync::Notify::new());
        let handler = {
            let (load, small) = (Arc::clone(&load), Arc::clone(&small));
            async move |body: Bytes| {
                if body.len() < LARGE_BODY_BYTES {
                    small.notify_waiters();
                    return;
                }
                let under_way = load.under_way.fetch_add(1, Ordering::SeqCst) + 1;
                load.most.fetch_max(under_way, Ordering::SeqCst);
                // The others have their chance, and a small one goes ahead.
                let overtaken = small.notified();
                overtaken.await;
                load.under_way.fetch_sub(1, Ordering::SeqCst);
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // There is memory for two.
        let router = limited(Router::new().route("/", routing_post(handler)), 256);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let large: Vec<_> = (0..6).map(|_| tokio::spawn(post(address, 100 << 10))).collect();
        let mut answers = Vec::new();
        for request in large {
            while !request.is_finished() {
                assert!(post(address, 1).await.starts_with("HTTP/1.1 200 "));
            }
            answers.push(request.await.unwrap());
        }
        assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200 ")), "{answers:?}");
        assert!(load.most.load(Ordering::SeqCst) <= 2, "{load:?}");
    }

    #[tokio::test]
    async fn a_webhook_that_panics_answers_500_and_the_server_goes_on() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let handler = async |body: Bytes| assert_ne!(body.len(), 1, "a test asked for it");
        let router = Router::new().route("/", routing_post(handler)).layer(middleware::from_fn(count));
        tokio::spawn(async move { axum::serve(listener, router).await });
        assert!(post(address, 1).await.starts_with("HTTP/1.1 500 "));
        assert!(post(address, 2).await.starts_with("HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_refused() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = limited(Router::new().route("/", routing_post(async |_: Bytes| {})), 256 << 10);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let mut stream = TcpStream::connect(address).await.unwrap();
        let length = BODY_BYTES_MAX + 1;
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413");
    }
}
