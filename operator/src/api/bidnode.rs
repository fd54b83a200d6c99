//! `BidNode`: a number of nodes of an instance type, up to a price.

use super::Disruption;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use kubebid_strategy::Strategy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// Pattern of the keys of labels and taints that Kubernetes accepts. The part before the slash has at most 253 characters.
pub(super) const QUALIFIED_NAME: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
/// Pattern of the values of labels and taints that Kubernetes accepts.
pub(super) const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";

pub(super) fn label_value_schema() -> serde_json::Value {
    serde_json::json!({"type": "string", "maxLength": 63, "pattern": LABEL_VALUE})
}

/// Nodes of an instance type, bid for at the KubeBid auction.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "kubebid.io",
    version = "v1",
    kind = "BidNode",
    namespaced,
    shortname = "bn",
    status = "BidNodeStatus",
    derive = "PartialEq",
    doc = "Nodes of an instance type, bid for at the KubeBid auction.",
    scale(
        spec_replicas_path = ".spec.minNodes",
        status_replicas_path = ".status.activeNodes",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Instance", type_ = "string", json_path = ".spec.instanceType"),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        json_path = ".status.activeNodes",
        description = "Nodes that are ready"
    ),
    printcolumn(
        name = "Price",
        type_ = "number",
        json_path = ".status.averagePrice",
        description = "Mean price of the nodes per node-hour"
    ),
    printcolumn(
        name = "Bid",
        type_ = "number",
        json_path = ".status.bidPrice",
        description = "The highest ceiling that is bid, per node-hour"
    ),
    printcolumn(
        name = "Cost",
        type_ = "number",
        json_path = ".status.cost",
        description = "What all its nodes have cost so far"
    ),
    printcolumn(name = "Currency", type_ = "string", json_path = ".status.currency"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 52")
        .message("the name must have at most 52 characters: the names of nodes begin with it"),
    validation = Rule::new("!self.spec.gang || self.metadata.name.size() <= 42")
        .message("the name of a gang must have at most 42 characters: the names of its nodes have the number of an allocation too")
)]
#[x_kube(
    validation = Rule::new(
        "!has(self.maxHourlyCost) || double(self.minNodes) * self.maxBid <= self.maxHourlyCost"
    ).message("minNodes nodes at maxBid must cost at most maxHourlyCost").field_path(".maxHourlyCost"),
    validation = Rule::new("self.minNodes <= self.maxNodes")
        .message("minNodes must be at most maxNodes").field_path(".minNodes"),
    validation = Rule::new("self.instanceType == oldSelf.instanceType")
        .message("instanceType cannot be changed: make another BidNode").field_path(".instanceType"),
    validation = Rule::new(
        "has(self.region) == has(oldSelf.region) && (!has(self.region) || self.region == oldSelf.region)"
    ).message("region cannot be changed: make another BidNode").field_path(".region"),
    validation = Rule::new("!self.gang || self.minNodes >= 2")
        .message("a gang has two nodes or more: set minNodes to their number").field_path(".minNodes"),
    validation = Rule::new("!self.gang || self.minNodes == self.maxNodes")
        .message("a gang has all of its nodes or none: set maxNodes to minNodes").field_path(".maxNodes"),
    validation = Rule::new("!self.gang || self.minRequestedGpus == 0")
        .message("a gang is bid for whatever pods request: leave minRequestedGpus out").field_path(".minRequestedGpus"),
    validation = Rule::new("self.gang == oldSelf.gang")
        .message("gang cannot be changed: make another BidNode").field_path(".gang"),
    validation = Rule::new("!oldSelf.gang || self.minNodes == oldSelf.minNodes")
        .message("the number of nodes of a gang cannot be changed: make another BidNode").field_path(".minNodes"),
)]
#[serde(rename_all = "camelCase")]
pub struct BidNodeSpec {
    /// The type of the nodes.
    pub instance_type: String,
    /// The region of the nodes; absent for any region that has the type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), extend("pattern" = LABEL_VALUE))]
    pub region: Option<String>,
    /// The highest price to pay, in USD per node-hour.
    #[serde(serialize_with = "number")]
    #[schemars(range(min = 0.01, max = 1_000_000.0))]
    // For a whole number the API server compares with the minimum cut to 0.
    #[x_kube(validation = Rule::new("self >= 0.01").message("maxBid must be at least 0.01"))]
    pub max_bid: f64,
    /// The number of nodes to have always.
    #[serde(default = "default_min_nodes")]
    #[schemars(range(min = 0, max = 1000))]
    pub min_nodes: u32,
    /// The number of nodes to have at most, if pods need them.
    #[serde(default = "default_max_nodes")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_nodes: u32,
    /// The number of GPUs that the pods for a node must request together, so that the node is bid for; 0 for any number. It
    /// applies to nodes beyond `minNodes`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub min_requested_gpus: u32,
    /// The most that all nodes together may cost, in USD per hour: there are never more nodes than it divided by `maxBid`.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "optional_number")]
    #[schemars(range(min = 0.01, max = 1_000_000.0))]
    #[x_kube(validation = Rule::new("self >= 0.01").message("maxHourlyCost must be at least 0.01"))]
    pub max_hourly_cost: Option<f64>,
    /// The place among BidNodes that a pod fits: the one with the highest weight bids for it, then the one with the lowest
    /// expected price.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 100))]
    pub weight: u32,
    /// The bound on nodes that the operator gives up by its own decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<Disruption>,
    /// True for nodes that are of use only together, as for a job that runs on all of them: either all `minNodes` nodes are had,
    /// in one market at first, or none. `maxNodes` is the same number. It cannot be changed.
    #[serde(default)]
    pub gang: bool,
    /// The trade-off between price and interruptions.
    #[serde(default)]
    pub bid_strategy: BidStrategy,
    /// The labels of the nodes. A node has them before any pod is bound to it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = label_value_schema()))]
    #[x_kube(
        validation = Rule::new(
            r"self.all(key, !key.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|kubebid[.]io)/'))"
        ).message("labels of kubernetes.io, k8s.io, kubebid.io and their subdomains are reserved"),
        validation = Rule::new(format!(
            "self.all(key, key.matches('{QUALIFIED_NAME}') && key.indexOf('/') <= 253)"
        )).message("a label's key is a name of at most 63 letters, digits, '-', '_' and '.', after a DNS name and a '/' or not")
    )]
    pub node_selector: BTreeMap<String, String>,
    /// The taints of the nodes. A node has them before any pod is bound to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["key", "effect"]
    ))]
    pub taints: Vec<NodeTaint>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
