//! The steps of a slot, done. Each may be done again.

use super::context::Context;
use super::objects::{delete_node, drop_finalizer, patch_node, release, this_one};
use super::slot::Scene;
use super::{Error, drain, node};
use crate::api::{BidSlot, BidSlotStatus, ReleaseReason, SlotPhase, TAINT_LEAVING, usd};
use crate::auction::Amended;
use crate::plan::slot::Step;
use crate::provision::{Machine, Order};
use crate::world::pod_view;
use crate::{clock, fault, metrics};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::events::EventType;
use kubebid_strategy::AtNotice;
use std::time::Duration;
use tracing::{info, warn};

/// What came of a step.
pub(super) enum Outcome {
    /// On to the next step.
    Done,
    /// Nothing to be seen before this time.
    Later(Duration),
    /// The slot is gone.
    Gone,
}

/// The measure of how often is asked after what no event tells.
const MACHINE_BEAT: Duration = Duration::from_secs(1);
/// How long an engine that says nothing is asked for the price to stay.
const PATIENCE: Duration = Duration::from_secs(10);

/// Does a step, and notes in the slot what came of it.
pub(super) async fn act(
    step: &Step,
    scene: Scene,
    context: &Context,
    slot: &mut BidSlot,
) -> Result<Outcome, Error> {
    let status = slot.status.get_or_insert_default();
    let word = word(step);
    metrics::stepped(word);
    tracing::debug!(slot = scene.slot.name_any(), step = word, "step");
    let now = Time(clock::now());
    match step {
        Step::Begin { ceiling_micros } => {
            status.attempt += 1;
            status.ceiling_micros = Some(*ceiling_micros);
            status.bid_time = Some(now);
            Ok(Outcome::Done)
        }
        Step::Place => place(scene, status, context).await,
        Step::Amend { ceiling_micros } => amend(scene, status, *ceiling_micros, context).await,
        Step::Provision => provision(scene, status, context).await,
        Step::Register => {
            let (Some(node), Some(owner)) = (&scene.node, &scene.owner) else { return Ok(Outcome::Done) };
            if let Some(patch) = node::registration(node, owner, &scene) {
                patch_node(node, &patch, context).await?;
                fault::point("registered");
            }
            status.node_uid = node.uid();
            Ok(Outcome::Done)
        }
        Step::ReportReady => {
            if let Some(owner) = &scene.owner {
                context.machine_came(&owner.uid().unwrap_or_default());
            }
            if let Some(allocation) = status.allocation {
                context.auction().report_ready(&scene.slot, allocation).await?;
                fault::point("reported");
            }
            if status.ready_time.is_none() {
                status.ready_time = Some(now);
            }
            Ok(Outcome::Done)
        }
        Step::AnswerNotice { deadline } => answer_notice(scene, status, *deadline, context).await,
        Step::Taint => {
            if let Some(node) = &scene.node {
                patch_node(node, &node::with_leaving(node), context).await?;
                if let Some(after) = since_notice(&scene) {
                    metrics::tainted(after);
                }
                fault::point("tainted");
                tell_of_preemption(&scene, status, context).await;
            }
            Ok(Outcome::Done)
        }
        Step::Untaint => {
            if let Some(node) = &scene.node {
                patch_node(node, &node::without(node, TAINT_LEAVING), context).await?;
                context
                    .tell(node.as_ref(), EventType::Normal, "NoticeRescinded", "the node stays".to_owned())
                    .await;
            }
            Ok(Outcome::Done)
        }
        Step::Drain => {
            let deadline = scene.notice().map(|(_, deadline)| deadline);
            let began = scene.status().drain_time.map_or(now.0, |time| time.0);
            Ok(Outcome::Later(drain::drain(&scene, deadline, began, context).await?))
        }
        Step::DeleteNode => {
            if let Some(node) = &scene.node {
                delete_node(node, context).await?;
                fault::point("node-deleted");
            }
            Ok(Outcome::Done)
        }
        Step::Deprovision => deprovision(scene, status, context).await,
        Step::Cancel => {
            if let Some(bid) = status.bid {
                context.auction().cancel(&scene.slot, bid).await?;
                fault::point("cancelled");
            }
            Ok(Outcome::Done)
        }
        Step::Move { phase, reason } => Ok(moved(&scene, status, *phase, reason)),
        Step::End { reason } => {
            let given_back = reason == "RELEASED";
            status.phase = if given_back { SlotPhase::Released } else { SlotPhase::Failed };
            if !given_back || status.reason.is_none() {
                status.reason = Some(reason.clone());
            }
            if !given_back && let Some(owner) = &scene.owner {
                let note = format!("the node of slot {} was taken: {reason}", scene.slot.name_any());
                context.tell(owner.as_ref(), EventType::Warning, "NodeLost", note).await;
            }
            status.since = Some(now);
            Ok(Outcome::Done)
        }
        Step::Forget => forget(scene, context).await,
        Step::Wait(_) => Ok(Outcome::Done),
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

/// How old a bid that was begun may be before it is looked for: it may have been placed by who crashed.
const FRESH: Duration = Duration::from_secs(10);

async fn place(scene: Scene, status: &mut BidSlotStatus, context: &Context) -> Result<Outcome, Error> {
    fault::point("begun");
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
            Ok(Outcome::Done)
        }
        Err(kubebid_client::Error::Refused(refusal)) => {
            status.ceiling_micros = None;
            status.reason = Some("BidRefused".to_owned());
            status.message = Some(refusal.to_string());
            context.tell(owner.as_ref(), EventType::Warning, "BidRefused", refusal.to_string()).await;
            Err(kubebid_client::Error::Refused(refusal).into())
        }
        Err(error) => Err(error.into()),
    }
}

