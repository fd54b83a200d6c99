//! `kubebid serve`

use crate::commands::local;
use crate::failure::Failure;
use crate::telemetry;
use clap::Args;
use kubebid_engine::server;
use kubebid_engine::server::config::ServeArgs;

/// The default of the log filter. When the database is away, the engine says so in its own words; the driver would
/// add a line for each connection.
pub(crate) const LOGGED: &str = "info,sqlx=warn,sqlx_core=error";

/// Run the auction engine
#[derive(Args)]
#[command(after_help = "\
Examples:
  kubebid serve --admin-token-file admin.token                      on an embedded store, ./kubebid.db
  kubebid serve --store postgres://kubebid@db/kubebid               on PostgreSQL
  kubebid serve --store postgres://kubebid@db/kubebid --standby     takes over when that one is gone
  kubebid serve --store sqlite:trace.db --clock stepped             for replays: AdminService moves the time
  kubebid serve --store sqlite:drill.db --allow-inject              for drills: see `kubebid inject --help`

KUBEBID_LOG says what is logged, as in `info` or `kubebid_engine=debug`.")]
pub(crate) struct Serve {
    #[command(flatten)]
    args: ServeArgs,
    /// Collector of the spans of requests, by OTLP over gRPC, as in http://127.0.0.1:4317; none without. The other
    /// OTEL_EXPORTER_OTLP_… and OTEL_TRACES_SAMPLER variables count too.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,
}

impl Serve {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let collected = telemetry::collect(LOGGED, self.otlp_endpoint.as_deref())?;
        let served = server::serve(&self.args, local::stop_signal()).await;
        collected.finish().await;
        served.map_err(|error| local::unserved(&error))
    }
}
