//! `BidSlot`: one node of a BidNode, from its bid to its end.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One node of a BidNode: one bid, one allocation, one node. Made by the operator; not for hands.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "kubebid.io",
    version = "v1",
    kind = "BidSlot",
    namespaced,
    status = "BidSlotStatus",
    derive = "PartialEq",
    doc = "One node of a BidNode: one bid, one allocation, one node. Made by the operator; not for hands.",
    printcolumn(name = "Instance", type_ = "string", json_path = ".spec.instanceType"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Bid", type_ = "integer", json_path = ".status.bid"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.node"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct BidSlotSpec {
    /// The type of the node.
    pub instance_type: String,
    /// Its region; any where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The slot whose node was under notice when this one was made. If that node stays after all, the emptier of the
    /// two goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// It is to be given up, and why. Never taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseReason>,
}

/// Why a slot is to be given up.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReason {
    /// Its BidNode wants fewer nodes.
    ScaleDown,
    /// Its node was empty for long.
    Empty,
    /// Its node was not ready for long.
    NotReady,
    /// The notice of the node in whose place it was bid for was taken back, or its own was.
    Rescinded,
    /// `maxBid` was cut below what its node costs at least.
    MaxBid,
}

/// How a slot is doing: all that must be known after a crash.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BidSlotStatus {
    /// How far it is.
    #[serde(default)]
    pub phase: SlotPhase,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Why it is there, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it is there, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When its bid was about to be placed: written before it is, with the ceiling, so that a repeat says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bid_time: Option<Time>,
    /// How often a bid was begun; part of the key of the bid.
    #[serde(default)]
    pub attempt: u32,
    /// The ceiling that it bids, in micro-dollars per node-hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_micros: Option<u64>,
    /// The number of its bid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bid: Option<u64>,
    /// The number of its allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<u64>,
    /// The market of its allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub market: Option<String>,
    /// The unit that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Its machine is ended, if it had one.
    #[serde(default)]
    pub machine_ended: bool,
    /// The name of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The UID of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
    /// When its node was first ready with its labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_time: Option<Time>,
    /// When its node ends at the latest, if it is under notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// When the draining of its node began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_time: Option<Time>,
    /// Until when the market does not let its ceiling be lowered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_until: Option<Time>,
    /// Since when the engine does not know its bid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_time: Option<Time>,
    /// The generation of its BidNode whose labels and taints the API server refused for its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_generation: Option<i64>,
    /// Since when its node is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_time: Option<Time>,
    /// What is so, what is waited for, and until when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

impl BidSlotStatus {
    /// Where its node is: the second half of its market's name.
    pub fn region(&self) -> Option<&str> {
        self.market.as_deref()?.split_once('/').map(|(_, region)| region)
    }
}

/// How far a slot is.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlotPhase {
    /// Nothing is bid.
    #[default]
    Pending,
    /// Its bid waits.
    Bidding,
    /// The bid has a unit; no machine is ordered.
    Awarded,
    /// The machine is on its way.
    Provisioning,
    /// The node is there with its labels, and not ready.
    Registered,
    /// The node is ready.
    Ready,
    /// The node is under notice, tainted, and not drained yet.
    Notice,
    /// The node is being emptied.
    Draining,
    /// The node is empty or gone; it is given back.
    Releasing,
    /// Over: given back.
    Released,
    /// Over: `reason` says why.
    Failed,
}

impl SlotPhase {
    /// It is a node of its BidNode, or is to become one.
    pub fn counts(self) -> bool {
        self <= SlotPhase::Ready
    }
}
