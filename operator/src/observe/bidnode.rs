//! Observes a BidNode: its slots, their nodes and pods, and the pods that need nodes.

use super::node::{node_view, not_ready_since};
use super::pool::{self, NodeState, moving_pods};
use super::slot::notice;
use super::status::registration_refused;
use crate::api::{
    ANNOTATION_ABANDON, ANNOTATION_EMPTY_AFTER, ANNOTATION_UNHEALTHY_AFTER, BidNode, BidSlot, FINALIZER,
    SlotPhase,
};
use crate::cache::ordinal;
use crate::context::Context;
use crate::metrics::Outcome;
use crate::plan;
use crate::plan::annotations::duration;
use crate::plan::bidnode::{Deletion, Observation, ObservedSlot};
use crate::plan::count::SlotView;
use crate::plan::demand::{self, Demand, PendingPod};
use crate::plan::packing::{self, Pool};
use crate::plan::room::suits;
use crate::plan::scope::Scope;
use crate::plan::slot::UnwantedReason;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The interval at which a BidNode is reconciled without an event, give or take a tenth.
const RESYNC: Duration = Duration::from_secs(60);
/// The default of the annotation `kubebid.io/release-empty-after`.
const EMPTY_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// The default of the annotation `kubebid.io/replace-not-ready-after`.
const UNHEALTHY_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// Observes the slots of a BidNode, and the pods that need nodes.
pub(crate) async fn observe(
    bidnode: &BidNode,
    slots: &[Arc<BidSlot>],
    now: Timestamp,
    context: &Context,
) -> Observation {
    let uid = bidnode.uid().unwrap_or_default();
    let states = pool::node_states(slots, bidnode, now, context).await;
    let statuses = slots.iter().filter_map(|slot| slot.status.as_ref());
    // Pods bring no nodes of a gang.
    let demand = if bidnode.spec.gang { Demand::default() } else { demand(context) };
    let pools = pools(bidnode, slots, &states, &demand.pods(now), now, context).await;
    let observed = slots.iter().zip(states);
    let observed = observed.map(|(slot, state)| observed_slot(slot, state, bidnode, context, now));
    Observation {
        now,
        scope: context.scope_of(bidnode),
        gang: bidnode.spec.gang,
        min_nodes: bidnode.spec.min_nodes,
        most_nodes: plan::bidnode::most_nodes(&bidnode.spec),
        observed_min_nodes: bidnode.status.as_ref().and_then(|status| status.observed_min_nodes),
        is_new_generation: context.memory.is_new_generation(&uid, bidnode.metadata.generation),
        disruption: bidnode.spec.disruption.clone(),
        empty_after: duration(bidnode, ANNOTATION_EMPTY_AFTER, EMPTY_AFTER),
        unhealthy_after: duration(bidnode, ANNOTATION_UNHEALTHY_AFTER, UNHEALTHY_AFTER),
        demand,
        pools,
        pause: context.memory.pause_after_failures(&uid, now),
        registration_refused: registration_refused(bidnode, statuses, context).is_some(),
        slots: observed.collect(),
        resync: RESYNC.mul_f64(0.9 + 0.2 * fastrand::f64()),
        uid,
    }
}

fn observed_slot(
    slot: &BidSlot,
    state: NodeState,
    bidnode: &BidNode,
    context: &Context,
    now: Timestamp,
) -> ObservedSlot {
    let pods = moving_pods(slot, context);
    let view = slot_view(slot, &state, pods.len(), context, now);
    note_use(slot, bidnode, !pods.is_empty(), context);
    let (node, overdue) = match state {
        NodeState::Open { node, .. } => (Some(node), None),
        NodeState::Overdue(node) => (None, Some(node)),
        NodeState::None | NodeState::Coming | NodeState::Closed => (None, None),
    };
    ObservedSlot {
        view,
        scope: Scope::of_slot(&slot.spec),
        pods,
        node,
        overdue,
        is_gang_slot: slot.spec.gang_nodes.is_some(),
    }
}

/// Notes whether pods use a node that was bought for pods. The first pod ends a row of unused nodes.
fn note_use(slot: &BidSlot, bidnode: &BidNode, has_pods: bool, context: &Context) {
    let ready_time = slot.status.as_ref().and_then(|status| status.ready_time.as_ref());
    let is_observed_whole = ready_time.is_none_or(|ready| ready.0 >= context.began);
    let uid = slot.uid().unwrap_or_default();
    if slot.spec.for_pods && context.memory.is_first_use(&uid, is_observed_whole, has_pods) {
        context.bidnode_metrics().count(bidnode, Outcome::Used);
        let generation = bidnode.metadata.generation;
        context.memory.set_unused(&bidnode.uid().unwrap_or_default(), generation, None);
    }
}

