//! A look at a BidNode: how many slots it has and should have, and what it says of itself.

use super::context::Context;
use super::objects::{drop_finalizer, release, remove};
use super::slot::is_above_max;
use super::{Error, node};
use crate::api::{
    ANNOTATION_ABANDON, ANNOTATION_EMPTY_AFTER, ANNOTATION_UNHEALTHY_AFTER, BidNode, BidNodeStatus, BidSlot,
    BidSlotSpec, FINALIZER, LABEL_BIDNODE, LABEL_REGION, LABEL_UID, SlotPhase,
};
use crate::plan::count::{self, Leaving, Rules, SlotView};
use crate::plan::demand::{self, Resources, Shape};
use crate::plan::drain::Tier;
use crate::plan::price;
use crate::plan::status::{self, Facts, SlotReport};
use crate::provision::kubelet_labels;
use crate::world::{is_node_ready, not_ready_since, ordinal, pod_view, takes_pods};
use crate::{clock, fault};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Everything is looked at again at least as often, give or take a tenth.
const BEAT: Duration = Duration::from_secs(60);
/// How often a status is written of which only numbers move, and of which not even those do.
const NUMBERS_BEAT: SignedDuration = SignedDuration::from_secs(1);
const DETAILS_BEAT: SignedDuration = SignedDuration::from_secs(5);
const EMPTY_AFTER: SignedDuration = SignedDuration::from_mins(10);
const UNHEALTHY_AFTER: SignedDuration = SignedDuration::from_mins(5);

pub(super) async fn reconcile(node: Arc<BidNode>, context: Arc<Context>) -> Result<Action, Error> {
    context.leads()?;
    let node = context.bidnodes.newest(node);
    let slots = context.world().slots_of(&node);
    if node.metadata.deletion_timestamp.is_some() {
        return end(&node, &slots, &context).await;
    }
    if !node.finalizers().iter().any(|name| name == FINALIZER) {
        add_finalizer(&node, &context).await?;
        return Ok(Action::await_change());
    }
    let seen = node.status.as_ref().and_then(|status| status.observed_generation);
    if seen != node.metadata.generation {
        // What it asks for is different: its slots amend their bids and relabel their nodes.
        for slot in &slots {
            context.wakes().slot(ObjectRef::from_obj(slot.as_ref()));
        }
    }
    let now = clock::now();
    let mut views: Vec<_> = slots.iter().map(|slot| view(slot, &context, now)).collect();
    let rooms: Vec<_> = slots.iter().map(|slot| free_of(slot, &context)).collect();
    for index in 0..views.len() {
        views[index].fits_elsewhere =
            is_of_pair(&views[index], &views) && fits(index, &slots, &rooms, &context);
    }
    let going = slots.iter().zip(&views).filter(|(_, view)| view.is_preempted());
    let displaced: Vec<_> = going.flat_map(|(slot, _)| moving_pods(slot, &context)).collect();
    let ready: Vec<_> = rooms.into_iter().flatten().collect();
    let Some(needed) = needed(&node, &displaced, &ready, &context).await else {
        // What pods need is not known: as many slots as there are is the best guess.
        let early = report(&node, &slots, now, &context).await?;
        return Ok(Action::requeue(early.unwrap_or(BEAT / 6)));
    };
    let rules = Rules {
        min: node.spec.min_nodes as usize,
        max: node.spec.max_nodes as usize,
        needed,
        empty_after: duration(&node, ANNOTATION_EMPTY_AFTER, EMPTY_AFTER),
        unhealthy_after: duration(&node, ANNOTATION_UNHEALTHY_AFTER, UNHEALTHY_AFTER),
    };
    context.set_target(&node.uid().unwrap_or_default(), count::target(&rules, &views));
    let changes = count::plan(&rules, &views);
    let pause = context.pause_after_failures(&node.uid().unwrap_or_default(), now);
    for new in changes.create.iter().filter(|_| pause.is_none()) {
        create(&node, new, &context).await?;
        fault::point("slot-created");
    }
    for (name, reason) in &changes.release {
        if let Some(slot) = slots.iter().find(|slot| slot.name_any() == *name) {
            info!(slot = name, ?reason, "to be given up");
            release(slot, *reason, &context).await?;
        }
    }
    let early = report(&node, &slots, now, &context).await?;
    let pause = pause.filter(|_| !changes.create.is_empty());
    let look = [early, pause].into_iter().flatten().fold(next_look(&rules, &views), Duration::min);
    Ok(Action::requeue(look))
}

