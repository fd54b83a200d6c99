//! Metrics of the operator. Their names are part of the interface: docs/metrics.md lists them.

use crate::api::{BidNode, BidNodeStatus};
use kube::ResourceExt as _;
use kubebid_controller::metrics::doubling_buckets;
use metrics::{counter, describe_counter, describe_histogram, histogram};
use metrics_exporter_prometheus::{BuildError, PrometheusHandle};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
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

const WANTED: &str = "kubebid_operator_bidnode_wanted_nodes";
const PENDING: &str = "kubebid_operator_bidnode_pending_bids";
const PRICE: &str = "kubebid_operator_bidnode_price_dollars";
const CEILING: &str = "kubebid_operator_bidnode_ceiling_dollars";
const HOURLY_COST: &str = "kubebid_operator_bidnode_hourly_cost_dollars";
const COST: &str = "kubebid_operator_bidnode_cost_dollars";
const CONDITION: &str = "kubebid_operator_bidnode_condition";
const NODES_FOR_PODS: &str = "kubebid_operator_bidnode_nodes_for_pods_total";

/// The outcome of a node that was bought for pods: the label `outcome` of the metric of these nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A pod was bound to it.
    Used,
    /// It was given up because it was empty, and no pod was ever bound to it.
    Unused,
    /// It ended before a pod was bound to it, for another reason.
    Lost,
}

const OUTCOMES: [(Outcome, &str); 3] =
    [(Outcome::Used, "used"), (Outcome::Unused, "unused"), (Outcome::Lost, "lost")];

/// A gauge of BidNodes: the lines before its series, its name, and its value for a BidNode, if it has one.
type Gauge = (String, &'static str, fn(&OfBidNode) -> Option<f64>);

/// The metrics of a BidNode.
#[derive(Debug, Default)]
struct OfBidNode {
    instance_type: String,
    wanted: Option<u32>,
    status: BidNodeStatus,
    /// The nodes that were bought for pods, by outcome, in the order of [`OUTCOMES`].
    for_pods: [u64; OUTCOMES.len()],
}

/// The metrics of each BidNode, by namespace and name. They are rendered on request, so that a series goes with its object. Their
/// number is bounded: each BidNode has some twenty series.
#[derive(Debug, Default)]
pub struct BidNodeMetrics(Mutex<BTreeMap<(String, String), OfBidNode>>);

impl BidNodeMetrics {
    /// Sets the metrics of a BidNode that its status says, and the number of nodes that it is to have, if that is known.
    pub(crate) fn set(&self, bidnode: &BidNode, wanted: Option<usize>, status: &BidNodeStatus) {
        let mut map = self.map();
        let of_bidnode = map.entry(key(bidnode)).or_default();
        of_bidnode.instance_type.clone_from(&bidnode.spec.instance_type);
        of_bidnode.wanted = wanted.map(|nodes| u32::try_from(nodes).unwrap_or(u32::MAX));
        of_bidnode.status = status.clone();
    }

    /// Counts a node of a BidNode that was bought for pods.
    pub(crate) fn count(&self, bidnode: &BidNode, outcome: Outcome) {
        if let Some(index) = OUTCOMES.iter().position(|(it, _)| *it == outcome) {
            // The slots of a BidNode that is gone may end later.
            if let Some(of_bidnode) = self.map().get_mut(&key(bidnode)) {
                of_bidnode.for_pods[index] += 1;
            }
        }
    }

    /// Removes the series of a BidNode.
    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        self.map().remove(&(namespace.to_owned(), name.to_owned()));
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<(String, String), OfBidNode>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renders the metrics in the text format of Prometheus.
    pub fn render(&self) -> String {
        let gauges: [Gauge; 6] = [
            (
                head(WANTED, "gauge", "Nodes that a BidNode is to have, for minNodes and for pods"),
                WANTED,
                |it| it.wanted.map(f64::from),
            ),
            (head(PENDING, "gauge", "Nodes of a BidNode that are still bid for"), PENDING, |it| {
                Some(f64::from(it.status.pending_bids))
            }),
            (
                head(PRICE, "gauge", "Mean price of the ready nodes of a BidNode, per node-hour"),
                PRICE,
                |it| it.status.average_price,
            ),
            (head(CEILING, "gauge", "Highest ceiling that a BidNode bids, per node-hour"), CEILING, |it| {
                it.status.bid_price
            }),
            (head(HOURLY_COST, "gauge", "What all nodes of a BidNode cost an hour"), HOURLY_COST, |it| {
                Some(it.status.nodes.iter().filter_map(|node| node.price).sum())
            }),
            (head(COST, "gauge", "What all nodes of a BidNode have cost so far"), COST, |it| it.status.cost),
        ];
        let map = self.map();
        let mut text = head(ACTIVE_NODES, "gauge", "Nodes of a BidNode that are ready");
        for ((namespace, name), it) in map.iter() {
            let (kind, active) = (&it.instance_type, it.status.active_nodes);
            text.push_str(&format!(
                "{ACTIVE_NODES}{{name=\"{name}\",namespace=\"{namespace}\",instance_type=\"{kind}\"}} {active}\n"
            ));
        }
        for (head, metric, value) in gauges {
            text.push_str(&head);
            for ((namespace, name), it) in map.iter() {
                if let Some(value) = value(it) {
                    text.push_str(&format!(
                        "{metric}{{name=\"{name}\",namespace=\"{namespace}\"}} {value}\n"
                    ));
                }
            }
        }
        text.push_str(&head(CONDITION, "gauge", "1 if a condition of a BidNode is true, 0 if it is false"));
        for ((namespace, name), it) in map.iter() {
            for condition in it.status.conditions.iter().filter(|condition| condition.status != "Unknown") {
                let (type_, is_true) = (&condition.type_, u8::from(condition.status == "True"));
                text.push_str(&format!(
                    "{CONDITION}{{name=\"{name}\",namespace=\"{namespace}\",type=\"{type_}\"}} {is_true}\n"
                ));
            }
        }
        text.push_str(&head(NODES_FOR_PODS, "counter", "Nodes bought for pods, by what came of them"));
        for ((namespace, name), it) in map.iter() {
            for ((_, outcome), count) in OUTCOMES.iter().zip(it.for_pods) {
                text.push_str(&format!(
                    "{NODES_FOR_PODS}{{name=\"{name}\",namespace=\"{namespace}\",outcome=\"{outcome}\"}} {count}\n"
                ));
            }
        }
        text
    }
}

/// Returns the lines before the series of a metric.
fn head(name: &str, kind: &str, help: &str) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")
}

