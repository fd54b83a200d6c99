//! `/healthz`, `/readyz` and `/metrics`.

use crate::metrics::ActiveNodes;
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use std::sync::Arc;
use tokio::net::TcpListener;

/// What is told over HTTP.
#[derive(Clone, Debug)]
pub struct Ops {
    pub metrics: PrometheusHandle,
    pub active_nodes: Arc<ActiveNodes>,
}

/// Answers until the listener fails. It is not begun before the cluster has answered: who answers is ready, whether
/// it leads or not.
pub async fn serve(listener: TcpListener, ops: Ops) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(|| async { "ok\n" }))
        .route("/metrics", get(metrics))
        .with_state(ops);
    axum::serve(listener, router).await
}

async fn metrics(State(ops): State<Ops>) -> String {
    ops.metrics.run_upkeep();
    format!("{}{}", ops.metrics.render(), ops.active_nodes.render())
}
