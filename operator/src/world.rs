//! The cluster as the watches tell it.

use crate::api::{ANNOTATION_NAMESPACE, BidNode, BidSlot, LABEL_SLOT, TAINT_LEAVING, TAINT_UNREGISTERED};
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
}

impl World {
    /// The BidNode that a slot belongs to, if it is still there.
    pub fn owner(&self, slot: &BidSlot) -> Option<Arc<BidNode>> {
        let owner = owner_of(slot)?;
        self.bidnodes.get(&owner).filter(|node| node.uid() == owner_uid(slot))
    }

    /// The slots of a BidNode, by number.
    pub fn slots_of(&self, node: &BidNode) -> Vec<Arc<BidSlot>> {
        let (uid, namespace) = (node.uid(), node.namespace());
        let mut slots: Vec<_> = self
            .slots
            .state()
            .into_iter()
            .filter(|slot| slot.namespace() == namespace && owner_uid(slot) == uid)
            .collect();
        slots.sort_by_key(|slot| ordinal(&slot.name_any()));
        slots
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&ObjectRef::new(name))
    }

    /// Pods on a node that are not over.
    pub fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        let on_node = |pod: &Arc<Pod>| {
            let bound = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
            bound && !is_over(pod)
        };
        self.pods.state().into_iter().filter(on_node).collect()
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
        ready: ready_condition(node).is_some_and(|(ready, _)| ready),
        registered: registered && !has(TAINT_UNREGISTERED),
        leaving: has(TAINT_LEAVING),
        ending: node.metadata.deletion_timestamp.is_some(),
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

/// Which slot a node says it is of.
pub fn slot_ref_of(node: &Node) -> Option<ObjectRef<BidSlot>> {
    let namespace = node.annotations().get(ANNOTATION_NAMESPACE)?;
    Some(ObjectRef::new(node.labels().get(LABEL_SLOT)?).within(namespace))
}

/// A pod as the drain sees it; `None` for those that go with their node: what the kubelet runs by itself.
pub fn pod_view(pod: &Pod) -> Option<PodView> {
    if pod.annotations().contains_key("kubernetes.io/config.mirror") {
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
