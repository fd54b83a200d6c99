//! `BidSlot`: one node of a BidNode, from its bid to its end.

use super::{LABEL_NAMESPACE, LABEL_SLOT, LABEL_SLOT_UID};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One node of a BidNode: one bid, one allocation, one node. Created by the operator; not meant to be written by people.
///
/// A gang has one bid for all of its nodes. Its *gang slot* has the bid and no node. Each *member* has one node, and no bid of
/// its own.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "kubebid.io",
    version = "v1",
    kind = "BidSlot",
    namespaced,
    status = "BidSlotStatus",
    derive = "PartialEq",
    doc = "One node of a BidNode: one bid, one allocation, one node. Created by the operator; not meant to be written by people.",
    printcolumn(name = "Instance", type_ = "string", json_path = ".spec.instanceType"),
    printcolumn(name = "Market", type_ = "string", json_path = ".status.market", priority = 1),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Bid", type_ = "integer", json_path = ".status.bid"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.node"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct BidSlotSpec {
    /// The first type that was bid for when the slot was created. It is the type of the node if `instanceTypes` is absent.
    pub instance_type: String,
    /// The first region that was bid in when the slot was created. It is the region of the node if `instanceTypes` is absent;
    /// absent for any region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The types of which the node is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instance_types: Vec<String>,
    /// The regions of which the node is in one; absent for any region. It counts together with `instanceTypes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
    /// The slot whose node was under notice when this slot was created. If that node stays after all, the emptier of the two
    /// is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// True if the slot was created because pods need a node, beyond `minNodes` of its BidNode.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_pods: bool,
    /// The reason why the slot is to be given up. It is never removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseReason>,
    /// The number of nodes of a gang, if this is its gang slot: it has the bid for all of them, and no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang_nodes: Option<u32>,
    /// The node of a gang that the slot is for, if it is a member: it has no bid of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<GangMember>,
}

/// One node of a gang.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub struct GangMember {
    /// The number of the bid of the gang.
    pub bid: u64,
    /// The number of the allocation.
    pub allocation: u64,
}

/// The reason why a slot is to be given up.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReason {
    /// Its BidNode wants fewer nodes.
    ScaleDown,
    /// Its node was empty for too long.
    Empty,
    /// Its node was not ready for too long.
    NotReady,
    /// Its own notice was rescinded, or the notice of the node that it replaces.
    Rescinded,
    /// `maxBid` was lowered below the reserve of its unit.
    MaxBid,
    /// Its gang lacks a node, and gives up the others.
    Regroup,
}

/// The observed state of a slot: all that the operator must know after a crash.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BidSlotStatus {
    /// The phase of the slot.
    #[serde(default)]
    pub phase: SlotPhase,
    /// The time at which the slot reached its phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The reason for the phase, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason for the phase, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The time at which its bid was begun. It is written with the ceiling before the bid is placed, so that a repeat after a
    /// crash is the same bid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bid_time: Option<Time>,
    /// The number of times that a bid was begun. It is part of the key of the bid.
    #[serde(default)]
    pub attempt: u32,
    /// The ceiling of its bid, in micro-dollars per node-hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_micros: Option<u64>,
    /// The markets that its bid names, as in `h100-8x/eu-west`. An instance type alone stands for all its markets, also those
    /// that open later. It is written before the bid is placed. Absent for the first type and region of the slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bid_markets: Vec<String>,
    /// The number of its bid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bid: Option<u64>,
    /// The number of the last bid that was replaced by one that names more markets. A search for a bid ignores it and those
    /// before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_bid: Option<u64>,
    /// The number of its allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<u64>,
    /// The market of its allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub market: Option<String>,
    /// The unit that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// True if its machine is ended, or if it had none.
    #[serde(default)]
    pub machine_ended: bool,
    /// The name of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The UID of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
    /// The labels and taints that its node has from its BidNode: those that the BidNode loses are removed. It is not kept on the
    /// node, whose kubelet could name others there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Applied>,
    /// True while the way to reach its node is to be reported: the provisioner did not say it when the node was reported ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub access_due: bool,
    /// The time at which its node was first ready with its labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_time: Option<Time>,
    /// The time at which its node ends at the latest, if it is under notice. For a gang slot, the time until which a
    /// replacement is looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// The time since which the nodes of its gang are given up, so that all are bid for again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regroup_time: Option<Time>,
    /// The number of times that its gang was regrouped. It is part of the key of the command.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub regroups: u32,
    /// The time at which the drain of its node began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_time: Option<Time>,
    /// The time until which the market does not let its ceiling be lowered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_until: Option<Time>,
    /// The time since which the engine does not know its bid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_time: Option<Time>,
    /// The generation of its BidNode whose labels and taints the API server refused for its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_generation: Option<i64>,
    /// The time since which its node is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_time: Option<Time>,
    /// The conditions: what it has reached, what it waits for, and until when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl BidSlotStatus {
    /// Returns the instance type of its node: the first half of its market's name.
    pub fn instance_type(&self) -> Option<&str> {
        self.market.as_deref()?.split_once('/').map(|(instance_type, _)| instance_type)
    }

    /// Returns the region of its node: the second half of its market's name.
    pub fn region(&self) -> Option<&str> {
        self.market.as_deref()?.split_once('/').map(|(_, region)| region)
    }
}

/// The labels and taints that a node has from its BidNode.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Applied {
    /// The keys of the labels.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<String>,
    /// The taints.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub taints: BTreeSet<AppliedTaint>,
}

/// A taint that a node has from its BidNode.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppliedTaint {
    /// Its key.
    pub key: String,
    /// Its effect.
    pub effect: String,
}

impl Applied {
    /// Returns the labels and taints of both.
    pub fn union(&self, other: &Applied) -> Applied {
        Applied { labels: &self.labels | &other.labels, taints: &self.taints | &other.taints }
    }
}

/// The phase of a slot.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlotPhase {
    /// It has no bid.
    #[default]
    Pending,
    /// Its bid waits.
    Bidding,
    /// The bid has a unit; no machine is ordered.
    Awarded,
    /// The machine is on its way.
    Provisioning,
    /// The node exists with its labels, and is not ready.
    Registered,
    /// The node is ready.
    Ready,
    /// The node is under notice, tainted, and not drained yet.
    Notice,
    /// The node is being drained.
    Draining,
    /// The node is empty or gone; its unit is being given back.
    Releasing,
    /// The slot has ended: its unit is given back.
    Released,
    /// The slot has failed: `reason` says why.
    Failed,
}

impl SlotPhase {
    /// Returns whether the slot has a node that stays, or is to get one.
    pub fn counts(self) -> bool {
        self <= SlotPhase::Ready
    }
}

/// The name of a slot, with its UID: a later slot of the same name is another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotKey {
    /// The namespace of the slot.
    pub namespace: String,
    /// The name of the slot.
    pub name: String,
    /// The UID of the slot.
    pub uid: String,
}

impl SlotKey {
    /// Returns the key of a slot.
    pub fn of(slot: &BidSlot) -> Self {
        SlotKey {
            namespace: slot.namespace().unwrap_or_default(),
            name: slot.name_any(),
            uid: slot.uid().unwrap_or_default(),
        }
    }

    /// Returns the key of the slot that the labels of a bid name.
    pub fn of_labels(labels: &BTreeMap<String, String>) -> Self {
        let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
        SlotKey { namespace: label(LABEL_NAMESPACE), name: label(LABEL_SLOT), uid: label(LABEL_SLOT_UID) }
    }
}
