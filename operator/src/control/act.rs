//! Executes the steps of a slot. Each can be repeated.

mod bid;
mod machine;

pub(super) use machine::node_name;

use super::context::Context;
use super::objects::{drop_finalizer, patch_node, remove};
use super::slot::ObservedObjects;
use super::{Error, drain, node};
use crate::api::{BidSlot, BidSlotStatus, SlotPhase, TAINT_LEAVING, usd};
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
    observed: ObservedObjects,
    context: &Context,
    slot: &mut BidSlot,
) -> Result<Outcome, Error> {
    let status = slot.status.get_or_insert_default();
    let word = word(step);
    metrics::stepped(word);
    tracing::debug!(slot = observed.slot.name_any(), step = word, "step");
    let now = Time(clock::now());
    match step {
        Step::Begin { ceiling_micros } => {
            status.attempt += 1;
            status.ceiling_micros = Some(*ceiling_micros);
            status.bid_time = Some(now);
            Ok(Outcome::Done)
        }
        Step::Place => bid::place(observed, status, context).await,
        Step::Amend { ceiling_micros } => bid::amend(observed, status, *ceiling_micros, context).await,
        Step::Provision => machine::provision(observed, status, context).await,
        Step::Register => {
            let (Some(node), Some(owner)) = (&observed.node, &observed.owner) else {
                return Ok(Outcome::Done);
            };
            let Some(patch) = node::registration(node, owner, &observed) else { return Ok(Outcome::Done) };
            match patch_node(node, &patch, context).await {
                Ok(()) => {
                    status.refused_generation = None;
                    let generation = owner.metadata.generation;
                    context.set_registration(&owner.uid().unwrap_or_default(), generation, None);
                    fault::point("registered");
                    Ok(Outcome::Done)
                }
                Err(Error::Cluster(error)) if is_final(&error, status, context) => {
                    registration_refused(&observed, status, error, context)
                }
                Err(error) => Err(error),
            }
        }
        Step::ReportReady => {
            if let Some(owner) = &observed.owner {
                context.machine_came(&owner.uid().unwrap_or_default());
            }
            if let Some(allocation) = status.allocation {
                context.auction().report_ready(&observed.slot, allocation).await?;
                fault::point("reported");
            }
            if status.ready_time.is_none() {
                status.ready_time = Some(now);
            }
            Ok(Outcome::Done)
        }
        Step::AnswerNotice { deadline } => bid::answer_notice(observed, status, *deadline, context).await,
        Step::Taint => {
            if let Some(node) = &observed.node {
                patch_node(node, &node::with_leaving(node), context).await?;
                if let Some(after) = since_notice(&observed) {
                    metrics::tainted(after);
                }
                fault::point("tainted");
                tell_of_preemption(&observed, status, context);
            }
            Ok(Outcome::Done)
        }
        Step::Untaint => {
            if let Some(node) = &observed.node {
                patch_node(node, &node::without(node, TAINT_LEAVING), context).await?;
                let note = "the node stays".to_owned();
                context.tell(node.as_ref(), Some(&observed.slot), EventType::Normal, "NoticeRescinded", note);
            }
            Ok(Outcome::Done)
        }
        Step::Drain => {
            let deadline = observed.notice().map(|(_, deadline)| deadline);
            let began = observed.status().drain_time.map_or(now.0, |time| time.0);
            Ok(Outcome::Later(drain::drain(&observed, deadline, began, context).await?))
        }
        Step::DeleteNode => {
            if let Some(node) = &observed.node {
                remove(&Api::<Node>::all(context.client.clone()), node, context).await?;
                fault::point("node-deleted");
            }
            Ok(Outcome::Done)
        }
        Step::Deprovision => machine::deprovision(observed, status, context).await,
        Step::Cancel => {
            if let Some(bid) = status.bid {
                context.auction().cancel(&observed.slot, bid).await?;
                fault::point("cancelled");
            }
            Ok(Outcome::Done)
        }
        Step::MissBid => {
            status.lost_time = Some(now);
            let note = format!("the engine does not know bid {}", status.bid.unwrap_or_default());
            observed.tell_owner(EventType::Warning, "BidUnknown", note, context);
            Ok(Outcome::Done)
        }
        Step::FindBid => {
            status.lost_time = None;
            Ok(Outcome::Done)
        }
        Step::Move { phase, reason } => {
            if matches!(*reason, "MachineLate" | "NodeLate") {
                let limit = Duration::try_from(context.limits().machine).unwrap_or_default().as_secs();
                machine::failed(&observed, reason, &format!("no node is ready after {limit} s"), context);
            }
            let outcome = moved(&observed, status, *phase, reason, context);
            if *phase == SlotPhase::Awarded {
                tell_of_award(&observed, status, context).await;
            }
            Ok(outcome)
        }
        Step::End { reason } => {
            end(&observed, status, reason, context);
            Ok(Outcome::Done)
        }
        Step::Forget => forget(observed, context).await,
        Step::Wait(_) => Ok(Outcome::Done),
    }
}