/// Before the next node is empty, or not ready, for long enough.
fn next_look(rules: &Rules, slots: &[SlotView]) -> Duration {
    let empty = slots.iter().filter_map(|slot| slot.empty_for).map(|span| rules.empty_after - span);
    let sick = slots.iter().filter_map(|slot| slot.not_ready_for).map(|span| rules.unhealthy_after - span);
    let soonest = empty.chain(sick).filter(|left| left.is_positive()).min();
    let beat = BEAT.mul_f64(0.9 + 0.2 * fastrand::f64());
    soonest
        .and_then(|left| Duration::try_from(left).ok())
        .map_or(beat, |left| beat.min(left + Duration::from_millis(50)))
}

fn duration(node: &BidNode, annotation: &str, default: SignedDuration) -> SignedDuration {
    let Some(text) = node.annotations().get(annotation) else { return default };
    let parsed = text
        .parse::<kube::core::Duration>()
        .ok()
        .and_then(|it| SignedDuration::try_from(Duration::from(it)).ok());
    parsed.unwrap_or_else(|| {
        warn!(bidnode = node.name_any(), annotation, text, "is no duration as in 10m");
        default
    })
}

fn view(slot: &BidSlot, context: &Context, now: Timestamp) -> SlotView {
    let status = slot.status.clone().unwrap_or_default();
    let node = status.node.as_deref().and_then(|name| context.world().node(name));
    let ready = status.phase == SlotPhase::Ready;
    // Pods may be bound before the slot says that its node is ready.
    let pods = moving_pods(slot, context).len();
    let empty_since = context.empty_since(&slot.uid().unwrap_or_default(), ready && pods == 0, now);
    let not_ready = node.filter(|_| ready).and_then(|node| not_ready_since(&node));
    SlotView {
        name: slot.name_any(),
        ordinal: ordinal(&slot.name_any()),
        phase: status.phase,
        leaving: match slot.spec.release {
            _ if slot.metadata.deletion_timestamp.is_some() => Some(Leaving::Deleted),
            Some(reason) => Some(Leaving::Release(reason)),
            None => None,
        },
        holds: status.allocation.is_some(),
        pods,
        empty_for: empty_since.map(|since| now.duration_since(since)),
        not_ready_for: not_ready.map(|since| now.duration_since(since)),
        replaces: slot.spec.replaces.clone(),
        fits_elsewhere: false,
    }
}

/// Pods on the node of a slot that would have to move; those of daemon sets do not.
fn moving_pods(slot: &BidSlot, context: &Context) -> Vec<Arc<Pod>> {
    let Some(name) = slot.status.as_ref().and_then(|status| status.node.as_deref()) else {
        return Vec::new();
    };
    let moves = |pod: &Arc<Pod>| pod_view(pod).is_some_and(|pod| pod.tier < Tier::Daemon);
    context.world().pods_on(name).into_iter().filter(moves).collect()
}

/// It is in the place of another, or another is in its.
fn is_of_pair(slot: &SlotView, slots: &[SlotView]) -> bool {
    slot.replaces.is_some() || slots.iter().any(|other| other.replaces.as_ref() == Some(&slot.name))
}

/// Whether the pods of a slot's node would find room on the others that are ready.
fn fits(index: usize, slots: &[Arc<BidSlot>], rooms: &[Option<Resources>], context: &Context) -> bool {
    let others = rooms.iter().enumerate().filter(|(other, _)| *other != index);
    let others: Vec<_> = others.filter_map(|(_, room)| room.clone()).collect();
    demand::fit(moving_pods(&slots[index], context).iter().map(AsRef::as_ref), &others)
}

