//! Metrics of the operator. Their names are part of the interface: docs/metrics.md lists them.

use crate::api::BidNode;
use kube::ResourceExt as _;
use kubebid_controller::metrics::doubling_buckets;
use metrics::{counter, describe_counter, describe_histogram, histogram};
use metrics_exporter_prometheus::{BuildError, PrometheusHandle};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const RECONCILES: &str = "bidnode_reconcile_total";
const RECONCILE_SECONDS: &str = "bidnode_reconcile_duration_seconds";
const ACTIVE_NODES: &str = "bidnode_active_nodes";
const STEPS: &str = "kubebid_operator_slot_steps_total";
const NOTICES: &str = "kubebid_operator_notices_total";
const PODS_MOVED: &str = "kubebid_operator_pods_moved_total";
const TAINT_SECONDS: &str = "kubebid_operator_notice_to_taint_seconds";
const DRAIN_SECONDS: &str = "kubebid_operator_notice_to_drained_seconds";

/// The values of the label `answer` of the metric of notices.
pub(crate) const RAISED: &str = "raised";
pub(crate) const LET_GO: &str = "let_go";
/// The values of the label `how` of the metric of pods.
pub(crate) const EVICTED: &str = "evicted";
pub(crate) const REFUSED: &str = "refused";
pub(crate) const DELETED: &str = "deleted";

/// Installs the recorder of the process, and returns the handle that renders its metrics.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    // A notice may take minutes.
    let buckets = [(RECONCILE_SECONDS, 10), (TAINT_SECONDS, 16), (DRAIN_SECONDS, 16)];
    let buckets = buckets.map(|(name, count)| (name.to_owned(), doubling_buckets(count)));
    let handle = kubebid_controller::metrics::install("kubebid_operator", &buckets)?;
    describe_counter!(RECONCILES, "Looks at an object, by what came of it");
    describe_histogram!(RECONCILE_SECONDS, "How long a look at an object takes");
    describe_counter!(STEPS, "Steps of slots, by kind");
    describe_counter!(NOTICES, "Pre-emption notices, by what the strategy answered");
    describe_counter!(PODS_MOVED, "Pods made to leave a node, by how");
    describe_histogram!(TAINT_SECONDS, "From a notice to the taint on its node");
    describe_histogram!(DRAIN_SECONDS, "From a notice to the last pod's leaving");
    begin();
    Ok(handle)
}

/// Creates the series of rare events at 0: a rate needs a first value.
fn begin() {
    for answer in [RAISED, LET_GO] {
        counter!(NOTICES, "answer" => answer).increment(0);
    }
    for how in [EVICTED, REFUSED, DELETED] {
        counter!(PODS_MOVED, "how" => how).increment(0);
    }
    let _ = (histogram!(TAINT_SECONDS), histogram!(DRAIN_SECONDS));
}

/// Counts a pass over a BidNode or a slot. These two metrics are as old as the operator; the library has its own by
/// controller.
pub fn reconciled(controller: &'static str, result: &'static str, took: Duration) {
    if !matches!(controller, "bidnodes" | "slots") {
        return;
    }
    let result = match result {
        "conflict" => "stale",
        "not_leader" => "not_leading",
        result => result,
    };
    counter!(RECONCILES, "result" => result).increment(1);
    histogram!(RECONCILE_SECONDS).record(took.as_secs_f64());
}

/// Counts a step of a slot.
pub(crate) fn stepped(step: &'static str) {
    counter!(STEPS, "step" => step).increment(1);
}

/// Counts the answer to a notice.
pub(crate) fn noticed(answer: &'static str) {
    counter!(NOTICES, "answer" => answer).increment(1);
}

/// Counts a pod that was made to leave a node.
pub(crate) fn moved_pod(how: &'static str) {
    counter!(PODS_MOVED, "how" => how).increment(1);
}

/// Records the time from a notice to the taint.
pub(crate) fn tainted(after: Duration) {
    histogram!(TAINT_SECONDS).record(after.as_secs_f64());
}

/// Records the time from a notice to the end of the drain.
pub(crate) fn drained(after: Duration) {
    histogram!(DRAIN_SECONDS).record(after.as_secs_f64());
}

/// The number of active nodes of each BidNode. It is rendered on request, so that a series goes with its object.
#[derive(Debug, Default)]
pub struct ActiveNodes(Mutex<BTreeMap<(String, String), (String, u32)>>);

impl ActiveNodes {
    /// Sets the number of active nodes of a BidNode.
    pub(crate) fn set(&self, bidnode: &BidNode, active: u32) {
        let value = (bidnode.spec.instance_type.clone(), active);
        self.map().insert((bidnode.namespace().unwrap_or_default(), bidnode.name_any()), value);
    }

    /// Removes the series of a BidNode.
    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        self.map().remove(&(namespace.to_owned(), name.to_owned()));
    }

    fn map(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), (String, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renders the metric in the text format of Prometheus.
    pub fn render(&self) -> String {
        let mut text =
            format!("# HELP {ACTIVE_NODES} Nodes of a BidNode that are ready\n# TYPE {ACTIVE_NODES} gauge\n");
        for ((namespace, name), (instance_type, active)) in self.map().iter() {
            text.push_str(&format!(
                "{ACTIVE_NODES}{{name=\"{name}\",namespace=\"{namespace}\",instance_type=\"{instance_type}\"}} {active}\n"
            ));
        }
        text
    }
}
