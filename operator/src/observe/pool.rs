//! Observes a BidNode as a pool of nodes for pods: what a new node of it would be, and the nodes that it has.

use super::node::{startup_taint, takes_pods};
use super::pod::pod_view;
use super::status::registration_refused;
use crate::api::{
    ANNOTATIONS_DO_NOT_DISRUPT, BidNode, BidNodeStatus, BidSlot, LABEL_REGION, SlotPhase, UNHELPED_PODS_MAX,
};
use crate::context::Context;
use crate::plan;
use crate::plan::ceiling::{self, Markets};
use crate::plan::drain::Tier;
use crate::plan::packing::{Lack, OverdueNode, Pool};
use crate::plan::resources::Resources;
use crate::plan::room::{NodeTemplate, OpenNode, suits};
use crate::plan::scope::Scope;
use crate::provisioner::kubelet_labels;
use k8s_openapi::api::core::v1::{Node, Pod, Toleration};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state of the node of a slot, for pods.
#[derive(Clone, Debug)]
pub(crate) enum NodeState {
    /// No node is won, or the node goes.
    None,
    /// The node is won and not initialized. It is counted with the room that its type promises.
    Coming,
    /// The node is initialized, but it is cordoned or not ready.
    Closed,
    /// The node takes pods.
    Open {
        /// The node.
        node: OpenNode,
        /// The resources that it has without pods but those of daemon sets.
        empty: Resources,
    },
    /// The node has been ready for long and is not initialized.
    Overdue(OverdueNode),
}

/// Returns the pods on the node of a slot that would have to move: all but those of daemon sets.
pub(crate) fn moving_pods(slot: &BidSlot, context: &Context) -> Vec<Arc<Pod>> {
    let Some(name) = slot.status.as_ref().and_then(|status| status.node.as_deref()) else {
        return Vec::new();
    };
    context.stores.pods_on(name).into_iter().filter(moves).collect()
}

/// Returns true if people do not want the node of a slot to be given up by the operator's own decision, or a pod on it.
pub(crate) fn is_protected(slot: &BidSlot, context: &Context) -> bool {
    let Some(name) = slot.status.as_ref().and_then(|status| status.node.as_deref()) else { return false };
    let node = context.stores.node(name);
    node.is_some_and(|node| is_marked(node.annotations()))
        || context
            .stores
            .pods_on(name)
            .iter()
            .any(|pod| pod_view(pod).is_some() && is_marked(pod.annotations()))
}

fn is_marked(annotations: &BTreeMap<String, String>) -> bool {
    ANNOTATIONS_DO_NOT_DISRUPT.iter().any(|name| annotations.get(*name).is_some_and(|value| value == "true"))
}

fn moves(pod: &Arc<Pod>) -> bool {
    pod_view(pod).is_some_and(|pod| pod.tier < Tier::Daemon)
}

/// Returns the states of the nodes of a BidNode's slots.
pub(crate) async fn node_states(
    slots: &[Arc<BidSlot>],
    bidnode: &BidNode,
    now: Timestamp,
    context: &Context,
) -> Vec<NodeState> {
    let mut states = Vec::with_capacity(slots.len());
    for slot in slots {
        states.push(node_state(slot, bidnode, now, context).await);
    }
    states
}

/// Returns the state of the node of a slot. A node is initialized if it is ready, has its labels, and has every resource that its
/// type promises and no taint but those of its BidNode. If the engine does not say what the type promises, nothing is missing.
async fn node_state(slot: &BidSlot, bidnode: &BidNode, now: Timestamp, context: &Context) -> NodeState {
    let Some(status) = slot
        .status
        .as_ref()
        .filter(|status| status.allocation.is_some() && status.phase.counts() && slot.spec.release.is_none())
    else {
        return NodeState::None;
    };
    let is_ready = status.phase == SlotPhase::Ready;
    let node = status.node.as_deref().and_then(|name| context.stores.node(name));
    let Some(node) = node.filter(|node| takes_pods(node)) else {
        context.memory.forget_pods(&slot.uid().unwrap_or_default());
        return if is_ready { NodeState::Closed } else { NodeState::Coming };
    };
    let promised = match status.instance_type() {
        Some(name) => context.engine().instance_type(name).await.ok(),
        None => None,
    };
    let promised = promised.map(|it| Resources::parse(&it.allocatable)).unwrap_or_default();
    let Some(lack) = lack(&node, &promised, bidnode) else {
        return open_node(slot, &node, now, context).unwrap_or(NodeState::Coming);
    };
    let since = status.ready_time.as_ref().map(|time| now.duration_since(time.0));
    if since.is_some_and(|since| since >= context.limits().machine) {
        NodeState::Overdue(OverdueNode { name: node.name_any(), lack })
    } else {
        NodeState::Coming
    }
}

