//! The steps of a slot, done. Each may be done again.

use super::context::Context;
use super::slot::Scene;
use super::{Error, drain, node};
use crate::api::{BidNode, BidSlot, BidSlotStatus, FINALIZER, ReleaseReason, SlotPhase, TAINT_LEAVING, usd};
use crate::auction::Amended;
use crate::plan::slot::Step;
use crate::provision::{Machine, Order};
use crate::world::pod_view;
use crate::{clock, fault, metrics};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::events::EventType;
use kubebid_strategy::AtNotice;
use serde_json::json;
use std::time::Duration;
use tracing::info;

/// What came of a step.
pub(super) enum Outcome {
    /// The slot as it is written.
    Done(Box<BidSlot>),
    /// Nothing to be seen before this time.
    Later(Duration),
    /// The slot is gone.
    Gone,
}

/// The measure of how often is asked after what no event tells.
const MACHINE_BEAT: Duration = Duration::from_secs(1);

pub(super) async fn act(step: &Step, scene: Scene, context: &Context) -> Result<Outcome, Error> {
    let word = word(step);
    metrics::stepped(word);
    tracing::debug!(slot = scene.slot.name_any(), step = word, "step");
    let mut status = scene.status();
    let now = Time(clock::now());
    match step {
        Step::Begin { ceiling_micros } => {
            status.attempt += 1;
            status.ceiling_micros = Some(*ceiling_micros);
            status.bid_time = Some(now);
            let done = write(scene.slot, status, context).await;
            fault::point("begun");
            done
        }
        Step::Place => place(scene, status, context).await,
        Step::Amend { ceiling_micros } => amend(scene, status, *ceiling_micros, context).await,
        Step::Provision => provision(scene, status, context).await,
        Step::Register => {
            let (Some(node), Some(owner)) = (&scene.node, &scene.owner) else { return done(scene.slot) };
            if let Some(patch) = node::registration(node, owner, &scene) {
                patch_node(node, &patch, context).await?;
                fault::point("registered");
            }
            status.node_uid = node.uid();
            write(scene.slot, status, context).await
        }
        Step::ReportReady => {
            if let Some(allocation) = status.allocation {
                context.auction().report_ready(&scene.slot, allocation).await?;
                fault::point("reported");
            }
            if status.ready_time.is_none() {
                status.ready_time = Some(now);
            }
            write(scene.slot, status, context).await
        }
        Step::AnswerNotice { deadline } => answer_notice(scene, status, *deadline, context).await,
        Step::Taint => {
            if let Some(node) = &scene.node {
                patch_node(node, &node::with_leaving(node), context).await?;
                if let Some(after) = since_notice(&scene) {
                    metrics::tainted(after);
                }
                fault::point("tainted");
            }
            done(scene.slot)
        }
        Step::Untaint => {
            if let Some(node) = &scene.node {
                patch_node(node, &node::without(node, TAINT_LEAVING), context).await?;
                context
                    .tell(node.as_ref(), EventType::Normal, "NoticeRescinded", "the node stays".to_owned())
                    .await;
            }
            done(scene.slot)
        }
        Step::Drain => {
            let deadline = scene.status().deadline.map(|time| time.0);
            let began = scene.status().drain_time.map_or(now.0, |time| time.0);
            Ok(Outcome::Later(drain::drain(&scene, deadline, began, context).await?))
        }
        Step::DeleteNode => {
            if let Some(node) = &scene.node {
                delete_node(node, context).await?;
                fault::point("node-deleted");
            }
            done(scene.slot)
        }
        Step::Deprovision => {
            let id = scene.slot.uid().unwrap_or_default();
            context.provisioner().delete(&id, status.node.as_deref()).await?;
            status.ordered = false;
            write(scene.slot, status, context).await
        }
        Step::Cancel => {
            if let Some(bid) = status.bid {
                context.auction().cancel(&scene.slot, bid).await?;
                fault::point("cancelled");
            }
            done(scene.slot)
        }
        Step::Move { phase, reason } => moved(scene, status, *phase, reason, context).await,
        Step::End { reason } => {
            let given_back = reason == "RELEASED";
            status.phase = if given_back { SlotPhase::Released } else { SlotPhase::Failed };
            if !given_back || status.reason.is_none() {
                status.reason = Some(reason.clone());
            }
            status.since = Some(now);
            write(scene.slot, status, context).await
        }
        Step::Forget => forget(scene, context).await,
        Step::Wait(_) => done(scene.slot),
    }
}

