//! A look at a BidNode: how many slots it has and should have, and what it says of itself.

use super::context::Context;
use super::objects::{drop_finalizer, release, this_one};
use super::slot::is_above_max;
use super::{Error, node};
use crate::api::{
    ANNOTATION_ABANDON, ANNOTATION_EMPTY_AFTER, ANNOTATION_UNHEALTHY_AFTER, BidNode, BidNodeStatus, BidSlot,
    BidSlotSpec, FINALIZER, LABEL_BIDNODE, LABEL_UID, SlotPhase,
};
use crate::plan::count::{self, Leaving, Rules, SlotView};
use crate::plan::demand::{Resources, Shape, is_unschedulable, nodes_needed};
use crate::plan::drain::Tier;
use crate::plan::price;
use crate::plan::status::{self, Facts, SlotReport};
use crate::world::{not_ready_since, ordinal, pod_view};
use crate::{clock, fault};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
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
const EMPTY_AFTER: SignedDuration = SignedDuration::from_mins(10);
const UNHEALTHY_AFTER: SignedDuration = SignedDuration::from_mins(5);

pub(super) async fn reconcile(node: Arc<BidNode>, context: Arc<Context>) -> Result<Action, Error> {
    context.leads()?;
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
    let views: Vec<_> = slots.iter().map(|slot| view(slot, &context, now)).collect();
    let Some(needed) = needed(&node, &slots, &context).await else {
        // What pods need is not known: as many slots as there are is the best guess.
        report(&node, &slots, now, &context).await?;
        return Ok(Action::requeue(BEAT / 6));
    };
    let rules = Rules {
        min: node.spec.min_nodes as usize,
        max: node.spec.max_nodes as usize,
        needed,
        empty_after: duration(&node, ANNOTATION_EMPTY_AFTER, EMPTY_AFTER),
        unhealthy_after: duration(&node, ANNOTATION_UNHEALTHY_AFTER, UNHEALTHY_AFTER),
    };
    let changes = count::plan(&rules, &views);
    let pause = context.pause_after_failures(&node.uid().unwrap_or_default(), now);
    for ordinal in changes.create.iter().filter(|_| pause.is_none()) {
        create(&node, *ordinal, &context).await?;
        fault::point("slot-created");
    }
    for (name, reason) in &changes.release {
        if let Some(slot) = slots.iter().find(|slot| slot.name_any() == *name) {
            info!(slot = name, ?reason, "to be given up");
            release(slot, *reason, &context).await?;
        }
    }
    report(&node, &slots, now, &context).await?;
    let look = next_look(&rules, &views);
    Ok(Action::requeue(pause.filter(|_| !changes.create.is_empty()).map_or(look, |pause| pause.min(look))))
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
    let pods = status.node.as_deref().map_or(0, |name| {
        let moving = |pod: &Arc<Pod>| pod_view(pod).is_some_and(|pod| pod.tier < Tier::Daemon);
        context.world().pods_on(name).iter().filter(|pod| moving(pod)).count()
    });
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
    }
}

/// Nodes that unschedulable pods need; `None` while the engine does not say what a node of the type is.
async fn needed(node: &BidNode, slots: &[Arc<BidSlot>], context: &Context) -> Option<usize> {
    let pods: Vec<_> = context.world().pods.state().into_iter().filter(|pod| is_unschedulable(pod)).collect();
    if pods.is_empty() {
        return Some(0);
    }
    let kind = context.auction().instance_type(&node.spec.instance_type).await.ok()?;
    let mut labels = kind.labels.clone();
    labels.extend(node::labels(node));
    for (key, value) in [
        ("kubernetes.io/os", Some("linux")),
        ("kubernetes.io/arch", Some("amd64")),
        ("node.kubernetes.io/instance-type", Some(node.spec.instance_type.as_str())),
        ("topology.kubernetes.io/region", node.spec.region.as_deref()),
    ] {
        if let Some(value) = value {
            labels.insert(key.to_owned(), value.to_owned());
        }
    }
    let mut quantities: BTreeMap<String, Quantity> = kind.allocatable.clone();
    quantities.entry("pods".to_owned()).or_insert_with(|| Quantity("110".to_owned()));
    let shape = Shape { labels, taints: node::taints(node), free: Resources::parse(&quantities) };
    let ready: Vec<_> = slots.iter().filter_map(|slot| free_of(slot, context)).collect();
    Some(nodes_needed(pods.iter().map(AsRef::as_ref), &shape, &ready))
}

/// What is free on the ready node of a slot that stays.
fn free_of(slot: &BidSlot, context: &Context) -> Option<Resources> {
    let status = slot.status.as_ref()?;
    let stays = status.phase == SlotPhase::Ready && slot.spec.release.is_none();
    let name = status.node.as_deref().filter(|_| stays)?;
    let node = context.world().node(name)?;
    let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
    let pods = context.world().pods_on(name);
    Some(Resources::parse(allocatable).without(pods.iter().map(AsRef::as_ref)))
}

async fn create(node: &BidNode, ordinal: u32, context: &Context) -> Result<(), Error> {
    context.leads()?;
    let namespace = node.namespace().unwrap_or_default();
    let api: Api<BidSlot> = Api::namespaced(context.client.clone(), &namespace);
    let spec = BidSlotSpec {
        instance_type: node.spec.instance_type.clone(),
        region: node.spec.region.clone(),
        release: None,
    };
    let mut slot = BidSlot::new(&format!("{}-{ordinal}", node.name_any()), spec);
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
        context.leads()?;
        if slot.metadata.deletion_timestamp.is_none() {
            match api.delete(&slot.name_any(), &this_one(slot.as_ref())).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
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
        drop_finalizer(&bidnodes(node, context), node).await?;
        context.active_nodes().remove(&node.namespace().unwrap_or_default(), &node.name_any());
        context.forget(&node.uid().unwrap_or_default());
        return Ok(Action::await_change());
    }
    report(node, slots, clock::now(), context).await?;
    Ok(Action::requeue(Duration::from_secs(2)))
}

/// Writes the status, if it says anything else than before.
async fn report(
    node: &BidNode,
    slots: &[Arc<BidSlot>],
    now: Timestamp,
    context: &Context,
) -> Result<(), Error> {
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
        return Ok(());
    }
    if new.average_price != was.average_price {
        context.set_priced(&uid, now);
    }
    write(node, &new, context).await
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
    bidnodes(node, context).patch_status(&node.name_any(), &params, &Patch::Apply(patch)).await?;
    Ok(())
}
