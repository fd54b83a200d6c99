//! The objects of the cluster that the operator watches, and their indexes.

use crate::api::{ANNOTATION_NAMESPACE, BidNode, BidSlot, LABEL_SLOT, SlotPhase};
use crate::plan::demand::{controller, is_unschedulable};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::Api;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::reflector::ObjectRef;
use kubebid_controller::index::Index;
use kubebid_controller::object::{controller_of, objects};
use kubebid_controller::{Manager, Watch};
use std::sync::Arc;

/// The objects that the operator watches, as of the last event of each watch.
#[derive(Clone, Debug)]
pub(crate) struct Stores {
    pub(crate) bidnodes: Watch<BidNode>,
    pub(crate) slots: Watch<BidSlot>,
    pub(crate) nodes: Watch<Node>,
    pub(crate) pods: Watch<Pod>,
    pub(crate) daemon_sets: Watch<DaemonSet>,
    /// The slots by the UID of their BidNode.
    slots_by_owner: Arc<Index<BidSlot>>,
    /// The slots whose nodes the market takes, all with the empty key.
    preempted_slots: Arc<Index<BidSlot>>,
    /// The slots whose nodes end by a deadline and are not given back yet, all with the empty key.
    ending_slots: Arc<Index<BidSlot>>,
    /// The slots by the name of their node.
    slots_by_node: Arc<Index<BidSlot>>,
    /// The pods by the name of their node; pods without a node have the empty name.
    pods_by_node: Arc<Index<Pod>>,
    /// The pods by the UID of their controller.
    pods_by_controller: Arc<Index<Pod>>,
}

/// Returns the name of the node that a pod is bound to.
pub(crate) fn node_name_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

impl Stores {
    /// Watches the BidNodes and slots of a namespace or of all, and all nodes, pods and daemon sets.
    pub(crate) fn watch(manager: &mut Manager, namespace: Option<&str>) -> Stores {
        let client = manager.client().clone();
        let (bidnodes, slots) = (
            manager.watch(objects(&client, namespace)),
            manager.watch(objects::<BidSlot>(&client, namespace)),
        );
        let (nodes, pods) =
            (manager.watch(Api::all(client.clone())), manager.watch(Api::<Pod>::all(client.clone())));
        let daemon_sets = manager.watch(Api::<DaemonSet>::all(client.clone()));
        Stores {
            slots_by_owner: slots.index(bidnode_uid_of),
            preempted_slots: slots.index(|slot| is_preempted(slot).then(String::new)),
            ending_slots: slots.index(|slot| is_ending(slot).then(String::new)),
            slots_by_node: slots.index(|slot| slot.status.as_ref()?.node.clone()),
            pods_by_node: pods.index(|pod| Some(node_name_of(pod).unwrap_or_default().to_owned())),
            pods_by_controller: pods.index(|pod| controller(pod).map(str::to_owned)),
            bidnodes,
            slots,
            nodes,
            pods,
            daemon_sets,
        }
    }

    /// Returns the BidNode of a slot, if it still exists.
    pub(crate) fn bidnode_of(&self, slot: &BidSlot) -> Option<Arc<BidNode>> {
        let bidnode = self.bidnodes.get(&bidnode_ref_of(slot)?)?;
        Some(bidnode).filter(|bidnode| bidnode.uid() == bidnode_uid_of(slot))
    }

    /// Returns the slots of a BidNode, ordered by number.
    pub(crate) fn slots_of(&self, bidnode: &BidNode) -> Vec<Arc<BidSlot>> {
        let slots = self.slots_by_owner.of(&bidnode.uid().unwrap_or_default());
        let mut slots: Vec<_> = slots.iter().filter_map(|slot| self.slots.get(slot)).collect();
        slots.sort_by_key(|slot| ordinal(&slot.name_any()));
        slots
    }

    /// Returns true if the BidNode of a slot is there, and this version of the program cannot read it.
    pub(crate) fn is_bidnode_unreadable(&self, slot: &BidSlot) -> bool {
        let unreadable = bidnode_ref_of(slot).and_then(|bidnode| self.bidnodes.unreadable(&bidnode));
        unreadable.is_some_and(|bidnode| bidnode.metadata.uid == bidnode_uid_of(slot))
    }