/// Returns whether the API server would refuse the same labels and taints again: they are invalid, or a policy has
/// forbidden them for as long as a machine may take.
fn is_final(error: &kube::Error, status: &BidSlotStatus, context: &Context) -> bool {
    let waited = status.since.as_ref().map(|since| clock::now().duration_since(since.0)).unwrap_or_default();
    let code = if let kube::Error::Api(answer) = error { answer.code } else { 0 };
    matches!(code, 400 | 422) || code == 403 && waited >= context.limits().machine
}

/// A node that cannot get its labels and taints is given back: it costs money and takes no pods. One that has been ready
/// keeps those that it has.
fn registration_refused(
    observed: &ObservedObjects,
    status: &mut BidSlotStatus,
    error: Box<kube::Error>,
    context: &Context,
) -> Result<Outcome, Error> {
    let generation = observed.owner.as_ref().and_then(|owner| owner.metadata.generation);
    let told = status.refused_generation == generation && generation.is_some();
    status.refused_generation = generation;
    let why = format!("the API server refuses the labels or taints of its node: {error}");
    if let Some(owner) = &observed.owner {
        context.set_registration(&owner.uid().unwrap_or_default(), generation, Some(why.clone()));
    }
    status.message = Some(why);
    if let (Some(note), false) = (&status.message, told) {
        observed.tell_owner(EventType::Warning, "RegistrationRefused", note.clone(), context);
    }
    if status.ready_time.is_some() {
        return Err(Error::Cluster(error));
    }
    Ok(moved(observed, status, SlotPhase::Releasing, "RegistrationRefused", context))
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
        Step::MissBid => "miss_bid",
        Step::FindBid => "find_bid",
        Step::Move { .. } => "move",
        Step::End { .. } => "end",
        Step::Forget => "forget",
        Step::Wait(_) => "wait",
    }
}

/// What the engine says of its end counts, but where it was we who gave the node back.
fn end(observed: &ObservedObjects, status: &mut BidSlotStatus, reason: &str, context: &Context) {
    let given_back = reason == "RELEASED";
    if !given_back || status.reason.is_none() {
        status.reason = Some(reason.to_owned());
    }
    let failed = !given_back || is_failure(status.reason.as_deref());
    status.phase = if failed { SlotPhase::Failed } else { SlotPhase::Released };
    status.since = Some(Time(clock::now()));
    if given_back {
        let why = status.reason.as_deref().unwrap_or("given back");
        let note = format!("slot {} has given its node back: {why}", observed.slot.name_any());
        observed.tell_owner(EventType::Normal, "NodeReleased", note, context);
    } else {
        let note = format!("slot {} has lost its node: {reason}", observed.slot.name_any());
        observed.tell_owner(EventType::Warning, "NodeLost", note, context);
    }
}

