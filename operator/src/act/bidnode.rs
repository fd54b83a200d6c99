//! Acts on a BidNode: creates and releases slots, carries out its deletion, and writes its status.

use super::garbage::end_bid;
use crate::api::{BidNode, BidSlot, BidSlotSpec, FINALIZER, ReleaseReason};
use crate::context::Context;
use crate::error::Error;
use crate::metrics::Outcome;
use crate::observe::gang::gang_slot_name;
use crate::plan::bidnode::{DeletionStep, Plan};
use crate::plan::count::NewSlot;
use crate::plan::packing::{NotHelped, OverdueNode};
use crate::plan::scope::Scope;
use crate::plan::status::{self, Write};
use crate::plan::unused;
use crate::{clock, failpoint};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{PartialObjectMeta, PartialObjectMetaExt as _};
use kube::core::error_boundary::InvalidObject;
use kube::runtime::events::EventType;
use kube::runtime::reflector::ObjectRef;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Creates and releases slots.
pub(crate) async fn scale(
    plan: &Plan,
    bidnode: &BidNode,
    slots: &[Arc<BidSlot>],
    context: &Context,
) -> Result<(), Error> {
    let uid = bidnode.uid().unwrap_or_default();
    context.memory.set_target(&uid, plan.target);
    for new in &plan.changes.create {
        create(bidnode, new, context).await?;
        failpoint::hit("slot-created");
    }
    for (name, reason) in &plan.changes.release {
        if let Some(slot) = slots.iter().find(|slot| slot.name_any() == *name) {
            info!(slot = name, ?reason, "to be given up");
            super::release(slot, *reason, context).await?;
            if *reason == ReleaseReason::Empty {
                note_unused(slot, bidnode, context);
            }
        }
    }
    context.memory.set_scaled(&uid, bidnode.metadata.generation);
    Ok(())
}

/// Counts a node that is given up empty and was bought for pods, if no pod has used it.
fn note_unused(slot: &BidSlot, bidnode: &BidNode, context: &Context) {
    if !slot.spec.for_pods || !context.memory.prove(&slot.uid().unwrap_or_default()) {
        return;
    }
    context.bidnode_metrics().count(bidnode, Outcome::Unused);
    let row = unused::after(context.unused_nodes(bidnode), 1, clock::now());
    if unused::is_stopped(row.as_ref()) {
        let note = unused::clause(row.as_ref());
        context.record_event(bidnode, Some(slot), EventType::Warning, "NodesUnused", note);
    }
    context.memory.set_unused(&bidnode.uid().unwrap_or_default(), bidnode.metadata.generation, row);
}

/// Records events: pods that brought bids, pods that no node helps, and a node that is not initialized in time.
pub(crate) fn tell(plan: &Plan, overdue: Option<&OverdueNode>, bidnode: &BidNode, context: &Context) {
    let was = bidnode.status.clone().unwrap_or_default();
    if let ([_, ..], Some(pod)) = (&plan.changes.create[..], plan.part.pods.first()) {
        let others = match plan.part.pods.len() {
            1 => String::new(),
            count => format!(" and {} other pods", count - 1),
        };
        let bids = plan.changes.create.len();
        let note =
            format!("no node has room for pod {}/{}{others}: new bids: {bids}", pod.namespace, pod.name);
        context.record_event(bidnode, None, EventType::Normal, "BidsForPods", note);
    }
    for NotHelped { pod, cause } in plan.part.not_helped.iter().filter(|it| it.cause.cost_a_node()) {
        let is_known = was.unhelped_pods.iter().any(|there| there.uid == pod.uid);
        let name = ObjectRef::new(&pod.name).within(&pod.namespace);
        if let Some(object) = context.stores.pods.get(&name).filter(|_| !is_known) {
            let note = format!("BidNode {} bids for no further node: {}", bidnode.name_any(), cause.clause());
            context.record_event(object.as_ref(), None, EventType::Warning, "NotHelpedByNode", note);
        }
    }
    let is_told =
        was.conditions.iter().any(|it| it.type_ == status::NODES_INITIALIZE && it.status == "False");
    if let Some(node) = overdue.filter(|_| !is_told) {
        context.record_event(bidnode, None, EventType::Warning, "NodeNotInitialized", node.clause());
    }
}

/// Records an event about a slot that this version of the program cannot read: it may have a node, so the number of slots stays.
pub(crate) fn report_unreadable(slot: &InvalidObject, bidnode: &BidNode, context: &Context) {
    let name = slot.metadata.name.as_deref().unwrap_or_default();
    let note = format!("no slot is created or given up: this version of the program cannot read slot {name}");
    context.record_event(bidnode, None, EventType::Warning, "SlotUnreadable", note);
}

