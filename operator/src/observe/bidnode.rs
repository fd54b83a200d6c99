//! Observes a BidNode: its slots, their nodes and pods, and the pods that need nodes.

use super::node::{node_view, not_ready_since, takes_pods};
use super::pod::pod_view;
use super::slot::notice;
use super::status::registration_refused;
use crate::api::{
    ANNOTATION_ABANDON, ANNOTATION_EMPTY_AFTER, ANNOTATION_UNHEALTHY_AFTER, BidNode, BidSlot, FINALIZER,
    LABEL_REGION, SlotPhase,
};
use crate::cache::ordinal;
use crate::context::Context;
use crate::plan;
use crate::plan::bidnode::{Deletion, Observation, ObservedSlot};
use crate::plan::count::SlotView;
use crate::plan::demand::{self, Demand, NodeTemplate, OpenNode, Resources};
use crate::plan::drain::Tier;
use crate::plan::scope::Scope;
use crate::plan::slot::UnwantedReason;
use crate::provisioner::kubelet_labels;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

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
    let slots: Vec<_> = slots.iter().map(|slot| (slot, observed_slot(slot, context, now))).collect();
    let scope = context.scope_of(bidnode);
    let coming: Vec<&str> = slots.iter().filter_map(|(slot, it)| coming_type(slot, it)).collect();
    let preempted: Vec<_> =
        slots.iter().filter(|(_, it)| it.view.is_preempted()).map(|(slot, _)| Arc::clone(slot)).collect();
    Observation {
        min_nodes: bidnode.spec.min_nodes,
        max_nodes: bidnode.spec.max_nodes,
        observed_min_nodes: bidnode.status.as_ref().and_then(|status| status.observed_min_nodes),
        is_new_generation: context.memory.is_new_generation(&uid, bidnode.metadata.generation),
        empty_after: duration(bidnode, ANNOTATION_EMPTY_AFTER, EMPTY_AFTER),
        unhealthy_after: duration(bidnode, ANNOTATION_UNHEALTHY_AFTER, UNHEALTHY_AFTER),
        demand: demand(bidnode, &scope, &preempted, &coming, context).await,
        pause: context.memory.pause_after_failures(&uid, now),
        registration_refused: registration_refused(
            bidnode,
            slots.iter().filter_map(|(slot, _)| slot.status.as_ref()),
            context,
        )
        .is_some(),
        scope,
        slots: slots.into_iter().map(|(_, observed)| observed).collect(),
        resync: RESYNC.mul_f64(0.9 + 0.2 * fastrand::f64()),
    }
}

/// Returns the duration that an annotation gives.
pub(super) fn duration(bidnode: &BidNode, annotation: &str, default: SignedDuration) -> SignedDuration {
    let Some(text) = bidnode.annotations().get(annotation) else { return default };
    let parsed = text
        .parse::<kube::core::Duration>()
        .ok()
        .filter(|it| !it.is_negative())
        .and_then(|it| SignedDuration::try_from(Duration::from(it)).ok());
    parsed.unwrap_or_else(|| {
        warn!(bidnode = bidnode.name_any(), annotation, text, "is no duration as in 10m");
        default
    })
}

fn observed_slot(slot: &BidSlot, context: &Context, now: Timestamp) -> ObservedSlot {
    let pods = moving_pods(slot, context);
    let view = slot_view(slot, pods.len(), context, now);
    ObservedSlot { view, scope: Scope::of_slot(&slot.spec), pods, node: open_node(slot, context) }
}

/// Returns the instance type of a node that is won, stays, and does not take pods yet.
fn coming_type<'a>(slot: &'a BidSlot, observed: &ObservedSlot) -> Option<&'a str> {
    let comes = (SlotPhase::Awarded..SlotPhase::Ready).contains(&observed.view.phase)
        && observed.view.leaving.is_none()
        && observed.node.is_none();
    slot.status.as_ref().filter(|_| comes)?.instance_type()
}

fn slot_view(slot: &BidSlot, pods: usize, context: &Context, now: Timestamp) -> SlotView {
    let status = slot.status.clone().unwrap_or_default();
    let node = status.node.as_deref().and_then(|name| context.stores.node(name));
    let ready = status.phase == SlotPhase::Ready;
    // Pods may be bound before the slot is ready.
    let is_empty = ready && pods == 0;
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
        pods,
        empty_for: empty_since.map(|since| now.duration_since(since)),
        not_ready_for: not_ready.map(|since| now.duration_since(since)),
        untainted_for: untainted_for(slot, context, now),
        replaces: slot.spec.replaces.clone(),
        fits_elsewhere: false,
    }
}

/// Returns the time since the begin of a slot's notice, if its node has no taint yet.
fn untainted_for(slot: &BidSlot, context: &Context, now: Timestamp) -> Option<SignedDuration> {
    let status = slot.status.as_ref()?;
    let bid = context.engine().bid_cache().bid(status.bid?)?;
    let notice = notice(&bid.allocation.filter(|held| held.ended.is_none())?)?;
    let node = context.node_of(status).filter(|_| status.phase == SlotPhase::Ready)?;
    (!node_view(&node, true).leaving).then(|| now.duration_since(notice.started))
}