pub(super) fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn default_min_nodes() -> u32 {
    1
}

fn default_max_nodes() -> u32 {
    10
}

/// The trade-off between price and interruptions: the strategies of `kubebid-strategy`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum BidStrategy {
    /// Bids the median price of the last 48 hours (65 % of the reference price); keeps a node under notice for up to 90 % of the reference price.
    CostOptimized,
    /// Bids 90 % of the reference price; keeps a node under notice for up to 120 % of it.
    #[default]
    Balanced,
    /// Bids 120 % of the reference price; keeps a node under notice for up to `maxBid`.
    AvailabilityOptimized,
}

impl From<BidStrategy> for Strategy {
    fn from(strategy: BidStrategy) -> Self {
        match strategy {
            BidStrategy::CostOptimized => Strategy::CostOptimized,
            BidStrategy::Balanced => Strategy::Balanced,
            BidStrategy::AvailabilityOptimized => Strategy::AvailabilityOptimized,
        }
    }
}

/// A taint of the nodes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NodeTaint {
    /// The key of the taint.
    #[schemars(length(min = 1, max = 317))]
    #[x_kube(
        validation = Rule::new(
            r"!self.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|kubebid[.]io)/')"
        ).message("taints of kubernetes.io, k8s.io, kubebid.io and their subdomains are reserved"),
        validation = Rule::new(format!("self.matches('{QUALIFIED_NAME}') && self.indexOf('/') <= 253"))
            .message("a taint's key is a name of at most 63 letters, digits, '-', '_' and '.', after a DNS name and a '/' or not")
    )]
    pub key: String,
    /// The value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), extend("pattern" = LABEL_VALUE))]
    pub value: Option<String>,
    /// The effect on pods that do not tolerate the taint.
    pub effect: TaintEffect,
}

/// The effect of a taint on pods that do not tolerate it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintEffect {
    /// The pods are not bound to the node.
    NoSchedule,
    /// The pods are bound to the node only if no other node is left.
    PreferNoSchedule,
    /// The pods are not bound to the node, and are evicted from it.
    NoExecute,
}