fn slot_view(slot: &BidSlot, state: &NodeState, pods: usize, context: &Context, now: Timestamp) -> SlotView {
    let status = slot.status.clone().unwrap_or_default();
    let node = status.node.as_deref().and_then(|name| context.stores.node(name));
    let ready = status.phase == SlotPhase::Ready;
    // A node may take pods before the slot is ready.
    let is_coming =
        matches!(state, NodeState::Coming) || status.allocation.is_some() && status.phase < SlotPhase::Ready;
    // Pods may be bound before the slot is ready.
    let is_empty = ready && !is_coming && pods == 0;
    let empty_since = context.memory.empty_since(&slot.uid().unwrap_or_default(), is_empty, now);
    let not_ready = node.filter(|_| ready).and_then(|node| not_ready_since(&node));
    SlotView {
        name: slot.name_any(),
        ordinal: ordinal(&slot.name_any()),
        phase: status.phase,
        leaving: match slot.spec.release {
            _ if slot.metadata.deletion_timestamp.is_some() => Some(UnwantedReason::Deleted),
            Some(reason) => Some(UnwantedReason::Release(reason)),
            None => None,
        },
        holds: status.allocation.is_some(),
        is_coming,
        pods,
        empty_for: empty_since.map(|since| now.duration_since(since)),
        not_ready_for: not_ready.map(|since| now.duration_since(since)),
        untainted_for: untainted_for(slot, context, now),
        replaces: slot.spec.replaces.clone(),
        is_protected: pool::is_protected(slot, context),
        fits_elsewhere: false,
    }
}

/// Returns the time since the begin of a slot's notice, if its node has no taint yet.
fn untainted_for(slot: &BidSlot, context: &Context, now: Timestamp) -> Option<SignedDuration> {
    let status = slot.status.as_ref()?;
    let bid = context.engine().bid_cache().bid(status.bid?)?;
    let notice = notice(bid.allocation_of(slot).filter(|held| held.ended.is_none())?)?;
    let node = context.node_of(status).filter(|_| status.phase == SlotPhase::Ready)?;
    (!node_view(&node, true).leaving).then(|| now.duration_since(notice.started))
}

/// Observes the pods that may need nodes of any BidNode.
fn demand(context: &Context) -> Demand {
    // The stores change while they are read, and show that a pod is terminating before they show its successor. So successors are
    // read before the terminating pods, and once more after them: none is counted beside its predecessor, and none is missed.
    let mut unschedulable = context.stores.unschedulable();
    let preempted = context.stores.preempted_slots();
    let displaced: Vec<_> = preempted.iter().flat_map(|slot| moving_pods(slot, context)).collect();
    let terminating = displaced.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some());
    let controllers: BTreeSet<_> = terminating.filter_map(|pod| demand::controller(pod)).collect();
    let siblings: Vec<_> = controllers
        .into_iter()
        .flat_map(|controller| context.stores.pods_of_controller(controller))
        .collect();
    let known: BTreeSet<_> = unschedulable.iter().filter_map(|pod| pod.uid()).collect();
    let late = siblings.iter().filter(|pod| demand::is_unschedulable(pod));
    unschedulable.extend(late.filter(|pod| pod.uid().is_none_or(|uid| !known.contains(&uid))).cloned());
    Demand { unschedulable, displaced, siblings }
}

/// Observes a BidNode, whose slots have nodes in these states, and all others that a pod fits too, as pools of nodes. Returns `None` if the engine does not say what a node
/// of this one would be.
async fn pools(
    bidnode: &BidNode,
    slots: &[Arc<BidSlot>],
    states: &[NodeState],
    pods: &[PendingPod<'_>],
    now: Timestamp,
    context: &Context,
) -> Option<Vec<Pool>> {
    if pods.is_empty() {
        return Some(Vec::new());
    }
    let own = pool::pool(bidnode, slots, states, now, context).await?;
    let shared: Vec<_> = pods.iter().filter(|pending| suits(pending.pod, &own.template)).collect();
    let mut pools = vec![own];
    if shared.is_empty() {
        return Some(pools);
    }
    for other in context.stores.bidnodes.all() {
        if other.uid() == bidnode.uid() {
            continue;
        }
        let slots = context.stores.slots_of(&other);
        // What the engine does not know takes no pods.
        let states = pool::node_states(&slots, &other, now, context).await;
        let Some(pool) = pool::pool(&other, &slots, &states, now, context).await else { continue };
        if shared.iter().any(|pending| suits(pending.pod, &pool.template)) {
            pools.push(pool);
        }
    }
    packing::sort(&mut pools);
    Some(pools)
}

/// Observes a BidNode that is being deleted. The engine is asked for its bids when no slot is left.
pub(crate) async fn deletion(bidnode: &BidNode, slots: &[Arc<BidSlot>], context: &Context) -> Deletion {
    let has_finalizer = bidnode.finalizers().iter().any(|name| name == FINALIZER);
    let abandoned = bidnode.annotations().get(ANNOTATION_ABANDON).is_some_and(|value| value == "true");
    let has_slots = !slots.is_empty() || !context.stores.unreadable_slots_of(bidnode).is_empty();
    let bids = if has_finalizer && !abandoned && !has_slots {
        context.engine().bids_of(bidnode).await.ok()
    } else {
        None
    };
    Deletion { has_finalizer, abandoned, has_slots, bids }
}