/// Returns the pods on the node of a slot that would have to move: all but those of daemon sets.
fn moving_pods(slot: &BidSlot, context: &Context) -> Vec<Arc<Pod>> {
    let Some(name) = slot.status.as_ref().and_then(|status| status.node.as_deref()) else {
        return Vec::new();
    };
    let moves = |pod: &Arc<Pod>| pod_view(pod).is_some_and(|pod| pod.tier < Tier::Daemon);
    context.stores.pods_on(name).into_iter().filter(moves).collect()
}

/// Returns the node of a slot that stays, if the node takes pods. That may be before the slot is ready.
fn open_node(slot: &BidSlot, context: &Context) -> Option<OpenNode> {
    let status = slot.status.as_ref()?;
    let stays = status.phase.counts() && slot.spec.release.is_none();
    let name = status.node.as_deref().filter(|_| stays)?;
    let node = context.stores.node(name).filter(|node| takes_pods(node))?;
    let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
    let pods = context.stores.pods_on(name);
    let free = Resources::parse(allocatable).without(pods.iter().map(AsRef::as_ref));
    Some(OpenNode { free, pods })
}

/// Observes the pods that may need nodes. The engine is asked what a node of the BidNode is only if there are any.
/// `coming` are the types of nodes that are won and do not take pods yet.
async fn demand(
    bidnode: &BidNode,
    scope: &Scope,
    preempted: &[Arc<BidSlot>],
    coming: &[&str],
    context: &Context,
) -> Demand {
    // The stores change meanwhile, and show that a pod is terminating before they show its successor. So successors are read
    // before the terminating pods, and once more after them: none is counted beside its predecessor, and none is missed.
    let mut unschedulable = context.stores.unschedulable();
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
    let mut demand = Demand { unschedulable, displaced, siblings, template: None, coming: Vec::new() };
    if !demand.pods().is_empty() {
        demand.template = node_template(bidnode, scope, context).await;
        for type_name in coming {
            // Without a template nothing is counted.
            match context.engine().instance_type(type_name).await {
                Ok(it) => demand.coming.push(Resources::parse(&it.allocatable)),
                Err(_) => demand.template = None,
            }
        }
    }
    demand
}

/// Returns what a new node of a BidNode would be, if the engine says so.
async fn node_template(bidnode: &BidNode, scope: &Scope, context: &Context) -> Option<NodeTemplate> {
    let types = match &scope.instance_types[..] {
        [only] => vec![only.clone()],
        _ => {
            let markets = context.engine().markets(scope).await.ok()?;
            scope.winnable_types(markets.as_ref().map_or(&[], |markets| &markets.open[..]))
        }
    };
    let (mut labels, mut free) = (Vec::new(), Vec::new());
    for name in &types {
        let instance_type = context.engine().instance_type(name).await.ok()?;
        labels.push(labels_of_type(name, instance_type.labels.clone(), bidnode, scope, context));
        free.push(Resources::parse(&instance_type.allocatable));
    }
    Some(NodeTemplate {
        labels,
        taints: plan::node::taints(bidnode),
        free: Resources::smallest(free),
        min_gpus: bidnode.spec.min_requested_gpus,
    })
}

/// Returns the labels of a new node of this type. Its region is known if there is one to choose from.
fn labels_of_type(
    type_name: &str,
    mut labels: BTreeMap<String, String>,
    bidnode: &BidNode,
    scope: &Scope,
    context: &Context,
) -> BTreeMap<String, String> {
    labels.extend(plan::node::labels(bidnode));
    labels.extend(kubelet_labels(type_name));
    if let Some(sets) = &context.label_sets {
        let of_bidnode = plan::node::labels(bidnode).into_keys().collect();
        labels = sets.with_pools(|pools| plan::labels::with_set(labels, &of_bidnode, pools));
    }
    if let [region] = &scope.regions[..] {
        labels.insert(LABEL_REGION.to_owned(), region.clone());
    }
    labels
}

/// Observes a BidNode that is being deleted. The engine is asked for its bids when no slot is left.
pub(crate) async fn deletion(bidnode: &BidNode, slots: &[Arc<BidSlot>], context: &Context) -> Deletion {
    let has_finalizer = bidnode.finalizers().iter().any(|name| name == FINALIZER);
    let abandoned = bidnode.annotations().get(ANNOTATION_ABANDON).is_some_and(|value| value == "true");
    let bids = if has_finalizer && !abandoned && slots.is_empty() {
        context.engine().bids_of(bidnode).await.ok()
    } else {
        None
    };
    Deletion { has_finalizer, abandoned, has_slots: !slots.is_empty(), bids }
}
