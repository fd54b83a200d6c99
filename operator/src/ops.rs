//! HTTP endpoints for operations: `/healthz`, `/readyz` and `/metrics`.

use crate::metrics::ActiveNodes;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;

/// The state that the endpoints show.
#[derive(Clone, Debug)]
pub struct Ops {
    /// The metrics of the process.
    pub metrics: PrometheusHandle,
    /// The metric of the active nodes.
    pub active_nodes: Arc<ActiveNodes>,
    /// True after the cluster has answered. A replica is ready then, whether it is the leader or not.
    pub ready: Arc<AtomicBool>,
}

/// Serves the endpoints until the listener fails.
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
        (StatusCode::SERVICE_UNAVAILABLE, "the cluster has not answered yet\n")
    }
}

async fn metrics(State(ops): State<Ops>) -> String {
    ops.metrics.run_upkeep();
    format!("{}{}", ops.metrics.render(), ops.active_nodes.render())
}
