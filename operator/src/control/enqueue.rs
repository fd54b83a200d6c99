//! Maps events of nodes, pods and the engine to the BidNodes and slots that they concern.

use crate::api::{BidSlot, SlotKey};
use crate::cache::{bidnode_ref_of, node_name_of, slot_ref_of};
use crate::context::Context;
use crate::plan::demand::is_unschedulable;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use std::sync::Arc;

/// Enqueues the slot that a node names in its labels, or the slot that waits for a node of this name.
pub(super) fn on_node(context: &Context, node: &Node) {
    match slot_ref_of(node) {
        Some(slot) => slot_and_bidnode(context, context.stores.slots.get(&slot)),
        None => slot_and_bidnode(context, context.stores.slot_on(&node.name_any())),
    }
}

fn slot_and_bidnode(context: &Context, slot: Option<Arc<BidSlot>>) {
    let Some(slot) = slot else { return };
    context.slot_wakes.wake(ObjectRef::from_obj(slot.as_ref()));
    if let Some(bidnode) = bidnode_ref_of(&slot) {
        context.bidnode_wakes.wake(bidnode);
    }
}

/// Enqueues the slot of a pod's node. A pod without a node concerns every BidNode.
pub(super) fn on_pod(context: &Context, pod: &Pod) {
    match node_name_of(pod) {
        Some(name) => {
            if let Some(node) = context.stores.node(name).filter(|node| slot_ref_of(node).is_some()) {
                on_node(context, &node);
            }
        }
        None if is_unschedulable(pod) || pod.metadata.deletion_timestamp.is_some() => all_bidnodes(context),
        None => {}
    }
}

fn all_bidnodes(context: &Context) {
    for bidnode in context.stores.bidnodes.all() {
        context.bidnode_wakes.wake(ObjectRef::from_obj(bidnode.as_ref()));
    }
}

/// Enqueues the slot of a bid, and the members of a gang. A notice does not wait for the end of a backoff.
pub(super) fn on_bid(context: &Context, slot: &SlotKey) {
    let slot = ObjectRef::<BidSlot>::new(&slot.name).within(&slot.namespace);
    if let Some(gang_slot) = context.stores.slots.get(&slot).filter(|it| it.spec.gang_nodes.is_some())
        && let Some(bidnode) = context.stores.bidnode_of(&gang_slot)
    {
        for member in context.stores.slots_of(&bidnode).into_iter().filter(|it| it.spec.member.is_some()) {
            context.slot_wakes.wake_urgently(ObjectRef::from_obj(member.as_ref()));
        }
    }
    context.slot_wakes.wake_urgently(slot);
}

/// Enqueues everything when the engine ceases to answer and when it answers again.
pub(super) async fn on_engine_faults(context: &Context) {
    let mut faults = context.engine().bid_cache().faults();
    while faults.changed().await.is_ok() {
        context.bidnode_wakes.end_backoffs();
        context.slot_wakes.end_backoffs();
        all_bidnodes(context);
        for slot in context.stores.slots.all() {
            context.slot_wakes.wake(ObjectRef::from_obj(slot.as_ref()));
        }
    }
}