fn word(step: &Step) -> &'static str {
    match step {
        Step::Begin { .. } => "begin",
        Step::Place => "place",
        Step::Amend { .. } => "amend",
        Step::Provision => "provision",
        Step::Register => "register",
        Step::ReportReady => "report_ready",
        Step::AnswerNotice { .. } => "answer_notice",
        Step::Taint => "taint",
        Step::Untaint => "untaint",
        Step::Drain => "drain",
        Step::DeleteNode => "delete_node",
        Step::Deprovision => "deprovision",
        Step::Cancel => "cancel",
        Step::Move { .. } => "move",
        Step::End { .. } => "end",
        Step::Forget => "forget",
        Step::Wait(_) => "wait",
    }
}

fn done(slot: BidSlot) -> Result<Outcome, Error> {
    Ok(Outcome::Done(Box::new(slot)))
}

/// How old a bid that was begun may be before it is looked for: it may have been placed by who crashed.
const FRESH: Duration = Duration::from_secs(10);

async fn place(scene: Scene, mut status: BidSlotStatus, context: &Context) -> Result<Outcome, Error> {
    let Some(owner) = &scene.owner else {
        // Nobody wants it, and a bid may stand all the same: the engine lists what it has.
        return abandon_begun(scene, status, context).await;
    };
    let age = status.bid_time.as_ref().map(|time| clock::now().duration_since(time.0)).unwrap_or_default();
    let again = Duration::try_from(age).is_ok_and(|age| age > FRESH);
    match context.auction().place(owner, &scene.slot, again).await {
        Ok(bid) => {
            fault::point("placed");
            status.bid = Some(bid);
            status.phase = SlotPhase::Bidding;
            status.reason = None;
            status.message = None;
            status.since = Some(Time(clock::now()));
            write(scene.slot, status, context).await
        }
        Err(kubebid_client::Error::Refused(refusal)) => {
            status.ceiling_micros = None;
            status.reason = Some("BidRefused".to_owned());
            status.message = Some(refusal.to_string());
            let slot = scene.slot;
            write(slot, status, context).await?;
            Err(kubebid_client::Error::Refused(refusal).into())
        }
        Err(error) => Err(error.into()),
    }
}

async fn abandon_begun(scene: Scene, mut status: BidSlotStatus, context: &Context) -> Result<Outcome, Error> {
    match context.auction().find(&scene.slot).await? {
        Some(bid) => status.bid = Some(bid),
        None => status.phase = SlotPhase::Released,
    }
    write(scene.slot, status, context).await
}

async fn amend(
    scene: Scene,
    mut status: BidSlotStatus,
    ceiling: u64,
    context: &Context,
) -> Result<Outcome, Error> {
    let Some(bid) = status.bid else { return done(scene.slot) };
    match context.auction().amend(&scene.slot, bid, ceiling).await? {
        Amended::Done => {
            fault::point("amended");
            status.ceiling_micros = Some(ceiling);
            status.protected_until = None;
            write(scene.slot, status, context).await
        }
        Amended::Protected { until_us } => {
            status.protected_until = super::slot::instant(until_us).map(Time);
            let left = status.protected_until.as_ref().map(|time| time.0.duration_since(clock::now()));
            write(scene.slot, status, context).await?;
            let left = left.and_then(|left| Duration::try_from(left).ok()).unwrap_or(MACHINE_BEAT);
            Ok(Outcome::Later(left.max(MACHINE_BEAT)))
        }
        Amended::BelowReserve => {
            release(&scene.slot, ReleaseReason::MaxBid, context).await?;
            Ok(Outcome::Later(MACHINE_BEAT))
        }
        Amended::Closed => Ok(Outcome::Later(Duration::from_secs(60))),
    }
}

