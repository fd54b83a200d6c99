//! The state of the cluster from the watches, and nodes and pods as the plans see them (`node_view`, `pod_view`).

mod index;

pub use index::Index;

use crate::api::{
    ANNOTATION_NAMESPACE, BidNode, BidSlot, LABEL_SLOT, LABEL_SLOT_UID, TAINT_LEAVING, TAINT_UNREGISTERED,
};
use crate::plan::demand::{controller, is_unschedulable};
use crate::plan::drain::{PodView, Tier};
use crate::plan::slot::NodeView;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};
use std::sync::Arc;

/// What is there, as of the last event of each watch.
#[derive(Clone, Debug)]
pub struct World {
    pub bidnodes: Store<BidNode>,
    pub slots: Store<BidSlot>,
    pub nodes: Store<Node>,
    pub pods: Store<Pod>,
    pub indexes: Arc<Indexes>,
}

/// Who belongs to whom.
#[derive(Debug)]
pub struct Indexes {
    /// By the UID of their BidNode.
    pub slots_by_owner: Index<BidSlot>,
    /// By the name of their node.
    pub slots_by_node: Index<BidSlot>,
    /// By the name of their node; under no name those without.
    pub pods_by_node: Index<Pod>,
    /// By the UID of their controller.
    pub pods_by_controller: Index<Pod>,
}

impl Default for Indexes {
    fn default() -> Self {
        Indexes {
            slots_by_owner: Index::new(owner_uid),
            slots_by_node: Index::new(|slot| slot.status.as_ref()?.node.clone()),
            pods_by_node: Index::new(|pod| Some(node_of(pod).unwrap_or_default().to_owned())),
            pods_by_controller: Index::new(|pod| controller(pod).map(str::to_owned)),
        }
    }
}

/// The node that a pod is bound to.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

impl World {
    /// The BidNode that a slot belongs to, if it is still there.
    pub fn owner(&self, slot: &BidSlot) -> Option<Arc<BidNode>> {
        let owner = owner_of(slot)?;
        self.bidnodes.get(&owner).filter(|node| node.uid() == owner_uid(slot))
    }

    /// The slots of a BidNode, by number.
    pub fn slots_of(&self, node: &BidNode) -> Vec<Arc<BidSlot>> {
        let slots = self.indexes.slots_by_owner.of(&node.uid().unwrap_or_default());
        let mut slots: Vec<_> = slots.iter().filter_map(|slot| self.slots.get(slot)).collect();
        slots.sort_by_key(|slot| ordinal(&slot.name_any()));
        slots
    }

    /// The slot whose node has this name.
    pub fn slot_on(&self, node: &str) -> Option<Arc<BidSlot>> {
        self.indexes.slots_by_node.of(node).iter().find_map(|slot| self.slots.get(slot))
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&ObjectRef::new(name))
    }

    /// Pods on a node that are not over.
    pub fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.pods_of(node, |pod| node_of(pod) == Some(node) && !is_over(pod))
    }

    /// Pods that the scheduler finds no node for.
    pub fn unschedulable(&self) -> Vec<Arc<Pod>> {
        self.pods_of("", is_unschedulable)
    }

    /// Pods of the same controller, by its UID, that are not over.
    pub fn pods_under(&self, controller: &str) -> Vec<Arc<Pod>> {
        let pods = self.indexes.pods_by_controller.of(controller);
        pods.iter().filter_map(|pod| self.pods.get(pod)).filter(|pod| !is_over(pod)).collect()
    }

    fn pods_of(&self, key: &str, is_so: impl Fn(&Pod) -> bool) -> Vec<Arc<Pod>> {
        let pods = self.indexes.pods_by_node.of(key);
        pods.iter().filter_map(|pod| self.pods.get(pod)).filter(|pod| is_so(pod)).collect()
    }
}

/// The number at the end of a slot's name.
pub fn ordinal(name: &str) -> u32 {
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(u32::MAX)
}