async fn abandon_begun(
    scene: Scene,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Outcome, Error> {
    match context.auction().find(&scene.slot).await? {
        Some(bid) => status.bid = Some(bid),
        None => status.phase = SlotPhase::Released,
    }
    Ok(Outcome::Done)
}

async fn amend(
    scene: Scene,
    status: &mut BidSlotStatus,
    ceiling: u64,
    context: &Context,
) -> Result<Outcome, Error> {
    let Some(bid) = status.bid else { return Ok(Outcome::Done) };
    match context.auction().amend(&scene.slot, bid, ceiling).await? {
        Amended::Done => {
            fault::point("amended");
            status.ceiling_micros = Some(ceiling);
            status.protected_until = None;
            Ok(Outcome::Done)
        }
        Amended::Protected { until_us } => {
            status.protected_until = super::slot::instant(until_us).map(Time);
            let left = status.protected_until.as_ref().map(|time| time.0.duration_since(clock::now()));
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

async fn provision(scene: Scene, status: &mut BidSlotStatus, context: &Context) -> Result<Outcome, Error> {
    let kind = context.auction().instance_type(&scene.slot.spec.instance_type).await?;
    let uid = scene.slot.uid().unwrap_or_default();
    let order = Order {
        name: node_name(&scene.slot),
        id: uid,
        instance_type: scene.slot.spec.instance_type.clone(),
        region: status.region().unwrap_or_default().to_owned(),
        unit: status.unit.clone().unwrap_or_default(),
        allocatable: kind.allocatable.clone(),
        labels: kind.labels.clone(),
    };
    let machine = context.provisioner().create(&order).await?;
    fault::point("ordered");
    match machine {
        Machine::Coming => Ok(Outcome::Later(ask_again(status))),
        Machine::Running { node } if status.node.as_deref() == Some(&node) => {
            Ok(Outcome::Later(ask_again(status)))
        }
        Machine::Running { node } => {
            status.node = Some(node);
            Ok(Outcome::Done)
        }
        Machine::Failed { reason } => {
            if let Some(owner) = &scene.owner {
                context.machine_failed(&owner.uid().unwrap_or_default(), clock::now());
                context.tell(owner.as_ref(), EventType::Warning, "MachineFailed", reason.clone()).await;
            }
            status.message = Some(reason);
            Ok(moved(&scene, status, SlotPhase::Releasing, "MachineFailed"))
        }
        Machine::Gone => Ok(moved(&scene, status, SlotPhase::Releasing, "MachineGone")),
    }
}

/// Soon while the machine may be a quick one; seldom when it takes minutes.
fn ask_again(status: &BidSlotStatus) -> Duration {
    let waited = status.since.as_ref().map(|since| clock::now().duration_since(since.0)).unwrap_or_default();
    let waited = Duration::try_from(waited).unwrap_or_default();
    (waited / 4).clamp(MACHINE_BEAT / 4, MACHINE_BEAT * 5)
}

/// The name for the slot's node, where the provisioner is free to choose.
fn node_name(slot: &BidSlot) -> String {
    let uid = slot.uid().unwrap_or_default();
    format!("{}-{}", slot.name_any(), uid.get(..5).unwrap_or_default())
}

async fn deprovision(scene: Scene, status: &mut BidSlotStatus, context: &Context) -> Result<Outcome, Error> {
    let id = scene.slot.uid().unwrap_or_default();
    if status.node.is_none() {
        // It may have come since we last heard: then its Node goes first.
        let machine = context.provisioner().get(&id, &node_name(&scene.slot)).await?;
        if let Machine::Running { node } = machine {
            status.node = Some(node);
            return Ok(Outcome::Done);
        }
    }
    context.provisioner().delete(&id, status.node.as_deref()).await?;
    status.ordered = false;
    Ok(Outcome::Done)
}

async fn answer_notice(
    scene: Scene,
    status: &mut BidSlotStatus,
    deadline: Timestamp,
    context: &Context,
) -> Result<Outcome, Error> {
    let (Some(bid), Some(allocation), Some(owner)) = (status.bid, status.allocation, scene.owner.clone())
    else {
        return Ok(Outcome::Done);
    };
    let ceiling = scene.known.as_ref().map_or(0, |known| known.ceiling_micros);
    let answer = match context.auction().at_notice(&owner.spec, allocation).await {
        Ok(answer) => answer,
        // The notice does not wait for an engine that says nothing.
        Err(error) if since_notice(&scene).is_some_and(|time| time > PATIENCE) => {
            warn!(slot = scene.slot.name_any(), %error, "no price to stay is to be had: the node goes");
            Some(AtNotice::LetGo)
        }
        Err(error) => return Err(error.into()),
    };
    match answer {
        None => return Ok(Outcome::Later(MACHINE_BEAT / 4)),
        Some(AtNotice::RaiseTo { ceiling_micros }) if ceiling_micros > ceiling => {
            if context.auction().amend(&scene.slot, bid, ceiling_micros).await? == Amended::Done {
                metrics::noticed("raised");
                let note = format!("raised to {} USD to keep the node", usd(ceiling_micros));
                context.tell(owner.as_ref(), EventType::Normal, "RaisedToStay", note).await;
                status.ceiling_micros = Some(ceiling_micros);
                return Ok(Outcome::Done);
            }
        }
        Some(AtNotice::RaiseTo { .. } | AtNotice::LetGo) => {}
    }
    metrics::noticed("let_go");
    status.deadline = Some(Time(deadline));
    Ok(moved(&scene, status, SlotPhase::Notice, "Preempted"))
}

/// On the BidNode, the node, and its pods: after the taint, which others wait for.
async fn tell_of_preemption(scene: &Scene, status: &BidSlotStatus, context: &Context) {
    let (Some(node), Some(owner)) = (&scene.node, &scene.owner) else { return };
    let Some(Time(deadline)) = &status.deadline else { return };
    let note = format!("node {} is to be given up by {deadline}", node.name_any());
    context.tell(owner.as_ref(), EventType::Warning, "NodePreempted", note.clone()).await;
    context.tell(node.as_ref(), EventType::Warning, "NodePreempted", note.clone()).await;
    for pod in context.world().pods_on(&node.name_any()) {
        if pod_view(&pod).is_some() {
            context.tell(pod.as_ref(), EventType::Warning, "NodePreempted", note.clone()).await;
        }
    }
}

fn moved(scene: &Scene, status: &mut BidSlotStatus, phase: SlotPhase, reason: &str) -> Outcome {
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
                && let Some(after) = since_notice(scene)
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
    Outcome::Done
}

fn since_notice(scene: &Scene) -> Option<Duration> {
    let (started, _) = scene.notice()?;
    Duration::try_from(clock::now().duration_since(started)).ok()
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
        gone(api.delete(&name, &this_one(&slot)).await.map(drop))?;
    }
    drop_finalizer(&api, &slot).await?;
    Ok(Outcome::Gone)
}
