//! Logs to standard error, and spans to a collector if one is configured.

use crate::failure::Failure;
use kubebid_engine::runtime::spans;
use opentelemetry::global;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::io::{IsTerminal as _, stderr};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

/// Logs as `KUBEBID_LOG` says.
pub(crate) fn log_to_stderr(default: &str) {
    let logs = fmt().with_env_filter(filter(default)).with_ansi(stderr().is_terminal()).with_writer(stderr);
    // A line that cannot be written would be reported on standard error, and end the thread that logs.
    logs.log_internal_errors(false).init();
}

fn filter(default: &str) -> EnvFilter {
    EnvFilter::try_from_env("KUBEBID_LOG").unwrap_or_else(|_| EnvFilter::new(default))
}

/// The spans that wait to be sent at the end.
#[must_use]
pub(crate) struct Collected(Option<SdkTracerProvider>);

/// Logs as [`log_to_stderr`], and spans of requests to the collector at `endpoint`, by OTLP over gRPC. To be called in
/// the runtime that sends them.
pub(crate) fn collect(default: &str, endpoint: Option<&str>) -> Result<Collected, Failure> {
    // A variable that is set to nothing names nothing.
    let Some(endpoint) = endpoint.filter(|endpoint| !endpoint.is_empty()) else {
        log_to_stderr(default);
        return Ok(Collected(None));
    };
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
    let exporter =
        exporter.map_err(|error| Failure::usage(format!("--otlp-endpoint {endpoint}: {error}")))?;
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_service_name("kubebid").with_attribute(version).build();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let to_collector = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("kubebid"))
        .with_filter(Targets::new().with_target(spans::TARGET, LevelFilter::DEBUG));
    let to_stderr = fmt::layer().with_ansi(stderr().is_terminal()).with_writer(stderr);
    let to_stderr = to_stderr.log_internal_errors(false).with_filter(filter(default));
    tracing_subscriber::registry().with(to_stderr).with(to_collector).init();
    global::set_text_map_propagator(TraceContextPropagator::new());
    Ok(Collected(Some(provider)))
}

impl Collected {
    /// Sends what waits. A collector that is away costs some seconds and the spans, nothing else.
    pub(crate) async fn finish(self) {
        let Some(provider) = self.0 else { return };
        // It blocks until its own thread has sent them by this runtime.
        match tokio::task::spawn_blocking(move || provider.shutdown()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "some spans were not sent"),
            Err(error) => tracing::warn!(%error, "some spans were not sent"),
        }
    }
}