    /// Returns the slots of a BidNode that are there and that this version of the program cannot read.
    pub(crate) fn unreadable_slots_of(&self, bidnode: &BidNode) -> Vec<Arc<InvalidObject>> {
        let is_owner = |slot: &Arc<InvalidObject>| {
            let mut owners = slot.metadata.owner_references.iter().flatten();
            owners.any(|owner| Some(&owner.uid) == bidnode.metadata.uid.as_ref())
        };
        self.slots.all_unreadable().into_iter().filter(is_owner).collect()
    }

    /// Returns the UID of the slot of this name, also if this version of the program cannot read it.
    pub(crate) fn slot_uid(&self, slot: &ObjectRef<BidSlot>) -> Option<String> {
        match self.slots.get(slot) {
            Some(slot) => slot.uid(),
            None => self.slots.unreadable(slot)?.metadata.uid.clone(),
        }
    }

    /// Returns the slots whose nodes the market takes.
    pub(crate) fn preempted_slots(&self) -> Vec<Arc<BidSlot>> {
        self.preempted_slots.of("").iter().filter_map(|slot| self.slots.get(slot)).collect()
    }

    /// Returns the number of slots whose nodes end by a deadline and are not given back yet.
    pub(crate) fn ending_slots(&self) -> usize {
        self.ending_slots.of("").len()
    }

    /// Returns the slot whose node has this name.
    pub(crate) fn slot_on(&self, node: &str) -> Option<Arc<BidSlot>> {
        self.slots_by_node.of(node).iter().find_map(|slot| self.slots.get(slot))
    }

    /// Returns the node of this name.
    pub(crate) fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&ObjectRef::new(name))
    }

    /// Returns the pods on a node that have not finished.
    pub(crate) fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.pods_by_node(node, |pod| node_name_of(pod) == Some(node) && !is_finished(pod))
    }

    /// Returns the pods that the scheduler finds no node for.
    pub(crate) fn unschedulable(&self) -> Vec<Arc<Pod>> {
        self.pods_by_node("", is_unschedulable)
    }

    /// Returns the pods of a controller, by its UID, that have not finished.
    pub(crate) fn pods_of_controller(&self, controller: &str) -> Vec<Arc<Pod>> {
        let pods = self.pods_by_controller.of(controller);
        pods.iter().filter_map(|pod| self.pods.get(pod)).filter(|pod| !is_finished(pod)).collect()
    }

    fn pods_by_node(&self, key: &str, matches: impl Fn(&Pod) -> bool) -> Vec<Arc<Pod>> {
        let pods = self.pods_by_node.of(key);
        pods.iter().filter_map(|pod| self.pods.get(pod)).filter(|pod| matches(pod)).collect()
    }
}

/// Returns the number at the end of a slot's name.
pub(crate) fn ordinal(name: &str) -> u32 {
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(u32::MAX)
}

/// Returns the BidNode that the owner reference of a slot names.
pub(crate) fn bidnode_ref_of(slot: &BidSlot) -> Option<ObjectRef<BidNode>> {
    let owner = controller_of::<BidNode, _>(slot)?;
    Some(ObjectRef::new(&owner.name).within(&slot.namespace()?))
}

fn bidnode_uid_of(slot: &BidSlot) -> Option<String> {
    controller_of::<BidNode, _>(slot).map(|owner| owner.uid.clone())
}

/// Returns the slot that the labels of a node name.
pub(crate) fn slot_ref_of(node: &Node) -> Option<ObjectRef<BidSlot>> {
    let namespace = node.annotations().get(ANNOTATION_NAMESPACE)?;
    Some(ObjectRef::new(node.labels().get(LABEL_SLOT)?).within(namespace))
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns whether the market takes the node of a slot.
fn is_preempted(slot: &BidSlot) -> bool {
    let phase = slot.status.as_ref().map(|status| status.phase);
    let stays = slot.spec.release.is_none() && slot.metadata.deletion_timestamp.is_none();
    stays && matches!(phase, Some(SlotPhase::Notice | SlotPhase::Draining))
}

/// Returns whether the node of a slot ends by a deadline and is not given back yet.
fn is_ending(slot: &BidSlot) -> bool {
    slot.status.as_ref().is_some_and(|status| {
        status.deadline.is_some() && (SlotPhase::Notice..=SlotPhase::Releasing).contains(&status.phase)
    })
}
