//! The HTTPS server of the webhooks.
//!
//! A server that is told to stop says at `/readyz` that it is not ready, and asks the client of each connection to close it
//! with its next answer. After a while, in which clients go elsewhere, it closes what is left. The API server speaks HTTP/1.1
//! with webhooks and repeats nothing, so a connection that is closed while it sends would cost a request.

use crate::admission::{self, Mutate, Validate};
use crate::authority::Authority;
use crate::conversion::Conversions;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// The longest body: a list of many objects comes in one request.
const BODY: usize = 100 << 20;
/// The size of a body from which other requests should not wait until it is converted.
const LARGE: usize = 64 << 10;

/// The webhooks of a server, by path.
#[derive(Clone, Debug, Default)]
pub struct Webhooks {
    router: Router<Probe>,
}

/// Times of a server that stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// The time in which clients see that it is not ready.
    pub leave: Duration,
    /// The time that requests have to finish after that.
    pub drain: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions { leave: Duration::from_secs(5), drain: Duration::from_secs(20) }
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
        let convert = async move |body: Bytes| {
            let conversions = conversions.clone();
            if body.len() < LARGE {
                return answer(conversions.review(&body));
            }
            let converted = tokio::task::spawn_blocking(move || conversions.review(&body)).await;
            converted.map_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response(), answer)
        };
        Webhooks { router: self.router.route("/convert", post(convert)) }
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

fn answer(answer: Result<Vec<u8>, serde_json::Error>) -> Response {
    match answer {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

#[derive(Clone)]
struct Probe {
    authority: Authority,
    stops: Arc<AtomicBool>,
}

async fn readyz(State(probe): State<Probe>) -> Response {
    if probe.stops.load(Ordering::SeqCst) {
        (StatusCode::SERVICE_UNAVAILABLE, "stops\n").into_response()
    } else if probe.authority.is_ready() {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "clients do not trust this replica's certificate yet\n")
            .into_response()
    }
}

async fn close_if_it_stops(State(probe): State<Probe>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if probe.stops.load(Ordering::SeqCst) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
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
    let probe = Probe { authority: authority.clone(), stops: Arc::default() };
    let router = webhooks
        .router
        .route("/readyz", get(readyz))
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(probe.clone(), close_if_it_stops))
        .with_state(probe.clone());
    listener.set_nonblocking(true)?;
    let handle = Handle::new();
    let server =
        axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(authority.server_config()))?;
    let server = server.handle(handle.clone()).serve(router.into_make_service());
    let stopping = async {
        stop.await;
        probe.stops.store(true, Ordering::SeqCst);
        sleep(options.leave).await;
        handle.graceful_shutdown(Some(options.drain));
        std::future::pending().await
    };
    tokio::select! {
        served = server => served,
        () = authority.run() => Ok(()),
        () = stopping => Ok(()),
    }
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