/// Returns what a node that takes pods lacks to be initialized.
fn lack(node: &Node, promised: &Resources, bidnode: &BidNode) -> Option<Lack> {
    let allocatable = node.status.iter().flat_map(|status| status.allocatable.iter().flatten());
    let missing = promised.lacking(&Resources::parse(allocatable)).map(Lack::Resource);
    missing.or_else(|| startup_taint(node, &plan::node::taints(bidnode)).map(Lack::Taint))
}

fn open_node(slot: &BidSlot, node: &Node, now: Timestamp, context: &Context) -> Option<NodeState> {
    let name = node.name_any();
    let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
    let pods = context.stores.pods_on(&name);
    let (moving, daemons): (Vec<_>, Vec<_>) = pods.iter().partition(|pod| moves(pod));
    let empty = Resources::parse(allocatable).without(daemons.into_iter().map(AsRef::as_ref));
    let moving: BTreeSet<String> = moving.into_iter().filter_map(|pod| pod.uid()).collect();
    let moving_pods = moving.len();
    let since = context.memory.same_pods_since(&slot.uid().unwrap_or_default(), moving, now);
    let node = OpenNode {
        free: Resources::parse(allocatable).without(pods.iter().map(AsRef::as_ref)),
        name,
        pods,
        moving_pods,
        is_settled: now.duration_since(since) >= plan::demand::SETTLED_AFTER,
    };
    Some(NodeState::Open { node, empty })
}

/// Observes a BidNode, whose slots have nodes in these states, as a pool of nodes. Returns `None` if the engine does not say what a node of it would be.
pub(crate) async fn pool(
    bidnode: &BidNode,
    slots: &[Arc<BidSlot>],
    states: &[NodeState],
    now: Timestamp,
    context: &Context,
) -> Option<Pool> {
    let uid = bidnode.uid().unwrap_or_default();
    let scope = context.scope_of(bidnode);
    let markets = context.engine().markets(&scope).await.ok()?;
    let open_markets = markets.as_ref().map_or(&[][..], |markets| &markets.open[..]);
    let types = match &scope.instance_types[..] {
        [only] => vec![only.clone()],
        _ => scope.winnable_types(open_markets),
    };
    let mut empty_nodes = BTreeMap::new();
    let mut template = NodeTemplate {
        labels: Vec::new(),
        taints: plan::node::taints(bidnode),
        promised: Resources::default(),
        free: Resources::default(),
        min_gpus: bidnode.spec.min_requested_gpus,
    };
    let mut promised = Vec::new();
    for name in &types {
        let instance_type = context.engine().instance_type(name).await.ok()?;
        template.labels.push(labels_of_type(name, instance_type.labels.clone(), bidnode, &scope, context));
        promised.push((name.clone(), Resources::parse(&instance_type.allocatable)));
    }
    template.promised = Resources::smallest(promised.iter().map(|(_, promised)| promised.clone()));
    let mut pool = Pool {
        name: format!("{}/{}", bidnode.namespace().unwrap_or_default(), bidnode.name_any()),
        weight: bidnode.spec.weight,
        price_micros: markets.as_ref().and_then(|markets| markets.quote.reference_micros),
        template,
        open: Vec::new(),
        coming: Vec::new(),
        overdue: Vec::new(),
        bids: 0,
        stale_bids: 0,
        spare: 0,
        not_helped: not_helped(bidnode.status.as_ref(), bidnode.metadata.generation),
        uid,
    };
    let mut coming = Vec::new();
    let (mut counting, mut unproven) = (0, 0);
    for (slot, state) in slots.iter().zip(states) {
        let status = slot.status.clone().unwrap_or_default();
        let is_leaving = slot.spec.release.is_some() || slot.metadata.deletion_timestamp.is_some();
        if is_leaving || !status.phase.counts() {
            continue;
        }
        counting += 1;
        let is_unproven = context.memory.is_unproven(&slot.uid().unwrap_or_default());
        unproven += usize::from(slot.spec.for_pods && (status.phase < SlotPhase::Ready || is_unproven));
        match state.clone() {
            // The bid of a gang is not one for pods.
            NodeState::None if bidnode.spec.gang => {}
            NodeState::None => {
                let created = slot.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
                let is_stale = now.duration_since(created) >= context.limits().next_pool;
                *(if is_stale { &mut pool.stale_bids } else { &mut pool.bids }) += 1;
            }
            NodeState::Coming => coming.push(slot),
            NodeState::Closed => {}
            NodeState::Open { node, empty } => {
                let kind = status.instance_type().unwrap_or(&slot.spec.instance_type).to_owned();
                let least = empty_nodes.remove(&kind).into_iter().chain([empty]);
                empty_nodes.insert(kind, Resources::smallest(least));
                pool.open.push(node);
            }
            NodeState::Overdue(node) => pool.overdue.push(node),
        }
    }
    let daemons = daemons(&pool.template, context);
    let usable = |kind: &str, promised: Resources| match context.memory.found(
        &pool.uid,
        kind,
        empty_nodes.get(kind),
    ) {
        Some(found) => promised.at_most(&found),
        None => promised.without(&daemons),
    };
    pool.template.free =
        Resources::smallest(promised.into_iter().map(|(kind, promised)| usable(&kind, promised)));
    for slot in coming {
        let status = slot.status.clone().unwrap_or_default();
        let kind = status.instance_type().unwrap_or(&slot.spec.instance_type).to_owned();
        let promised = Resources::parse(&context.engine().instance_type(&kind).await.ok()?.allocatable);
        let pods = moving_pods(slot, context);
        pool.coming.push(OpenNode {
            name: status.node.unwrap_or_default(),
            free: usable(&kind, promised).without(pods.iter().map(AsRef::as_ref)),
            moving_pods: pods.len(),
            pods,
            is_settled: false,
        });
    }
    if !bidnode.spec.gang && can_bid(bidnode, slots, markets.as_deref(), context) {
        let most = plan::unused::most(context.unused_nodes(bidnode).as_ref(), unproven, now);
        pool.spare = plan::bidnode::most_nodes(&bidnode.spec).saturating_sub(counting).min(most);
    }
    Some(pool)
}