/// Nodes that pods need beside the ready ones: unschedulable pods, and those that are displaced. `None` while the
/// engine does not say what a node of the type is.
async fn needed(
    node: &BidNode,
    displaced: &[Arc<Pod>],
    ready: &[Resources],
    context: &Context,
) -> Option<usize> {
    let unschedulable = context.world().unschedulable();
    let (asking, going): (Vec<_>, Vec<_>) =
        (unschedulable.iter().map(AsRef::as_ref).collect(), displaced.iter().map(AsRef::as_ref).collect());
    let pods = demand::seekers(&asking, &going);
    if pods.is_empty() {
        return Some(0);
    }
    let kind = context.auction().instance_type(&node.spec.instance_type).await.ok()?;
    let mut labels = kind.labels.clone();
    labels.extend(node::labels(node));
    labels.extend(kubelet_labels(&node.spec.instance_type));
    labels.extend(node.spec.region.clone().map(|region| (LABEL_REGION.to_owned(), region)));
    let shape = Shape { labels, taints: node::taints(node), free: Resources::parse(&kind.allocatable) };
    Some(demand::nodes_needed(pods, &shape, ready))
}

/// What is free on the node of a slot that stays, if pods can be bound to it.
fn free_of(slot: &BidSlot, context: &Context) -> Option<Resources> {
    let status = slot.status.as_ref()?;
    let stays = status.phase == SlotPhase::Ready && slot.spec.release.is_none();
    let name = status.node.as_deref().filter(|_| stays)?;
    let node = context.world().node(name).filter(|node| takes_pods(node))?;
    let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
    let pods = context.world().pods_on(name);
    Some(Resources::parse(allocatable).without(pods.iter().map(AsRef::as_ref)))
}