impl TaintEffect {
    /// Returns the effect as Kubernetes spells it.
    pub fn name(self) -> &'static str {
        match self {
            TaintEffect::NoSchedule => "NoSchedule",
            TaintEffect::PreferNoSchedule => "PreferNoSchedule",
            TaintEffect::NoExecute => "NoExecute",
        }
    }
}

/// The observed state of a BidNode.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BidNodeStatus {
    /// The state in one word.
    #[serde(default)]
    pub phase: BidNodePhase,
    /// The number of nodes that are ready and stay.
    #[serde(default)]
    pub active_nodes: u32,
    /// The number of nodes that are still bid for.
    #[serde(default)]
    pub pending_bids: u32,
    /// The mean price of the nodes, in USD per node-hour.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "optional_number")]
    pub average_price: Option<f64>,
    /// The highest ceiling that is bid, in USD per node-hour.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "optional_number")]
    pub bid_price: Option<f64>,
    /// The cost of all nodes so far, in USD, also of nodes that are gone. It is written at least every ten minutes while it
    /// grows.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "optional_number")]
    pub cost: Option<f64>,
    /// The currency of all prices here: `USD`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// The time at which a bid was last placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_bid_time: Option<Time>,
    /// The nodes, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub nodes: Vec<NodeStatus>,
    /// The conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The `minNodes` that nodes were last given up for. If `minNodes` is lowered, as many nodes are given up at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_min_nodes: Option<u32>,
    /// The pods for which no further node is bid for: one came and did not help them. They stay here until they have a node, are
    /// gone, or the specification changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = UNHELPED_PODS_MAX), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["uid"]))]
    pub unhelped_pods: Vec<UnhelpedPod>,
    /// The nodes that were bought for pods in a row and that no pod has used; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused_nodes: Option<UnusedNodes>,
    /// The labels of the nodes, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

/// The number of unhelped pods that a status holds. While there are as many, no node is bid for pods.
pub const UNHELPED_PODS_MAX: usize = 100;

/// A pod for which no further node is bid for.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct UnhelpedPod {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub name: String,
    /// The UID of the pod.
    pub uid: String,
    /// The generation of the BidNode whose node did not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The reason, in a clause.
    pub message: String,
}

/// Nodes that were bought for pods, one after the other, and that no pod has used.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct UnusedNodes {
    /// The number of the nodes.
    pub count: u32,
    /// The time at which the last of them was given up.
    pub last_time: Time,
}

/// The state of a BidNode in one word.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BidNodePhase {
    /// Fewer than `minNodes` are ready, and nothing is bid for the others.
    #[default]
    Pending,
    /// Fewer than `minNodes` are ready, and some are still bid for.
    Bidding,
    /// Fewer than `minNodes` are ready; none is bid for any more, and some are on their way.
    Starting,
    /// Enough nodes are ready: `minNodes` or more.
    Running,
    /// Fewer than `minNodes` are ready; the others exist, and were ready before.
    NotReady,
    /// It has nothing and wants nothing: `minNodes` is 0 and no pod needs a node.
    Idle,
    /// It is being deleted: bids are cancelled and nodes given back.
    Releasing,
}

/// One node of a BidNode.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// The name of the node, or of its slot if there is no node yet.
    pub name: String,
    /// Its region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Its instance type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Its price, in USD per node-hour.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "optional_number")]
    pub price: Option<f64>,
    /// The phase of its slot.
    pub state: super::SlotPhase,
    /// The time at which it ends at the latest, if it is under notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
}

/// Converts dollars to micro-dollars, rounded to the nearest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within 0 and 10^12 by the schema"
)]
pub fn micros(usd: f64) -> u64 {
    (usd * 1e6).round().clamp(0.0, 1e15) as u64
}

/// Converts micro-dollars to dollars, for people and for the numbers of a status.
#[expect(clippy::cast_precision_loss, reason = "prices are far below 2^53")]
pub fn usd(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Writes a number as the API server does: a whole number has no point. An object of it is then equal to what is made of it.
fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    #[expect(clippy::cast_possible_truncation, reason = "within the whole numbers that an f64 holds")]
    let whole = *value as i64;
    #[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "it is about this very number")]
    let is_whole = value.abs() < 1e15 && whole as f64 == *value;
    if is_whole { serializer.serialize_i64(whole) } else { serializer.serialize_f64(*value) }
}

fn optional_number<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => number(value, serializer),
        None => serializer.serialize_none(),
    }
}