async fn provision(scene: Scene, mut status: BidSlotStatus, context: &Context) -> Result<Outcome, Error> {
    let kind = context.auction().instance_type(&scene.slot.spec.instance_type).await?;
    let uid = scene.slot.uid().unwrap_or_default();
    let market = status.market.clone().unwrap_or_default();
    let order = Order {
        name: format!("{}-{}", scene.slot.name_any(), uid.get(..5).unwrap_or_default()),
        id: uid,
        instance_type: scene.slot.spec.instance_type.clone(),
        region: market.split_once('/').map_or(String::new(), |(_, region)| region.to_owned()),
        unit: status.unit.clone().unwrap_or_default(),
        allocatable: kind.quantities.clone(),
        labels: kind.labels.clone(),
    };
    let machine = context.provisioner().create(&order).await?;
    fault::point("ordered");
    match machine {
        Machine::Coming => Ok(Outcome::Later(ask_again(&status))),
        Machine::Running { node } if status.node.as_deref() == Some(&node) => {
            Ok(Outcome::Later(ask_again(&status)))
        }
        Machine::Running { node } => {
            status.node = Some(node);
            write(scene.slot, status, context).await
        }
        Machine::Failed { reason } => {
            status.message = Some(reason);
            moved(scene, status, SlotPhase::Releasing, "MachineFailed", context).await
        }
        Machine::Gone => moved(scene, status, SlotPhase::Releasing, "MachineGone", context).await,
    }
}

/// Soon while the machine may be a quick one; seldom when it takes minutes.
fn ask_again(status: &BidSlotStatus) -> Duration {
    let waited = status.since.as_ref().map(|since| clock::now().duration_since(since.0)).unwrap_or_default();
    let waited = Duration::try_from(waited).unwrap_or_default();
    (waited / 4).clamp(MACHINE_BEAT / 4, MACHINE_BEAT * 5)
}

async fn answer_notice(
    scene: Scene,
    mut status: BidSlotStatus,
    deadline: Timestamp,
    context: &Context,
) -> Result<Outcome, Error> {
    let (Some(bid), Some(allocation), Some(owner)) = (status.bid, status.allocation, scene.owner.clone())
    else {
        return done(scene.slot);
    };
    let ceiling = scene.known.as_ref().map_or(0, |known| known.ceiling_micros);
    match context.auction().at_notice(&owner.spec, allocation).await? {
        AtNotice::RaiseTo { ceiling_micros } if ceiling_micros > ceiling => {
            if context.auction().amend(&scene.slot, bid, ceiling_micros).await? == Amended::Done {
                metrics::noticed("raised");
                let note = format!("raised to {} USD to keep the node", usd(ceiling_micros));
                context.tell(owner.as_ref(), EventType::Normal, "RaisedToStay", note).await;
                status.ceiling_micros = Some(ceiling_micros);
                return write(scene.slot, status, context).await;
            }
        }
        AtNotice::RaiseTo { .. } | AtNotice::LetGo => {}
    }
    metrics::noticed("let_go");
    tell_of_preemption(&scene, &owner, deadline, context).await;
    status.deadline = Some(Time(deadline));
    moved(scene, status, SlotPhase::Notice, "Preempted", context).await
}

/// On the BidNode, the node, and its pods.
async fn tell_of_preemption(scene: &Scene, owner: &BidNode, deadline: Timestamp, context: &Context) {
    let Some(node) = &scene.node else { return };
    let note = format!("node {} is to be given up by {deadline}", node.name_any());
    context.tell(owner, EventType::Warning, "NodePreempted", note.clone()).await;
    context.tell(node.as_ref(), EventType::Warning, "NodePreempted", note.clone()).await;
    for pod in context.world().pods_on(&node.name_any()) {
        if pod_view(&pod).is_some() {
            context.tell(pod.as_ref(), EventType::Warning, "NodePreempted", note.clone()).await;
        }
    }
}