/// Adds the types and regions of a BidNode to slots that still bid.
pub(crate) async fn widen(
    names: &[String],
    scope: &Scope,
    slots: &[Arc<BidSlot>],
    context: &Context,
) -> Result<(), Error> {
    let regions = (!scope.regions.is_empty()).then_some(&scope.regions);
    for slot in slots.iter().filter(|slot| names.contains(&slot.name_any())) {
        info!(slot = slot.name_any(), ?scope, "bids in more markets");
        let patch = json!({"spec": {"instanceTypes": scope.instance_types, "regions": regions}});
        context.bidnode_writer.patch(slot.as_ref(), patch).await?;
    }
    Ok(())
}

async fn create(bidnode: &BidNode, new: &NewSlot, context: &Context) -> Result<(), Error> {
    let scope = context.scope_of(bidnode);
    let spec = BidSlotSpec {
        instance_type: scope.instance_types.first().cloned().unwrap_or_default(),
        region: scope.regions.first().cloned(),
        instance_types: scope.instance_types,
        regions: scope.regions,
        replaces: new.replaces.clone(),
        for_pods: new.for_pods,
        release: None,
        gang_nodes: bidnode.spec.gang.then_some(bidnode.spec.min_nodes),
        member: None,
    };
    let name = if bidnode.spec.gang {
        gang_slot_name(&bidnode.name_any())
    } else {
        format!("{}-{}", bidnode.name_any(), new.ordinal)
    };
    super::create_slot(&name, spec, bidnode, &context.bidnode_writer).await
}

/// Carries out a step of the deletion. Returns whether the BidNode is gone.
pub(crate) async fn delete(
    step: DeletionStep,
    bidnode: &BidNode,
    slots: &[Arc<BidSlot>],
    context: &Context,
) -> Result<bool, Error> {
    match step {
        DeletionStep::Forget => {
            forget_metrics(bidnode, context);
            Ok(true)
        }
        DeletionStep::Abandon => {
            delete_slots(bidnode, slots, true, context).await?;
            warn!(bidnode = bidnode.name_any(), "abandoned: bids and nodes may be left at the engine");
            finish(bidnode, context).await?;
            Ok(true)
        }
        DeletionStep::DeleteSlots => {
            delete_slots(bidnode, slots, false, context).await?;
            Ok(false)
        }
        DeletionStep::EndBids(bids) => {
            for (bid, slot) in &bids {
                end_bid(*bid, slot, Some(bidnode), context).await?;
            }
            Ok(false)
        }
        DeletionStep::Wait => Ok(false),
        DeletionStep::Finish => {
            finish(bidnode, context).await?;
            Ok(true)
        }
    }
}

/// Deletes the slots of a BidNode, also those that this version of the program cannot read: they go when it can.
async fn delete_slots(
    bidnode: &BidNode,
    slots: &[Arc<BidSlot>],
    abandoned: bool,
    context: &Context,
) -> Result<(), Error> {
    let unreadable = context.stores.unreadable_slots_of(bidnode);
    let unreadable = unreadable.iter().map(|slot| slot.metadata.clone());
    for metadata in slots.iter().map(|slot| slot.metadata.clone()).chain(unreadable) {
        let slot: PartialObjectMeta<BidSlot> = metadata.into_response_partial();
        if slot.metadata.deletion_timestamp.is_none() {
            context.bidnode_writer.delete(&slot).await?;
        }
        if abandoned {
            context.bidnode_writer.remove_finalizer(&slot, FINALIZER).await?;
        }
    }
    Ok(())
}

/// Removes the finalizer, and forgets the BidNode. Its metrics go first, so that no series is left without its object.
async fn finish(bidnode: &BidNode, context: &Context) -> Result<(), Error> {
    forget_metrics(bidnode, context);
    context.bidnode_writer.remove_finalizer(bidnode, FINALIZER).await?;
    context.forget(&bidnode.uid().unwrap_or_default());
    Ok(())
}

fn forget_metrics(bidnode: &BidNode, context: &Context) {
    context.bidnode_metrics().remove(&bidnode.namespace().unwrap_or_default(), &bidnode.name_any());
}

/// Writes the status of a BidNode, if the plan says so. Returns the time after which it may be written otherwise.
pub(crate) async fn write_status(
    plan: &status::Plan,
    bidnode: &BidNode,
    now: Timestamp,
    context: &Context,
) -> Result<Option<Duration>, Error> {
    let wanted = context.memory.target(&bidnode.uid().unwrap_or_default());
    context.bidnode_metrics().set(bidnode, wanted, &plan.status);
    match plan.write {
        Write::Unchanged => Ok(None),
        Write::Later(left) => Ok(Some(left)),
        Write::Now => {
            let previous = bidnode.status.clone().unwrap_or_default();
            context.bidnode_writer.status(bidnode, &plan.status).await?;
            let price_changed = plan.status.average_price != previous.average_price;
            let cost_changed = plan.status.cost != previous.cost;
            let uid = bidnode.uid().unwrap_or_default();
            context.memory.set_written(&uid, now, price_changed, cost_changed);
            Ok(None)
        }
    }
}
