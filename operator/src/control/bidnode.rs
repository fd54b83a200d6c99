//! Reconciles a BidNode: the number of its slots, and its status.

use super::context::Context;
use super::objects::{drop_finalizer, patched, posted, release, remove};
use super::slot::{instant, is_above_max};
use super::{Error, key_of, node, settle};
use crate::api::{
    ANNOTATION_ABANDON, ANNOTATION_EMPTY_AFTER, ANNOTATION_UNHEALTHY_AFTER, BidNode, BidNodeStatus, BidSlot,
    BidSlotSpec, FINALIZER, LABEL_BIDNODE, LABEL_REGION, LABEL_UID, SlotPhase,
};
use crate::plan::count::{self, Changes, Leaving, Rules, SlotView};
use crate::plan::demand::{self, Resources, Room, Shape};
use crate::plan::drain::Tier;
use crate::plan::price;
use crate::plan::status::{self, Facts, SlotReport, Supply};
use crate::provision::kubelet_labels;
use crate::world::{is_ready, node_view, not_ready_since, ordinal, pod_view, takes_pods};
use crate::{clock, fault};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// Everything is looked at again at least as often, give or take a tenth.
const BEAT: Duration = Duration::from_secs(60);
/// `NUMBERS_BEAT` is the least time between writes if counts or conditions changed, `DETAILS_BEAT` if only other
/// fields did.
const NUMBERS_BEAT: SignedDuration = SignedDuration::from_secs(1);
const DETAILS_BEAT: SignedDuration = SignedDuration::from_secs(5);
/// The interval at which a cost is written of which nothing else has changed.
const COST_BEAT: SignedDuration = SignedDuration::from_mins(10);
/// The time after a notice in which taints are written before replacement slots are created: a node that stays
/// untainted holds nothing up for longer.
const TAINTS_FIRST: SignedDuration = SignedDuration::from_secs(2);
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
            context.end_backoff(&key_of::<BidSlot>(&slot.namespace().unwrap_or_default(), &slot.name_any()));
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
    let going: Vec<_> = going.map(|(slot, _)| Arc::clone(slot)).collect();
    let ready: Vec<_> = rooms.iter().flatten().map(Open::room).collect();
    let observed_min = node.status.as_ref().and_then(|status| status.observed_min_nodes);
    let Some(needed) = needed(&node, &going, &ready, &context).await else {
        // What pods need is not known: as many slots as there are is the best guess.
        let early = report(&node, &slots, observed_min, now, &context).await?;
        return Ok(Action::requeue(early.unwrap_or(BEAT / 6)));
    };
    // Given up for once: the status that says so may not be seen yet.
    let uid = node.uid().unwrap_or_default();
    let taken_off = observed_min.map_or(0, |observed| observed.saturating_sub(node.spec.min_nodes));
    let is_new = taken_off > 0 && context.is_new_generation(&uid, node.metadata.generation);
    let rules = Rules {
        min: node.spec.min_nodes as usize,
        max: node.spec.max_nodes as usize,
        needed,
        fewer: if is_new { taken_off as usize } else { 0 },
        empty_after: duration(&node, ANNOTATION_EMPTY_AFTER, EMPTY_AFTER),
        unhealthy_after: duration(&node, ANNOTATION_UNHEALTHY_AFTER, UNHEALTHY_AFTER),
    };
    context.set_target(&uid, count::target(&rules, &views));
    let changes = count::plan(&rules, &views);
    if changes != Changes::default() {
        debug!(bidnode = node.name_any(), ?rules, ?views, ?changes, "slots change");
    }
    let pause = context.pause_after_failures(&uid, now);
    let refused = registration_refused(&node, &slots, &context);
    let taints = taints_left(&slots, now, &context).filter(|_| !changes.create.is_empty());
    let may_create = pause.is_none() && refused.is_none() && taints.is_none();
    for new in changes.create.iter().filter(|_| may_create) {
        create(&node, new, &context).await?;
        fault::point("slot-created");
    }
    for (name, reason) in &changes.release {
        if let Some(slot) = slots.iter().find(|slot| slot.name_any() == *name) {
            info!(slot = name, ?reason, "to be given up");
            release(slot, *reason, &context).await?;
        }
    }
    context.set_scaled(&uid, node.metadata.generation);
    let early = report(&node, &slots, Some(node.spec.min_nodes), now, &context).await?;
    let pause = pause.filter(|_| !changes.create.is_empty());
    let look = [early, pause, taints].into_iter().flatten().fold(next_look(&rules, &views), Duration::min);
    Ok(Action::requeue(look))
}

