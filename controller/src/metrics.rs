//! Metrics of the library, and the recorder of the process.

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use std::sync::OnceLock;
use std::time::Duration;

const RECONCILES: &str = "reconcile_total";
const RECONCILE_SECONDS: &str = "reconcile_duration_seconds";
const DEFERRED: &str = "reconcile_deferred_total";
const API_REQUESTS: &str = "api_requests_total";
const EXTERNAL_CALLS: &str = "external_calls_total";
const EXTERNAL_OBJECTS: &str = "external_objects";
const WITHHELD: &str = "dry_run_withheld_total";
const UNREADABLE: &str = "unreadable_objects";
const LEADER: &str = "leader";

/// The first word of the names of the process, as in `kubebid_operator`.
static PREFIX: OnceLock<&'static str> = OnceLock::new();

/// Collects metrics from this call on; once in a process. `prefix` is the first word of all names, and `buckets` are the
/// upper bounds of histograms by their full names.
///
/// # Errors
/// An empty list of buckets.
pub fn install(prefix: &'static str, buckets: &[(String, Vec<f64>)]) -> Result<PrometheusHandle, BuildError> {
    let _ = PREFIX.set(prefix);
    let mut builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(name(RECONCILE_SECONDS)), &doubling_buckets(10))?;
    for (name, buckets) in buckets {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.clone()), buckets)?;
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    // If something else collects already, nothing is collected twice.
    let _ = metrics::set_global_recorder(recorder);
    describe_counter!(name(RECONCILES), "Passes over an object, by controller and result");
    describe_histogram!(name(RECONCILE_SECONDS), "Duration of a pass over an object");
    describe_counter!(name(DEFERRED), "Passes that came too early, by controller and reason");
    describe_counter!(
        name(API_REQUESTS),
        "Requests to the API server, by method and resource; a watch is one"
    );
    describe_counter!(name(WITHHELD), "Writes that --dry-run sent with dryRun=All, by controller");
    describe_counter!(
        name(EXTERNAL_CALLS),
        "Calls to services outside the cluster, by controller, call and outcome"
    );
    describe_gauge!(
        name(EXTERNAL_OBJECTS),
        "Objects that stand for something outside the cluster, by controller and state"
    );
    describe_gauge!(name(UNREADABLE), "Objects that the program cannot read, by resource");
    describe_gauge!(name(LEADER), "1 while this replica leads");
    leads(false);
    Ok(handle)
}

/// Returns so many upper bounds in seconds, from 10 ms on, each twice the one before.
pub fn doubling_buckets(count: u32) -> Vec<f64> {
    (0..count).map(|power| 0.01 * f64::from(1_u32 << power)).collect()
}

/// Returns the full name of a metric of the library, with the first word of the process.
pub fn name(metric: &str) -> String {
    format!("{}_{metric}", PREFIX.get().unwrap_or(&"controller"))
}

pub(crate) fn reconciled(controller: &'static str, result: &'static str, took: Duration) {
    counter!(name(RECONCILES), "controller" => controller, "result" => result).increment(1);
    histogram!(name(RECONCILE_SECONDS), "controller" => controller).record(took.as_secs_f64());
}

pub(crate) fn deferred(controller: &'static str, why: &'static str) {
    counter!(name(DEFERRED), "controller" => controller, "why" => why).increment(1);
}

pub(crate) fn withheld(controller: &'static str) {
    counter!(name(WITHHELD), "controller" => controller).increment(1);
}

/// Sets the number of objects of a resource that the program cannot read.
pub(crate) fn unreadable_objects(resource: &str, count: usize) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    gauge!(name(UNREADABLE), "resource" => resource.to_owned()).set(f64::from(count));
}

pub(crate) fn leads(leads: bool) {
    gauge!(name(LEADER)).set(if leads { 1.0 } else { 0.0 });
}

/// Counts a request to the API server.
pub fn api_request<B>(request: &http::Request<B>) {
    let (method, resource) = (request.method().to_string(), resource(request.uri().path()));
    counter!(name(API_REQUESTS), "method" => method, "resource" => resource).increment(1);
}

/// Returns the resource of a path of the API server, as in `pods/eviction`.
fn resource(path: &str) -> String {
    let mut parts = path.trim_start_matches('/').split('/');
    // api/VERSION, or apis/GROUP/VERSION.
    let group = if parts.next() == Some("apis") { 2 } else { 1 };
    let mut parts: Vec<_> = parts.skip(group).collect();
    if parts.first() == Some(&"namespaces") && parts.len() > 2 {
        parts.drain(..2);
    }
    match parts[..] {
        [] => "none".to_owned(),
        [resource] | [resource, _] => resource.to_owned(),
        [resource, _, sub, ..] => format!("{resource}/{sub}"),
    }
}

pub(crate) fn external_call(controller: &'static str, call: &'static str, outcome: &'static str) {
    counter!(name(EXTERNAL_CALLS), "controller" => controller, "call" => call, "outcome" => outcome)
        .increment(1);
}

/// Adds to the number of objects in a state.
pub(crate) fn external_objects(controller: &'static str, state: &'static str, more: f64) {
    gauge!(name(EXTERNAL_OBJECTS), "controller" => controller, "state" => state).increment(more);
}

#[cfg(test)]
mod tests {
    use super::resource;

    #[test]
    fn a_path_names_a_resource() {
        assert_eq!(resource("/api/v1/nodes"), "nodes");
        assert_eq!(resource("/api/v1/nodes/gpu-0"), "nodes");
        assert_eq!(resource("/api/v1/namespaces/kube-system"), "namespaces");
        assert_eq!(resource("/api/v1/namespaces/a/pods/p/eviction"), "pods/eviction");
        assert_eq!(resource("/apis/example.com/v1/widgets"), "widgets");
        assert_eq!(resource("/apis/example.com/v1/namespaces/a/widgets/s/status"), "widgets/status");
        assert_eq!(resource("/version"), "none");
    }
}