fn key(bidnode: &BidNode) -> (String, String) {
    (bidnode.namespace().unwrap_or_default(), bidnode.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    use serde_json::json;

    #[test]
    fn the_series_of_a_bidnode_go_with_it() {
        let object = json!({
            "apiVersion": "kubebid.io/v1", "kind": "BidNode", "metadata": {"name": "gpu", "namespace": "default"},
            "spec": {"instanceType": "h100-8x", "maxBid": 3.0},
        });
        let bidnode: BidNode = serde_json::from_value(object).unwrap();
        let condition = |type_: &str, status: &str| {
            let condition = json!({"type": type_, "status": status, "reason": "R", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            serde_json::from_value::<Condition>(condition).unwrap()
        };
        let status = BidNodeStatus {
            active_nodes: 2,
            average_price: Some(1.5),
            conditions: vec![condition("Ready", "False"), condition("CeilingSuffices", "Unknown")],
            ..BidNodeStatus::default()
        };
        let metrics = BidNodeMetrics::default();
        metrics.set(&bidnode, Some(3), &status);
        metrics.count(&bidnode, Outcome::Unused);
        let text = metrics.render();
        let of_gpu = "name=\"gpu\",namespace=\"default\"";
        for line in [
            format!("bidnode_active_nodes{{{of_gpu},instance_type=\"h100-8x\"}} 2\n"),
            format!("kubebid_operator_bidnode_wanted_nodes{{{of_gpu}}} 3\n"),
            format!("kubebid_operator_bidnode_price_dollars{{{of_gpu}}} 1.5\n"),
            format!("kubebid_operator_bidnode_condition{{{of_gpu},type=\"Ready\"}} 0\n"),
            format!("kubebid_operator_bidnode_nodes_for_pods_total{{{of_gpu},outcome=\"unused\"}} 1\n"),
        ] {
            assert!(text.contains(&line), "{line}\n{text}");
        }
        assert!(!text.contains("CeilingSuffices") && !text.contains("bidnode_cost_dollars{"), "{text}");
        metrics.remove("default", "gpu");
        assert!(!metrics.render().contains("gpu"));
    }
}