/// Returns when to look again while a node under notice has no taint yet. Slots in their place are made after that:
/// they would keep the API server busy, which the taints wait for.
fn taints_left(slots: &[Arc<BidSlot>], now: Timestamp, context: &Context) -> Option<Duration> {
    let is_left = |slot: &Arc<BidSlot>| {
        let status = slot.status.as_ref()?;
        let held =
            context.auction().bid_cache().bid(status.bid?)?.allocation.filter(|held| held.ended.is_none())?;
        let (started, _) = held.notice?;
        let waited = now.duration_since(instant(started)?);
        let node = context.node_of(status).filter(|_| status.phase == SlotPhase::Ready)?;
        (waited < TAINTS_FIRST && !node_view(&node, true).leaving).then_some(())
    };
    slots.iter().find_map(is_left).map(|()| Duration::from_millis(100))
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

/// Returns whether the pods of a slot's node would find room on the others that are ready.
fn fits(index: usize, slots: &[Arc<BidSlot>], rooms: &[Option<Open>], context: &Context) -> bool {
    let others = rooms.iter().enumerate().filter(|(other, _)| *other != index);
    let others: Vec<_> = others.filter_map(|(_, open)| open.as_ref().map(Open::room)).collect();
    let pods = moving_pods(&slots[index], context);
    demand::fit(pods.iter().map(AsRef::as_ref), &others)
}

/// A node that pods can be bound to.
struct Open {
    free: Resources,
    pods: Vec<Arc<Pod>>,
}

impl Open {
    fn room(&self) -> Room<'_> {
        Room { free: self.free.clone(), pods: self.pods.iter().map(AsRef::as_ref).collect() }
    }
}

fn registration_refused(node: &BidNode, slots: &[Arc<BidSlot>], context: &Context) -> Option<String> {
    let was = node.status.clone().unwrap_or_default();
    let statuses: Vec<_> = slots.iter().filter_map(|slot| slot.status.clone()).collect();
    let generation = node.metadata.generation;
    let heard = context.registration(&node.uid().unwrap_or_default(), generation);
    heard.unwrap_or_else(|| status::registration_refused(&was, generation, &statuses))
}

/// Nodes that pods need beside the ready ones: unschedulable pods, and those that are displaced. `None` while the
/// engine does not say what a node of the type is.
async fn needed(
    node: &BidNode,
    going: &[Arc<BidSlot>],
    ready: &[Room<'_>],
    context: &Context,
) -> Option<usize> {
    // The watch goes on meanwhile, and tells that a pod is ending before it tells of its successor. So successors are read
    // before those that are ending, and once more after them: none is counted beside its predecessor, and none is missed.
    let mut unschedulable = context.world().unschedulable();
    let displaced: Vec<_> = going.iter().flat_map(|slot| moving_pods(slot, context)).collect();
    let ending = displaced.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some());
    let controllers: BTreeSet<_> = ending.filter_map(|pod| demand::controller(pod)).collect();
    let siblings: Vec<_> =
        controllers.into_iter().flat_map(|controller| context.world().pods_under(controller)).collect();
    let known: BTreeSet<_> = unschedulable.iter().filter_map(|pod| pod.uid()).collect();
    let late = siblings.iter().filter(|pod| demand::is_unschedulable(pod));
    unschedulable.extend(late.filter(|pod| pod.uid().is_none_or(|uid| !known.contains(&uid))).cloned());
    let (asking, moving): (Vec<_>, Vec<_>) =
        (unschedulable.iter().map(AsRef::as_ref).collect(), displaced.iter().map(AsRef::as_ref).collect());
    let pods = demand::seekers(&asking, &moving, &siblings);
    if pods.is_empty() {
        return Some(0);
    }
    let kind = context.auction().instance_type(&node.spec.instance_type).await.ok()?;
    let mut labels = kind.labels.clone();
    labels.extend(node::labels(node));
    labels.extend(kubelet_labels(&node.spec.instance_type));
    labels.extend(node.spec.region.clone().map(|region| (LABEL_REGION.to_owned(), region)));
    let shape = Shape {
        labels,
        taints: node::taints(node),
        free: Resources::parse(&kind.allocatable),
        min_gpus: node.spec.min_requested_gpus,
    };
    let names: Vec<_> = pods.iter().map(|pod| pod.name_any()).collect();
    let needed = demand::nodes_needed(pods, &shape, ready);
    debug!(bidnode = node.name_any(), needed, rooms = ready.len(), ?names, "pods want nodes");
    Some(needed)
}

