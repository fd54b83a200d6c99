//! Acts on a slot: carries out its steps, and records their outcome in its status.

mod bid;
mod gang;
mod machine;

use super::{drain, labels};
use crate::api::{BidSlot, BidSlotStatus, FINALIZER, SlotPhase, TAINT_LEAVING, usd};
use crate::context::Context;
use crate::error::Error;
use crate::metrics::Outcome;
use crate::observe::pod::pod_view;
use crate::observe::slot::{SlotObjects, registration};
use crate::plan;
use crate::plan::gang::GangStep;
use crate::plan::slot::Step;
use crate::{clock, failpoint, metrics};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::runtime::events::EventType;
use kubebid_controller::phased::Progress;
use serde_json::Value;
use std::time::Duration;
use tracing::info;

/// The time after which a step is tried again, if no event comes first.
pub(crate) const RETRY: Duration = Duration::from_millis(500);

/// Carries out a step, and records its outcome in the status of the draft.
pub(crate) async fn act(
    step: &Step,
    objects: &SlotObjects,
    draft: &mut BidSlot,
    context: &Context,
) -> Result<Progress, Error> {
    let status = draft.status.get_or_insert_default();
    let label = label(step);
    metrics::stepped(label);
    tracing::debug!(slot = objects.slot.name_any(), step = label, "step");
    let now = Time(clock::now());
    match step {
        Step::Begin { ceiling_micros, markets } => {
            status.attempt += 1;
            status.ceiling_micros = Some(*ceiling_micros);
            status.bid_markets = markets.clone();
            status.bid_time = Some(now);
            Ok(Progress::Done)
        }
        Step::Adopt { bid, ceiling_micros } => {
            status.attempt += 1;
            status.bid = Some(*bid);
            status.ceiling_micros = Some(*ceiling_micros);
            status.phase = SlotPhase::Bidding;
            status.since = Some(now);
            let note =
                format!("slot {} goes on with its bid {bid}: its status is lost", objects.slot.name_any());
            record_event(objects, EventType::Warning, "StatusLost", note, context);
            Ok(Progress::Done)
        }
        Step::Place(placement) => bid::place(*placement, objects, status, context).await,
        Step::Amend { ceiling_micros } => bid::amend(*ceiling_micros, objects, status, context).await,
        Step::Replace => bid::replace(objects, status, context).await,
        Step::Provision => machine::provision(objects, status, context).await,
        Step::Register => register(objects, status, context).await,
        Step::ReportReady => {
            if let Some(bidnode) = &objects.bidnode {
                context.memory.machine_came(&bidnode.uid().unwrap_or_default());
            }
            machine::report_ready(objects, status, context).await
        }
        Step::ReportAccess => machine::report_access(objects, status, context).await,
        Step::AnswerNotice { deadline, raise_to_micros } => {
            bid::answer_notice(*deadline, *raise_to_micros, objects, status, context).await
        }
        Step::Taint => {
            if let Some(node) = &objects.node {
                patch_node(node, plan::node::with_leaving(node), context).await?;
                if let Some(after) = since_notice(objects) {
                    metrics::tainted(after);
                }
                failpoint::hit("tainted");
                report_preemption(objects, status, context);
            }
            Ok(Progress::Done)
        }
        Step::Untaint => {
            if let Some(node) = &objects.node {
                patch_node(node, plan::node::without(node, TAINT_LEAVING), context).await?;
                let (slot, note) = (Some(&objects.slot), "the node stays".to_owned());
                context.record_event(node.as_ref(), slot, EventType::Normal, "NoticeRescinded", note);
            }
            Ok(Progress::Done)
        }
        Step::Drain { removals, requeue_after } => {
            drain::drain(removals, context).await?;
            Ok(Progress::RetryAfter(Duration::try_from(*requeue_after).unwrap_or(RETRY)))
        }
        Step::DeleteNode => {
            if let Some(node) = &objects.node {
                context.slot_writer.delete(node.as_ref()).await?;
                failpoint::hit("node-deleted");
            }
            Ok(Progress::Done)
        }
        Step::Deprovision => machine::deprovision(objects, status, context).await,
        Step::Cancel => {
            if let Some(bid) = status.bid {
                context.engine().cancel(&objects.slot, bid).await?;
                failpoint::hit("cancelled");
            }
            Ok(Progress::Done)
        }
        Step::Join => {
            status.bid = objects.slot.spec.member.map(|member| member.bid);
            status.phase = SlotPhase::Bidding;
            status.since = Some(now);
            Ok(Progress::Done)
        }
        Step::GiveBack => {
            if let Some(member) = objects.slot.spec.member {
                context.engine().give_back(&objects.slot, member.allocation).await?;
                failpoint::hit("given-back");
            }
            Ok(Progress::Done)
        }
        Step::Gang(step) => gang::act(step, objects, status, context).await,
        Step::MissBid => {
            status.lost_time = Some(now);
            let note = format!("the engine does not know bid {}", status.bid.unwrap_or_default());
            record_event(objects, EventType::Warning, "BidUnknown", note, context);
            Ok(Progress::Done)
        }
        Step::FindBid => {
            status.lost_time = None;
            Ok(Progress::Done)
        }
        Step::Move { phase, reason } => {
            if matches!(*reason, "MachineLate" | "NodeLate") {
                let limit = Duration::try_from(context.limits().machine).unwrap_or_default().as_secs();
                machine::failed(objects, reason, &format!("no node is ready after {limit} s"), context);
            }
            let outcome = move_to(*phase, reason, objects, status, context);
            if *phase == SlotPhase::Awarded {
                report_award(objects, status, context).await;
            }
            Ok(outcome)
        }
        Step::End { reason } => {
            end(reason, objects, status, context);
            Ok(Progress::Done)
        }
        Step::Forget => forget(objects, context).await,
        Step::Wait(_) => Ok(Progress::Done),
    }
}