/// On the BidNode, the node, and its pods: after the taint, which others wait for.
fn tell_of_preemption(observed: &ObservedObjects, status: &BidSlotStatus, context: &Context) {
    let (Some(node), Some(Time(deadline))) = (&observed.node, &status.deadline) else { return };
    let slot = Some(&observed.slot);
    let note = format!("node {} is to be given up by {deadline}", node.name_any());
    observed.tell_owner(EventType::Warning, "NodePreempted", note.clone(), context);
    context.tell(node.as_ref(), slot, EventType::Warning, "NodePreempted", note.clone());
    for pod in context.world().pods_on(&node.name_any()) {
        if pod_view(&pod).is_some() {
            context.tell(pod.as_ref(), slot, EventType::Warning, "NodePreempted", note.clone());
        }
    }
}

fn moved(
    observed: &ObservedObjects,
    status: &mut BidSlotStatus,
    phase: SlotPhase,
    reason: &str,
    context: &Context,
) -> Outcome {
    let now = Time(clock::now());
    match phase {
        SlotPhase::Awarded => {
            let held = observed.known.as_ref().and_then(|known| known.allocation.as_ref());
            status.allocation = held.map(|held| held.allocation);
            status.market = held.map(|held| held.market().to_owned());
            status.unit = held.map(|held| held.unit.clone());
        }
        SlotPhase::Registered | SlotPhase::Ready => {
            status.node_uid = observed.node.as_ref().and_then(|node| node.uid());
            if phase == SlotPhase::Ready {
                status.ready_time.get_or_insert_with(|| now.clone());
                tell_of_readiness(observed, reason, context);
            }
        }
        SlotPhase::Draining if status.drain_time.is_none() => status.drain_time = Some(now.clone()),
        SlotPhase::Releasing => {
            if reason == "NodeVanished" {
                status.missing_time = Some(now.clone());
            }
            if status.phase == SlotPhase::Draining {
                if let Some(after) = since_notice(observed) {
                    metrics::drained(after);
                }
                let node = status.node.as_deref().unwrap_or_default();
                let note = format!("node {node} is drained: {reason}");
                observed.tell_owner(EventType::Normal, "NodeDrained", note, context);
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
    info!(slot = observed.slot.name_any(), ?phase, reason, "moved");
    status.phase = phase;
    status.reason = Some(reason.to_owned());
    status.since = Some(now);
    Outcome::Done
}

/// On the BidNode: which unit a slot has won, and what it costs, if the engine says so.
async fn tell_of_award(observed: &ObservedObjects, status: &BidSlotStatus, context: &Context) {
    let (Some(allocation), Some(unit)) = (status.allocation, &status.unit) else { return };
    let price = context.auction().price_micros(allocation).await.ok().map(usd);
    let price = price.map(|price| format!(" at {price} USD per hour")).unwrap_or_default();
    let note = format!("slot {} has won unit {unit}{price}", observed.slot.name_any());
    observed.tell_owner(EventType::Normal, "NodeWon", note, context);
}

/// On the BidNode: that a node is ready, and in whose place it is.
fn tell_of_readiness(observed: &ObservedObjects, reason: &str, context: &Context) {
    let (slot, node) = (observed.slot.name_any(), observed.status().node.unwrap_or_default());
    match (reason, &observed.slot.spec.replaces) {
        ("NoticeRescinded", _) => {
            let note = format!("node {node} of slot {slot} stays: its notice was taken back");
            observed.tell_owner(EventType::Normal, "NoticeRescinded", note, context);
        }
        (_, Some(replaced)) => {
            let note = format!("node {node} of slot {slot} is ready, in the place of slot {replaced}");
            observed.tell_owner(EventType::Normal, "NodeReplaced", note, context);
        }
        (_, None) => {
            let note = format!("node {node} of slot {slot} is ready");
            observed.tell_owner(EventType::Normal, "NodeReady", note, context);
        }
    }
}

fn since_notice(observed: &ObservedObjects) -> Option<Duration> {
    let (started, _) = observed.notice()?;
    Duration::try_from(clock::now().duration_since(started)).ok()
}

/// Nothing holds it: the finalizer goes, and the object with it.
async fn forget(observed: ObservedObjects, context: &Context) -> Result<Outcome, Error> {
    context.leads()?;
    let slot = observed.slot;
    if let Some(bid) = slot.status.as_ref().and_then(|status| status.bid) {
        context.auction().bid_cache().forget(bid);
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