/// Returns what is free on the node of a slot that stays, if pods can be bound to it: that may be before its slot
/// is ready.
fn free_of(slot: &BidSlot, context: &Context) -> Option<Open> {
    let status = slot.status.as_ref()?;
    let stays = status.phase.counts() && slot.spec.release.is_none();
    let name = status.node.as_deref().filter(|_| stays)?;
    let node = context.world().node(name).filter(|node| takes_pods(node))?;
    let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
    let pods = context.world().pods_on(name);
    let free = Resources::parse(allocatable).without(pods.iter().map(AsRef::as_ref));
    Some(Open { free, pods })
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
    match api.create(&posted(), &slot).await {
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
    bidnodes(node, context).patch(&node.name_any(), &patched(), &Patch::Merge(patch)).await?;
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
    if abandoned || (slots.is_empty() && settle_all(node, context).await?) {
        if abandoned {
            warn!(bidnode = node.name_any(), "abandoned: bids and nodes may be left at the engine");
        }
        // Before the object goes: nobody sees the series without it.
        context.active_nodes().remove(&node.namespace().unwrap_or_default(), &node.name_any());
        drop_finalizer(&bidnodes(node, context), node).await?;
        context.forget(&node.uid().unwrap_or_default());
        return Ok(Action::await_change());
    }
    report(node, slots, Some(node.spec.min_nodes), clock::now(), context).await?;
    Ok(Action::requeue(Duration::from_secs(2)))
}

/// Ends what the engine has of a BidNode without slots. Returns true if that was nothing.
async fn settle_all(node: &BidNode, context: &Context) -> Result<bool, Error> {
    let Ok(leases) = context.auction().leases_of(node).await else { return Ok(false) };
    for (bid, slot) in &leases {
        settle::end(*bid, slot, Some(node), context).await?;
    }
    Ok(leases.is_empty())
}

/// Writes the status, if it says anything else than before, and what is of less interest less often; then returns when
/// it may be.
async fn report(
    node: &BidNode,
    slots: &[Arc<BidSlot>],
    observed_min_nodes: Option<u32>,
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
            node_ready: context.node_of(status).is_some_and(|node| is_ready(&node)),
            price_micros: status.bid.and_then(|bid| {
                context.auction().bid_cache().bid(bid)?.allocation.and_then(|held| held.price_micros)
            }),
        })
        .collect();
    let fault = context.auction().bid_cache().fault();
    let deleting = node.metadata.deletion_timestamp.is_some();
    let supply = match &fault {
        None if !deleting => supply(node, context).await,
        Some(_) | None => Supply::Unknown,
    };
    let cost_micros = if fault.is_none() { context.auction().cost(node).await.ok() } else { None };
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
        deleting,
        now,
        auction_fault: fault,
        supply,
        registration_refused: registration_refused(node, slots, context),
        cost_micros,
        cost_due: context.is_cost_due(&uid, now, COST_BEAT),
        observed_min_nodes,
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
    if new.cost != was.cost {
        context.set_cost_written(&uid, now);
    }
    write(node, &new, context).await?;
    context.set_reported(&uid, now);
    Ok(None)
}

/// Returns what the markets have to say to the ceiling of a BidNode.
async fn supply(node: &BidNode, context: &Context) -> Supply {
    match context.auction().markets(&node.spec).await {
        Err(_) => Supply::Unknown,
        Ok(None) => Supply::NoMarket,
        Ok(Some(markets)) if markets.units == 0 => Supply::NoUnit,
        Ok(Some(markets)) => {
            let offer = price::offer(&node.spec, &markets.quote);
            Supply::Offered {
                ceiling_micros: offer.ceiling_micros,
                below_floor_micros: offer.below_floor_micros,
            }
        }
    }
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
