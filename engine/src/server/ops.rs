//! Health and metrics, on their own port.

use super::entrance::Entrance;
use crate::metrics;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::borrow::Cow;
use std::sync::OnceLock;
use tracing::warn;

/// Bounds of durations, in seconds.
const SECONDS: [f64; 14] =
    [0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
/// Bounds of counts.
const COUNTS: [f64; 9] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 2048.0, 4096.0, 8192.0];

pub(super) fn router(entrance: Entrance, standby: bool) -> Router {
    let handle = recorder();
    let waiting = if standby { "standby" } else { "starting" };
    let ready = async move |State(entrance): State<Entrance>| ready(&entrance, waiting);
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(async move |State(entrance): State<Entrance>| render(&entrance, handle)))
        .with_state(entrance)
}

/// Whether requests are served.
fn ready(entrance: &Entrance, waiting: &'static str) -> (StatusCode, Cow<'static, str>) {
    match unready(entrance, waiting) {
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n").into()),
        None => (StatusCode::OK, "ok\n".into()),
    }
}

/// Returns why requests are not served, or None if they are.
fn unready(entrance: &Entrance, waiting: &'static str) -> Option<Cow<'static, str>> {
    let Some(api) = entrance.api() else { return Some(waiting.into()) };
    if !api.is_open() {
        return Some("not ready".into());
    }
    if !api.engine().leads() {
        return Some("the lease has lapsed".into());
    }
    api.engine().trouble().map(Cow::from)
}

fn render(entrance: &Entrance, handle: Option<&PrometheusHandle>) -> (StatusCode, String) {
    let Some(handle) = handle else { return (StatusCode::NOT_FOUND, "metrics go elsewhere\n".to_owned()) };
    metrics::leading(entrance.api().is_some_and(|api| api.engine().leads()));
    metrics::ready(unready(entrance, "").is_none());
    let mut of_markets = String::new();
    if let Some(api) = entrance.api() {
        let engine = api.engine();
        let behind = |seq: u64| engine.applied().saturating_sub(seq);
        metrics::behind(behind(engine.projected()), behind(engine.saved()));
        of_markets = metrics::markets::render(&engine.views().markets());
    }
    handle.run_upkeep();
    (StatusCode::OK, handle.render() + &of_markets)
}

/// One for the process; none where somebody else has taken its place.
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
