//! Health and metrics, on a port of their own.

use super::accept;
use super::connections::{ConnectionLimits, Connections};
use super::service_slot::ServiceSlot;
use crate::auth::limits::Defaults;
use crate::runtime::metrics;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::borrow::Cow;
use std::io;
use std::net::TcpListener;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{error, warn};

/// The upper bounds of duration histograms, in seconds.
const SECONDS: [f64; 14] =
    [0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
/// The upper bounds of count histograms.
const COUNTS: [f64; 9] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 2048.0, 4096.0, 8192.0];

/// Serves on its own thread until `stopping` says so, so that probes are answered however busy the other
/// threads are.
pub(super) fn serve(
    listener: TcpListener,
    service_slot: ServiceSlot,
    standby: bool,
    stopping: watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let router = TowerToHyperService::new(router(service_slot, standby));
    let connections = Connections::new("ops", ConnectionLimits::of_ops(), &Defaults::default());
    let serving = move || {
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            accept::serve(listener, None, router, connections, stopping, Duration::ZERO).await;
            Ok::<_, io::Error>(())
        });
        if let Err(error) = served {
            error!(%error, "health and metrics are not served");
        }
    };
    thread::Builder::new().name("kubebid-ops".to_owned()).spawn(serving).map(drop)
}

fn router(service_slot: ServiceSlot, standby: bool) -> Router {
    let handle = recorder();
    let waiting = if standby { "standby" } else { "starting" };
    let ready = async move |State(service_slot): State<ServiceSlot>| ready(&service_slot, waiting);
    // Rendered on another thread: there may be many series, and probes must not wait for them.
    let metrics = async move |State(service_slot): State<ServiceSlot>| {
        let rendered = tokio::task::spawn_blocking(move || render(&service_slot, handle)).await;
        rendered.unwrap_or((StatusCode::INTERNAL_SERVER_ERROR, "a bug of the engine\n".to_owned()))
    };
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(service_slot)
}

/// Returns the answer to a readiness probe.
fn ready(service_slot: &ServiceSlot, waiting: &'static str) -> (StatusCode, Cow<'static, str>) {
    match unready(service_slot, waiting) {
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n").into()),
        None => (StatusCode::OK, "ok\n".into()),
    }
}

/// Returns why requests are not served, or None if they are.
fn unready(service_slot: &ServiceSlot, waiting: &'static str) -> Option<Cow<'static, str>> {
    let Some(api) = service_slot.api() else { return Some(waiting.into()) };
    if !api.is_open() {
        return Some("not ready".into());
    }
    if !api.engine().leads() {
        return Some("the lease has lapsed".into());
    }
    api.engine().trouble().map(Cow::from)
}

fn render(service_slot: &ServiceSlot, handle: Option<&PrometheusHandle>) -> (StatusCode, String) {
    let Some(handle) = handle else { return (StatusCode::NOT_FOUND, "metrics go elsewhere\n".to_owned()) };
    metrics::leading(service_slot.api().is_some_and(|api| api.engine().leads()));
    metrics::ready(unready(service_slot, "").is_none());
    let mut of_markets = String::new();
    if let Some(api) = service_slot.api() {
        let engine = api.engine();
        let behind = |seq: u64| engine.applied().saturating_sub(seq);
        metrics::behind(behind(engine.projected()), behind(engine.saved()));
        of_markets = metrics::markets::render(&engine.views().markets());
    }
    handle.run_upkeep();
    (StatusCode::OK, handle.render() + &of_markets)
}

/// Returns the recorder of the process. None if another one was installed before.
fn recorder() -> Option<&'static PrometheusHandle> {
    static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let made = RECORDER.get_or_init(|| {
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
            .and_then(|builder| {
                builder.set_buckets_for_metric(Matcher::Full(metrics::COMMIT_COMMANDS.to_owned()), &COUNTS)
            });
        match builder.and_then(PrometheusBuilder::install_recorder) {
            Ok(handle) => {
                metrics::describe();
                Some(handle)
            }
            Err(error) => {
                warn!(%error, "no metrics");
                None
            }
        }
    });
    made.as_ref()
}