async fn create(node: &BidNode, new: &count::New, context: &Context) -> Result<(), Error> {
    context.leads()?;
    let namespace = node.namespace().unwrap_or_default();
    let api: Api<BidSlot> = Api::namespaced(context.client.clone(), &namespace);
    let spec = BidSlotSpec {
        instance_type: node.spec.instance_type.clone(),
        region: node.spec.region.clone(),
        replaces: new.replaces.clone(),
        release: None,
    };
    let mut slot = BidSlot::new(&format!("{}-{}", node.name_any(), new.ordinal), spec);
    slot.metadata = ObjectMeta {
        owner_references: node.controller_owner_ref(&()).map(|owner| vec![owner]),
        finalizers: Some(vec![FINALIZER.to_owned()]),
        labels: Some(BTreeMap::from([
            (LABEL_BIDNODE.to_owned(), node.name_any()),
            (LABEL_UID.to_owned(), node.uid().unwrap_or_default()),
        ])),
        ..slot.metadata
    };
    match api.create(&PostParams::default(), &slot).await {
        Ok(_) => Ok(()),
        // Our list was old.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn add_finalizer(node: &BidNode, context: &Context) -> Result<(), Error> {
    let mut finalizers = node.finalizers().to_vec();
    finalizers.push(FINALIZER.to_owned());
    let patch = json!({"metadata": {"resourceVersion": node.resource_version(), "finalizers": finalizers}});
    bidnodes(node, context).patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

fn bidnodes(node: &BidNode, context: &Context) -> Api<BidNode> {
    Api::namespaced(context.client.clone(), &node.namespace().unwrap_or_default())
}

/// Bids are cancelled and nodes given back; the object goes when the engine says that nothing is left.
async fn end(node: &BidNode, slots: &[Arc<BidSlot>], context: &Context) -> Result<Action, Error> {
    if !node.finalizers().iter().any(|name| name == FINALIZER) {
        context.active_nodes().remove(&node.namespace().unwrap_or_default(), &node.name_any());
        return Ok(Action::await_change());
    }
    let api: Api<BidSlot> = Api::namespaced(context.client.clone(), &node.namespace().unwrap_or_default());
    let abandoned = node.annotations().get(ANNOTATION_ABANDON).is_some_and(|value| value == "true");
    for slot in slots {
        if slot.metadata.deletion_timestamp.is_none() {
            remove(&api, slot.as_ref(), context).await?;
        }
        if abandoned {
            drop_finalizer(&api, slot.as_ref()).await?;
        }
    }
    let over =
        abandoned || (slots.is_empty() && context.auction().has_nothing_of(node).await.unwrap_or(false));
    if over {
        if abandoned {
            warn!(bidnode = node.name_any(), "abandoned: bids and nodes may be left at the engine");
        }
        // Before the object goes: nobody sees the series without it.
        context.active_nodes().remove(&node.namespace().unwrap_or_default(), &node.name_any());
        drop_finalizer(&bidnodes(node, context), node).await?;
        context.forget(&node.uid().unwrap_or_default());
        return Ok(Action::await_change());
    }
    report(node, slots, clock::now(), context).await?;
    Ok(Action::requeue(Duration::from_secs(2)))
}

/// Writes the status, if it says anything else than before, and what is of less interest less often; then returns when
/// it may be.
async fn report(
    node: &BidNode,
    slots: &[Arc<BidSlot>],
    now: Timestamp,
    context: &Context,
) -> Result<Option<Duration>, Error> {
    let was = node.status.clone().unwrap_or_default();
    let uid = node.uid().unwrap_or_default();
    let statuses: Vec<_> = slots.iter().map(|slot| slot.status.clone().unwrap_or_default()).collect();
    let names: Vec<_> = slots.iter().map(|slot| slot.name_any()).collect();
    let reports: Vec<_> = slots
        .iter()
        .zip(&statuses)
        .zip(&names)
        .map(|((slot, status), name)| SlotReport {
            name,
            status,
            leaving: slot.spec.release.is_some() || slot.metadata.deletion_timestamp.is_some(),
            node_ready: is_node_ready(status, context.world()),
            price_micros: status.bid.and_then(|bid| {
                context.auction().mirror().bid(bid)?.allocation.and_then(|held| held.price_micros)
            }),
        })
        .collect();
    let fault = context.auction().mirror().fault();
    let offer = match (&fault, node.metadata.deletion_timestamp.is_some()) {
        (None, false) => context.auction().markets(&node.spec).await.ok().flatten(),
        (Some(_), _) | (_, true) => None,
    }
    .map(|markets| price::offer(&node.spec, &markets.quote));
    let above: Vec<_> = statuses.iter().filter(|status| is_above_max(status, node.spec.max_bid)).collect();
    let waits = above
        .iter()
        .filter_map(|status| status.protected_until.as_ref().map(|time| time.0))
        .filter(|until| *until > now)
        .max();
    let facts = Facts {
        uid: &uid,
        generation: node.metadata.generation,
        min_nodes: node.spec.min_nodes as usize,
        deleting: node.metadata.deletion_timestamp.is_some(),
        now,
        auction_fault: fault,
        below_floor_micros: offer.and_then(|offer| Some((offer.ceiling_micros, offer.below_floor_micros?))),
        above_max_bid: !above.is_empty(),
        max_bid_waits_until: waits,
    };
    let new = status::status(&was, &facts, &reports, context.priced(&uid));
    context.active_nodes().set(node, new.active_nodes);
    if node.status.is_some() && new == was {
        return Ok(None);
    }
    let turned = new.phase != was.phase || new.observed_generation != was.observed_generation;
    let counts =
        |status: &BidNodeStatus| (status.active_nodes, status.pending_bids, status.conditions.clone());
    let beat = match (turned, counts(&new) == counts(&was)) {
        (true, _) => SignedDuration::ZERO,
        (false, false) => NUMBERS_BEAT,
        (false, true) => DETAILS_BEAT,
    };
    let left = context.reported(&uid).map(|when| beat - now.duration_since(when));
    if let Some(left) = left.filter(|left| left.is_positive()) {
        return Ok(Duration::try_from(left).ok());
    }
    if new.average_price != was.average_price {
        context.set_priced(&uid, now);
    }
    write(node, &new, context).await?;
    context.set_reported(&uid, now);
    Ok(None)
}

async fn write(node: &BidNode, status: &BidNodeStatus, context: &Context) -> Result<(), Error> {
    context.leads()?;
    let patch = json!({
        "apiVersion": "kubebid.io/v1",
        "kind": "BidNode",
        "metadata": {"name": node.name_any(), "resourceVersion": node.resource_version()},
        "status": status,
    });
    let params = PatchParams::apply("kubebid-bidnodes").force();
    let node = bidnodes(node, context).patch_status(&node.name_any(), &params, &Patch::Apply(patch)).await?;
    context.bidnodes.put(node);
    Ok(())
}
