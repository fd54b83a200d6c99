//! The steps of a slot, done. Each may be done again.

mod bid;
mod machine;

use super::context::Context;
use super::objects::{drop_finalizer, patch_node, remove};
use super::slot::Scene;
use super::{Error, drain, node};
use crate::api::{BidSlot, BidSlotStatus, SlotPhase, TAINT_LEAVING};
use crate::plan::slot::{Step, is_failure};
use crate::world::pod_view;
use crate::{clock, fault, metrics};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::events::EventType;
use std::time::Duration;
use tracing::info;

/// What came of a step.
pub(super) enum Outcome {
    /// On to the next step.
    Done,
    /// Nothing to be seen before this time.
    Later(Duration),
    /// The slot is gone.
    Gone,
}

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
        Step::Place => bid::place(scene, status, context).await,
        Step::Amend { ceiling_micros } => bid::amend(scene, status, *ceiling_micros, context).await,
        Step::Provision => machine::provision(scene, status, context).await,
        Step::Register => {
            let (Some(node), Some(owner)) = (&scene.node, &scene.owner) else { return Ok(Outcome::Done) };
            if let Some(patch) = node::registration(node, owner, &scene) {
                patch_node(node, &patch, context).await?;
                fault::point("registered");
            }
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
        Step::AnswerNotice { deadline } => bid::answer_notice(scene, status, *deadline, context).await,
        Step::Taint => {
            if let Some(node) = &scene.node {
                patch_node(node, &node::with_leaving(node), context).await?;
                if let Some(after) = since_notice(&scene) {
                    metrics::tainted(after);
                }
                fault::point("tainted");
                tell_of_preemption(&scene, status, context);
            }
            Ok(Outcome::Done)
        }
        Step::Untaint => {
            if let Some(node) = &scene.node {
                patch_node(node, &node::without(node, TAINT_LEAVING), context).await?;
                let note = "the node stays".to_owned();
                context.tell(node.as_ref(), EventType::Normal, "NoticeRescinded", note);
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
                remove(&Api::<Node>::all(context.client.clone()), node, context).await?;
                fault::point("node-deleted");
            }
            Ok(Outcome::Done)
        }
        Step::Deprovision => machine::deprovision(scene, status, context).await,
        Step::Cancel => {
            if let Some(bid) = status.bid {
                context.auction().cancel(&scene.slot, bid).await?;
                fault::point("cancelled");
            }
            Ok(Outcome::Done)
        }
        Step::Move { phase, reason } => {
            if matches!(*reason, "MachineLate" | "NodeLate") {
                let limit = Duration::try_from(context.limits().machine).unwrap_or_default().as_secs();
                machine::failed(&scene, reason, &format!("no node is ready after {limit} s"), context);
            }
            Ok(moved(&scene, status, *phase, reason))
        }
        Step::End { reason } => {
            end(&scene, status, reason, context);
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

/// What the engine says of its end counts, but where it was we who gave the node back.
fn end(scene: &Scene, status: &mut BidSlotStatus, reason: &str, context: &Context) {
    let given_back = reason == "RELEASED";
    if !given_back || status.reason.is_none() {
        status.reason = Some(reason.to_owned());
    }
    let failed = !given_back || is_failure(status.reason.as_deref());
    status.phase = if failed { SlotPhase::Failed } else { SlotPhase::Released };
    status.since = Some(Time(clock::now()));
    if !given_back && let Some(owner) = &scene.owner {
        let note = format!("slot {} has lost its node: {reason}", scene.slot.name_any());
        context.tell(owner.as_ref(), EventType::Warning, "NodeLost", note);
    }
}

/// On the BidNode, the node, and its pods: after the taint, which others wait for.
fn tell_of_preemption(scene: &Scene, status: &BidSlotStatus, context: &Context) {
    let (Some(node), Some(owner)) = (&scene.node, &scene.owner) else { return };
    let Some(Time(deadline)) = &status.deadline else { return };
    let note = format!("node {} is to be given up by {deadline}", node.name_any());
    context.tell(owner.as_ref(), EventType::Warning, "NodePreempted", note.clone());
    context.tell(node.as_ref(), EventType::Warning, "NodePreempted", note.clone());
    for pod in context.world().pods_on(&node.name_any()) {
        if pod_view(&pod).is_some() {
            context.tell(pod.as_ref(), EventType::Warning, "NodePreempted", note.clone());
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
        SlotPhase::Registered | SlotPhase::Ready => {
            status.node_uid = scene.node.as_ref().and_then(|node| node.uid());
            if phase == SlotPhase::Ready {
                status.ready_time.get_or_insert_with(|| now.clone());
            }
        }
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
        | SlotPhase::Provisioning
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
    if let Some(node) = slot.status.as_ref().and_then(|status| status.node_uid.as_ref()) {
        context.nodes.forget(node);
    }
    let api: Api<BidSlot> = Api::namespaced(context.client.clone(), &slot.namespace().unwrap_or_default());
    if slot.metadata.deletion_timestamp.is_none() {
        remove(&api, &slot, context).await?;
    }
    drop_finalizer(&api, &slot).await?;
    Ok(Outcome::Gone)
}