/// Returns whether a BidNode can place a bid for pods: a market is open, `maxBid` allows a tick, neither the engine nor the API server
/// refuses what it asks for, and its status has room for another pod that a node does not help.
fn can_bid(bidnode: &BidNode, slots: &[Arc<BidSlot>], markets: Option<&Markets>, context: &Context) -> bool {
    let statuses = || slots.iter().filter_map(|slot| slot.status.as_ref());
    let Some(markets) = markets else { return false };
    let unhelped = bidnode.status.as_ref().map_or(0, |status| status.unhelped_pods.len());
    unhelped < UNHELPED_PODS_MAX
        && bidnode.metadata.deletion_timestamp.is_none()
        && ceiling::ceiling(&bidnode.spec, markets).ceiling_micros > 0
        && registration_refused(bidnode, statuses(), context).is_none()
        && !statuses().any(plan::status::is_bid_refused)
}

/// Returns the UIDs of the pods for which this generation of a BidNode bids no more.
fn not_helped(status: Option<&BidNodeStatus>, generation: Option<i64>) -> BTreeSet<String> {
    let pods = status.iter().flat_map(|status| &status.unhelped_pods);
    pods.filter(|pod| pod.generation == generation).map(|pod| pod.uid.clone()).collect()
}

/// Returns the pods of daemon sets that a new node would have.
fn daemons(template: &NodeTemplate, context: &Context) -> Vec<Pod> {
    let pods = context.stores.daemon_sets.all().into_iter().filter_map(|set| {
        let mut spec = set.spec.clone()?.template.spec?;
        // The controller of daemon sets adds these: its pods run on nodes that take no others.
        let everywhere = Toleration {
            key: Some("node.kubernetes.io/unschedulable".to_owned()),
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        };
        spec.tolerations.get_or_insert_default().push(everywhere);
        Some(Pod { spec: Some(spec), ..Pod::default() })
    });
    pods.filter(|pod| suits(pod, template)).collect()
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