/// The BidNode that a slot says it belongs to.
pub fn owner_of(slot: &BidSlot) -> Option<ObjectRef<BidNode>> {
    let owner = slot.owner_references().iter().find(|owner| owner.kind == "BidNode")?;
    Some(ObjectRef::new(&owner.name).within(&slot.namespace()?))
}

fn owner_uid(slot: &BidSlot) -> Option<String> {
    slot.owner_references().iter().find(|owner| owner.kind == "BidNode").map(|owner| owner.uid.clone())
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// A node as the plan sees it. `registered` is for who knows the labels that it is to have.
pub fn node_view(node: &Node, registered: bool) -> NodeView {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let has = |key: &str| taints.clone().any(|taint| taint.key == key);
    NodeView {
        ready: is_ready(node),
        registered: registered && !has(TAINT_UNREGISTERED),
        leaving: has(TAINT_LEAVING),
        ending_since: node.metadata.deletion_timestamp.as_ref().map(|time| time.0),
    }
}

fn ready_condition(node: &Node) -> Option<(bool, Option<Timestamp>)> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let condition = conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
    Some((condition.status == "True", condition.last_transition_time.as_ref().map(|time| time.0)))
}

/// Since when a node is not ready.
pub fn not_ready_since(node: &Node) -> Option<Timestamp> {
    ready_condition(node).filter(|(ready, _)| !ready).and_then(|(_, since)| since)
}

/// Returns whether a node is ready.
pub fn is_ready(node: &Node) -> bool {
    ready_condition(node).is_some_and(|(ready, _)| ready)
}

/// Returns whether pods can be bound to a node: it is ready, and nobody has closed it.
pub fn takes_pods(node: &Node) -> bool {
    let view = node_view(node, true);
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
    view.ready && view.registered && !view.leaving && view.ending_since.is_none() && !cordoned
}

/// Returns whether a node proves that it is the machine of this slot: the operator has labelled it as such, its
/// provider ID ends with the slot's UID or its unit, or it registered with the slot's UID as the value of its
/// taint. What a provisioner says its name is proves nothing.
pub fn is_machine_of(node: &Node, slot_uid: &str, unit: Option<&str>) -> bool {
    let ends_with = |id: &str, last: &str| id.strip_suffix(last).is_some_and(|scheme| scheme.ends_with('/'));
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    let by_id =
        provider_id.is_some_and(|id| ends_with(id, slot_uid) || unit.is_some_and(|unit| ends_with(id, unit)));
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let by_taint = || {
        taints
            .into_iter()
            .any(|taint| taint.key == TAINT_UNREGISTERED && taint.value.as_deref() == Some(slot_uid))
    };
    let by_label = || node.labels().get(LABEL_SLOT_UID).is_some_and(|uid| uid == slot_uid);
    !slot_uid.is_empty() && (by_id || by_label() || by_taint())
}

/// Returns which slot a node says it is of.
pub fn slot_ref_of(node: &Node) -> Option<ObjectRef<BidSlot>> {
    let namespace = node.annotations().get(ANNOTATION_NAMESPACE)?;
    Some(ObjectRef::new(node.labels().get(LABEL_SLOT)?).within(namespace))
}

/// A pod as the drain sees it; `None` for those that go with their node: what the kubelet runs by itself.
pub fn pod_view(pod: &Pod) -> Option<PodView> {
    if pod.annotations().contains_key("kubernetes.io/config.bid_cache") {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    let tier = if pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet") {
        Tier::Daemon
    } else if spec.priority.is_some_and(|priority| priority >= CRITICAL_PRIORITY) {
        Tier::Critical
    } else {
        Tier::Ordinary
    };
    Some(PodView {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        tier,
        grace: SignedDuration::from_secs(spec.termination_grace_period_seconds.unwrap_or(30)),
        ending: pod.metadata.deletion_timestamp.is_some(),
    })
}

/// That of the class `system-cluster-critical`.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;
