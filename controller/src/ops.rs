//! `/healthz`, `/readyz` and `/metrics`.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;

/// The state that is served.
#[derive(Clone)]
pub struct Ops {
    /// The metrics of the process.
    pub metrics: PrometheusHandle,
    /// Metrics that are rendered when they are asked for, in the text format of Prometheus.
    pub more_metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// True when the API server has answered. A replica is ready then, whether it leads or not.
    pub ready: Arc<AtomicBool>,
}

impl fmt::Debug for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ops").field("ready", &self.ready).finish_non_exhaustive()
    }
}

/// Serves until the listener fails.
pub async fn serve(listener: TcpListener, ops: Ops) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(ops);
    axum::serve(listener, router).await
}

async fn ready(State(ops): State<Ops>) -> (StatusCode, &'static str) {
    if ops.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the API server has not answered yet\n")
    }
}

async fn metrics(State(ops): State<Ops>) -> String {
    ops.metrics.run_upkeep();
    format!("{}{}", ops.metrics.render(), (ops.more_metrics)())
}
