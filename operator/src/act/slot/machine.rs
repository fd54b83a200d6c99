//! Steps of a slot at the provisioner: order a machine, end it.

use super::{move_to, record_event};
use crate::api::{BidSlotStatus, SlotPhase};
use crate::context::Context;
use crate::error::Error;
use crate::observe::node::is_machine_of;
use crate::observe::slot::SlotObjects;
use crate::plan::slot::machine_poll;
use crate::provisioner::{Machine, Order, node_name};
use crate::{clock, failpoint};
use kube::ResourceExt as _;
use kube::runtime::events::EventType;
use kubebid_controller::phased::Progress;
use std::time::Duration;

/// Orders the machine, and records its state.
pub(super) async fn provision(
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Progress, Error> {
    let instance_type = context.engine().instance_type(&objects.slot.spec.instance_type).await?;
    let uid = objects.slot.uid().unwrap_or_default();
    report_unproven_node(objects, status, context);
    let poll = Duration::try_from(machine_poll(status, clock::now())).unwrap_or_default();
    if let Some(left) = context.memory.machine_poll_left(&uid, poll) {
        return Ok(Progress::RetryAfter(left));
    }
    let order = Order {
        name: node_name(&objects.slot.name_any(), &uid),
        id: uid,
        instance_type: objects.slot.spec.instance_type.clone(),
        region: status.region().unwrap_or_default().to_owned(),
        unit: status.unit.clone().unwrap_or_default(),
        allocatable: instance_type.allocatable.clone(),
        labels: instance_type.labels.clone(),
    };
    let machine = context.provisioner().create(&order).await?;
    failpoint::hit("ordered");
    match machine {
        Machine::Coming => Ok(Progress::RetryAfter(poll)),
        Machine::Running { node } if status.node.as_deref() == Some(&node) => Ok(Progress::RetryAfter(poll)),
        Machine::Running { node } => {
            status.node = Some(node);
            Ok(Progress::Done)
        }
        Machine::Failed { reason } => {
            failed(objects, "MachineFailed", &reason, context);
            status.message = Some(reason);
            Ok(move_to(SlotPhase::Releasing, "MachineFailed", objects, status, context))
        }
        Machine::Gone => Ok(move_to(SlotPhase::Releasing, "MachineGone", objects, status, context)),
    }
}

/// Records an event, once, if the node that the provisioner names does not prove that it is the machine.
fn report_unproven_node(objects: &SlotObjects, status: &mut BidSlotStatus, context: &Context) {
    let uid = objects.slot.uid().unwrap_or_default();
    let Some(name) = status.node.as_deref() else { return };
    let Some(node) = context.stores.node(name) else { return };
    if is_machine_of(&node, &uid, status.unit.as_deref()) {
        return;
    }
    let note = format!(
        "the provisioner says that node {name} is the machine of the slot, and the node does not prove it"
    );
    if status.message.as_ref() != Some(&note) {
        let note = format!("slot {}: {note}", objects.slot.name_any());
        record_event(objects, EventType::Warning, "NodeUnproven", note, context);
    }
    status.message = Some(note);
}

/// Records that a machine did not become a ready node. The next node of the BidNode is bid for after a pause.
pub(super) fn failed(objects: &SlotObjects, reason: &str, why: &str, context: &Context) {
    let Some(bidnode) = &objects.bidnode else { return };
    context.memory.machine_failed(&bidnode.uid().unwrap_or_default(), clock::now());
    let note = format!("slot {}: {why}", objects.slot.name_any());
    record_event(objects, EventType::Warning, reason, note, context);
}

/// Ends the machine.
pub(super) async fn deprovision(
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Progress, Error> {
    let id = objects.slot.uid().unwrap_or_default();
    if status.node.is_none() {
        // The machine may have come since the last poll: then its Node goes first.
        let machine = context.provisioner().get(&id, &node_name(&objects.slot.name_any(), &id)).await?;
        if let Machine::Running { node } = machine {
            status.node = Some(node);
            return Ok(Progress::Done);
        }
    }
    context.provisioner().delete(&id, status.node.as_deref()).await?;
    status.machine_ended = true;
    Ok(Progress::Done)
}