/// Records an event about the BidNode of a slot.
fn record_event(objects: &SlotObjects, type_: EventType, reason: &str, note: String, context: &Context) {
    if let Some(bidnode) = &objects.bidnode {
        context.record_event(bidnode.as_ref(), Some(&objects.slot), type_, reason, note);
    }
}

/// Patches the node with its labels and taints.
async fn register(
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Progress, Error> {
    let (Some(node), Some(bidnode)) = (&objects.node, &objects.bidnode) else { return Ok(Progress::Done) };
    let Some(patch) = registration(objects, context) else { return Ok(Progress::Done) };
    // A crash after the patch must find in the status what the node has got: what is not wanted any more is removed by it.
    let applied = plan::node::applied(bidnode, &objects.slot);
    let recorded = status.applied.take().unwrap_or_default();
    let both = recorded.union(&applied);
    let is_recorded = recorded == both;
    status.applied = Some(both);
    if !is_recorded {
        return Ok(Progress::RetryAfter(Duration::ZERO));
    }
    match patch_node(node, patch, context).await {
        Ok(()) => {
            status.refused_generation = None;
            status.applied = Some(applied);
            let uid = bidnode.uid().unwrap_or_default();
            context.memory.set_registration(&uid, bidnode.metadata.generation, None);
            if let Some(sets) = &context.label_sets {
                labels::report_repair(node, sets, &context.events);
            }
            failpoint::hit("registered");
            Ok(Progress::Done)
        }
        Err(Error::Cluster(error)) => {
            let code = if let kube::Error::Api(answer) = error.as_ref() { answer.code } else { 0 };
            if plan::slot::is_refusal_final(code, status, &context.limits(), clock::now()) {
                return registration_refused(error, objects, status, context);
            }
            Err(Error::Cluster(error))
        }
        Err(error) => Err(error),
    }
}

/// Records that the API server refuses the labels or taints of a node. The node is given back, since it costs money and takes
/// no pods. A node that has been ready stays as it is.
fn registration_refused(
    error: Box<kube::Error>,
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Progress, Error> {
    let generation = objects.bidnode.as_ref().and_then(|bidnode| bidnode.metadata.generation);
    let was_reported = status.refused_generation == generation && generation.is_some();
    status.refused_generation = generation;
    let message = format!("the API server refuses the labels or taints of its node: {error}");
    if let Some(bidnode) = &objects.bidnode {
        let uid = bidnode.uid().unwrap_or_default();
        context.memory.set_registration(&uid, generation, Some(message.clone()));
    }
    status.message = Some(message.clone());
    if !was_reported {
        record_event(objects, EventType::Warning, "RegistrationRefused", message, context);
    }
    if status.ready_time.is_some() {
        return Err(Error::Cluster(error));
    }
    Ok(move_to(SlotPhase::Releasing, "RegistrationRefused", objects, status, context))
}

/// Returns the value of the label `step` of the metric of steps.
fn label(step: &Step) -> &'static str {
    match step {
        Step::Begin { .. } => "begin",
        Step::Adopt { .. } => "adopt",
        Step::Place(_) => "place",
        Step::Amend { .. } => "amend",
        Step::Replace => "replace",
        Step::Provision => "provision",
        Step::Register => "register",
        Step::ReportReady => "report_ready",
        Step::ReportAccess => "report_access",
        Step::AnswerNotice { .. } => "answer_notice",
        Step::Taint => "taint",
        Step::Untaint => "untaint",
        Step::Drain { .. } => "drain",
        Step::DeleteNode => "delete_node",
        Step::Deprovision => "deprovision",
        Step::Cancel => "cancel",
        Step::Join => "join",
        Step::GiveBack => "give_back",
        Step::Gang(GangStep::AddMembers(_)) => "add_members",
        Step::Gang(GangStep::ReleaseMembers { .. }) => "release_members",
        Step::Gang(GangStep::Enlarge) => "enlarge",
        Step::Gang(GangStep::Record { .. }) => "record",
        Step::Gang(GangStep::BeginRegroup { .. }) => "begin_regroup",
        Step::Gang(GangStep::Regroup) => "regroup",
        Step::Gang(GangStep::EndSearch) => "end_search",
        Step::MissBid => "miss_bid",
        Step::FindBid => "find_bid",
        Step::Move { .. } => "move",
        Step::End { .. } => "end",
        Step::Forget => "forget",
        Step::Wait(_) => "wait",
    }
}

/// Records the end of an allocation.
fn end(engine_reason: &str, objects: &SlotObjects, status: &mut BidSlotStatus, context: &Context) {
    let (phase, reason) = plan::slot::end(engine_reason, status.reason.as_deref());
    let slot = objects.slot.name_any();
    if plan::slot::is_given_back(engine_reason) {
        let note = format!("slot {slot} has given its node back: {reason}");
        record_event(objects, EventType::Normal, "NodeReleased", note, context);
    } else {
        let note = format!("slot {slot} has lost its node: {engine_reason}");
        record_event(objects, EventType::Warning, "NodeLost", note, context);
    }
    status.phase = phase;
    status.reason = Some(reason);
    status.since = Some(Time(clock::now()));
}

/// Records events about a notice on the BidNode, the node and its pods. The taint comes first, since other slots wait for it.
fn report_preemption(objects: &SlotObjects, status: &BidSlotStatus, context: &Context) {
    let (Some(node), Some(Time(deadline))) = (&objects.node, &status.deadline) else { return };
    let slot = Some(&objects.slot);
    let allocation = status.allocation.unwrap_or_default();
    let node_name = node.name_any();
    let note =
        format!("node {node_name} is to be given up by {deadline}; see `kubebid explain alloc {allocation}`");
    record_event(objects, EventType::Warning, "NodePreempted", note.clone(), context);
    context.record_event(node.as_ref(), slot, EventType::Warning, "NodePreempted", note.clone());
    for pod in context.stores.pods_on(&node_name) {
        if pod_view(&pod).is_some() {
            context.record_event(pod.as_ref(), slot, EventType::Warning, "NodePreempted", note.clone());
        }
    }
}

/// Moves a slot to a phase, and records what that phase has.
fn move_to(
    phase: SlotPhase,
    reason: &str,
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Progress {
    let now = Time(clock::now());
    match phase {
        SlotPhase::Awarded => {
            let held = objects.allocation();
            status.allocation = held.map(|held| held.allocation);
            status.market = held.map(|held| held.market().to_owned());
            status.unit = held.map(|held| held.unit.clone());
        }
        // Before the node has them: they are in the status that says that its machine is ordered.
        SlotPhase::Provisioning if status.applied.is_none() => {
            status.applied =
                objects.bidnode.as_ref().map(|bidnode| plan::node::applied(bidnode, &objects.slot));
        }
        SlotPhase::Registered | SlotPhase::Ready => {
            status.node_uid = objects.node.as_ref().and_then(|node| node.uid());
            if phase == SlotPhase::Ready {
                status.ready_time.get_or_insert_with(|| now.clone());
                report_readiness(objects, reason, context);
            }
        }
        SlotPhase::Draining if status.drain_time.is_none() => status.drain_time = Some(now.clone()),
        SlotPhase::Releasing => {
            if reason == "NodeVanished" {
                status.missing_time = Some(now.clone());
            }
            if status.phase == SlotPhase::Draining {
                if let Some(after) = since_notice(objects) {
                    metrics::drained(after);
                }
                let node = status.node.as_deref().unwrap_or_default();
                let note = format!("node {node} is drained: {reason}");
                record_event(objects, EventType::Normal, "NodeDrained", note, context);
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
    info!(slot = objects.slot.name_any(), ?phase, reason, "moved");
    status.phase = phase;
    status.reason = Some(reason.to_owned());
    status.since = Some(now);
    Progress::Done
}

/// Records an event about the unit that a slot has won, with its price if the engine says it.
async fn report_award(objects: &SlotObjects, status: &BidSlotStatus, context: &Context) {
    let (Some(allocation), Some(unit)) = (status.allocation, &status.unit) else { return };
    let price = context.engine().price_micros(allocation).await.ok().map(usd);
    let price = price.map(|price| format!(" at {price} USD per hour")).unwrap_or_default();
    let note = format!("slot {} has won unit {unit}{price}", objects.slot.name_any());
    record_event(objects, EventType::Normal, "NodeWon", note, context);
}

/// Records an event about a node that is ready, or that stays after a notice.
fn report_readiness(objects: &SlotObjects, reason: &str, context: &Context) {
    let (slot, node) = (objects.slot.name_any(), objects.status().node.unwrap_or_default());
    match (reason, &objects.slot.spec.replaces) {
        ("NoticeRescinded", _) => {
            let note = format!("node {node} of slot {slot} stays: its notice was taken back");
            record_event(objects, EventType::Normal, "NoticeRescinded", note, context);
        }
        (_, Some(replaced)) => {
            let note = format!("node {node} of slot {slot} is ready, in the place of slot {replaced}");
            record_event(objects, EventType::Normal, "NodeReplaced", note, context);
        }
        (_, None) => {
            let note = format!("node {node} of slot {slot} is ready");
            record_event(objects, EventType::Normal, "NodeReady", note, context);
        }
    }
}

/// Returns the time since the begin of the notice.
fn since_notice(objects: &SlotObjects) -> Option<Duration> {
    Duration::try_from(clock::now().duration_since(objects.notice()?.started)).ok()
}

/// Removes the finalizer, deletes the object, and forgets the slot.
async fn forget(objects: &SlotObjects, context: &Context) -> Result<Progress, Error> {
    let slot = &objects.slot;
    // The bid of a member is that of its gang.
    let bid = slot.status.as_ref().and_then(|status| status.bid).filter(|_| slot.spec.member.is_none());
    if let Some(bid) = bid {
        context.engine().bid_cache().forget(bid);
    }
    if let Some(node) = slot.status.as_ref().and_then(|status| status.node_uid.as_ref()) {
        context.slot_writer.forget(node);
    }
    let had_node = slot.status.as_ref().is_some_and(|status| status.allocation.is_some());
    if let Some(bidnode) = objects.bidnode.as_ref().filter(|_| slot.spec.for_pods && had_node)
        && context.memory.prove(&slot.uid().unwrap_or_default())
    {
        context.bidnode_metrics().count(bidnode, Outcome::Lost);
    }
    if slot.metadata.deletion_timestamp.is_none() {
        context.slot_writer.delete(slot).await?;
    }
    context.slot_writer.remove_finalizer(slot, FINALIZER).await?;
    context.forget(&slot.uid().unwrap_or_default());
    Ok(Progress::Deleted)
}

/// Patches a node. One that is gone is patched.
async fn patch_node(node: &Node, patch: Value, context: &Context) -> Result<(), Error> {
    context.slot_writer.patch(node, patch).await?;
    Ok(())
}