async fn moved(
    scene: Scene,
    mut status: BidSlotStatus,
    phase: SlotPhase,
    reason: &str,
    context: &Context,
) -> Result<Outcome, Error> {
    let now = Time(clock::now());
    match phase {
        SlotPhase::Awarded => {
            let held = scene.known.as_ref().and_then(|known| known.allocation.as_ref());
            status.allocation = held.map(|held| held.allocation);
            status.market = held.map(|held| held.market().to_owned());
            status.unit = held.map(|held| held.unit.clone());
        }
        SlotPhase::Provisioning => status.ordered = true,
        SlotPhase::Ready if status.ready_time.is_none() => status.ready_time = Some(now.clone()),
        SlotPhase::Draining if status.drain_time.is_none() => status.drain_time = Some(now.clone()),
        SlotPhase::Releasing => {
            if reason == "NodeVanished" {
                status.missing_time = Some(now.clone());
            }
            if status.phase == SlotPhase::Draining
                && let Some(after) = since_notice(&scene)
            {
                metrics::drained(after);
            }
        }
        SlotPhase::Pending
        | SlotPhase::Bidding
        | SlotPhase::Registered
        | SlotPhase::Ready
        | SlotPhase::Notice
        | SlotPhase::Draining
        | SlotPhase::Released
        | SlotPhase::Failed => {}
    }
    if reason == "NoticeRescinded" {
        status.deadline = None;
        status.drain_time = None;
    }
    info!(slot = scene.slot.name_any(), ?phase, reason, "moved");
    status.phase = phase;
    status.reason = Some(reason.to_owned());
    status.since = Some(now);
    write(scene.slot, status, context).await
}

fn since_notice(scene: &Scene) -> Option<Duration> {
    let (started_us, _) = scene.known.as_ref()?.allocation.as_ref()?.notice?;
    Duration::try_from(clock::now().duration_since(super::slot::instant(started_us)?)).ok()
}

/// Writes the status, unless somebody else has written meanwhile.
async fn write(slot: BidSlot, status: BidSlotStatus, context: &Context) -> Result<Outcome, Error> {
    if slot.status.as_ref() == Some(&status) {
        return done(slot);
    }
    context.leads()?;
    let api: Api<BidSlot> = Api::namespaced(context.client.clone(), &slot.namespace().unwrap_or_default());
    let patch = json!({
        "apiVersion": "kubebid.io/v1",
        "kind": "BidSlot",
        "metadata": {"name": slot.name_any(), "resourceVersion": slot.resource_version()},
        "status": status,
    });
    let params = PatchParams::apply("kubebid-slots").force();
    done(api.patch_status(&slot.name_any(), &params, &Patch::Apply(patch)).await?)
}

/// Writes down that a slot is to be given up.
pub(super) async fn release(slot: &BidSlot, why: ReleaseReason, context: &Context) -> Result<(), Error> {
    context.leads()?;
    let api: Api<BidSlot> = Api::namespaced(context.client.clone(), &slot.namespace().unwrap_or_default());
    let patch = json!({"spec": {"release": why}});
    match api.patch(&slot.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn patch_node(node: &Node, patch: &serde_json::Value, context: &Context) -> Result<(), Error> {
    context.leads()?;
    let api: Api<Node> = Api::all(context.client.clone());
    match api.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn delete_node(node: &Node, context: &Context) -> Result<(), Error> {
    context.leads()?;
    let api: Api<Node> = Api::all(context.client.clone());
    let preconditions = Preconditions { uid: node.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(&node.name_any(), &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Nothing holds it: the finalizer goes, and the object with it.
async fn forget(scene: Scene, context: &Context) -> Result<Outcome, Error> {
    context.leads()?;
    let slot = scene.slot;
    if let Some(bid) = slot.status.as_ref().and_then(|status| status.bid) {
        context.auction().mirror().forget(bid);
    }
    context.forget(&slot.uid().unwrap_or_default());
    let api: Api<BidSlot> = Api::namespaced(context.client.clone(), &slot.namespace().unwrap_or_default());
    let name = slot.name_any();
    let gone = |result: Result<(), kube::Error>| match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other,
    };
    if slot.metadata.deletion_timestamp.is_none() {
        gone(api.delete(&name, &DeleteParams::default()).await.map(drop))?;
    }
    drop_finalizer(&api, &slot).await?;
    Ok(Outcome::Gone)
}

/// Takes our finalizer away, and no other.
pub(super) async fn drop_finalizer<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let left: Vec<_> = object.finalizers().iter().filter(|name| *name != FINALIZER).collect();
    if left.len() == object.finalizers().len() {
        return Ok(());
    }
    let patch = json!({"metadata": {"finalizers": left}});
    match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}
