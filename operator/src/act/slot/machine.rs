//! Steps of a slot at the provisioner: order a machine, end it.

use super::{RETRY, move_to, record_event};
use crate::api::{BidSlotStatus, SlotPhase};
use crate::context::Context;
use crate::error::Error;
use crate::observe::node::is_machine_of;
use crate::observe::slot::SlotObjects;
use crate::plan::slot::{access_poll, machine_poll};
use crate::provisioner::{Fault, Machine, Order, node_name};
use crate::{clock, failpoint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::runtime::events::EventType;
use kubebid_client::v1;
use kubebid_controller::phased::Progress;
use std::time::Duration;
use tracing::warn;

/// Orders the machine, and records its state.
pub(super) async fn provision(
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Progress, Error> {
    let type_name = status.instance_type().unwrap_or(&objects.slot.spec.instance_type).to_owned();
    let instance_type = context.engine().instance_type(&type_name).await?;
    let uid = objects.slot.uid().unwrap_or_default();
    report_unproven_node(objects, status, context);
    let poll = Duration::try_from(machine_poll(status, clock::now())).unwrap_or_default();
    if let Some(left) = context.memory.machine_poll_left(&uid, poll) {
        return Ok(Progress::RetryAfter(left));
    }
    let order = Order {
        name: node_name(&objects.slot.name_any(), &uid),
        id: uid,
        instance_type: type_name,
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

/// Reports the node as ready, with the way to reach it. If the provisioner does not say that, the node is reported without it
/// in the next pass: the status has it by then that the rest is due.
pub(super) async fn report_ready(
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Progress, Error> {
    if let Some(allocation) = status.allocation {
        let access = if status.access_due { Ok(None) } else { access(objects, context).await };
        let Ok(access) = access.inspect_err(|fault| warn_of_access(objects, fault)) else {
            status.access_due = true;
            return Ok(Progress::RetryAfter(RETRY));
        };
        context.engine().report_ready(&objects.slot, allocation, access).await?;
        failpoint::hit("reported");
    }
    status.ready_time.get_or_insert_with(|| Time(clock::now()));
    Ok(Progress::Done)
}

async fn access(objects: &SlotObjects, context: &Context) -> Result<Option<v1::NodeAccess>, Fault> {
    context.provisioner().access(&objects.slot.uid().unwrap_or_default()).await
}

fn warn_of_access(objects: &SlotObjects, fault: &Fault) {
    warn!(slot = objects.slot.name_any(), %fault, "the way to reach a node is reported later");
}

/// Reports the way to reach a node that was reported ready without it. A provisioner that does not answer is asked again.
pub(super) async fn report_access(
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Progress, Error> {
    let access = match access(objects, context).await {
        Ok(access) => access,
        Err(fault) => {
            warn_of_access(objects, &fault);
            let poll = Duration::try_from(access_poll(status, clock::now())).unwrap_or_default();
            return Ok(Progress::RetryAfter(fault.retry_after.unwrap_or_default().max(poll)));
        }
    };
    if let (Some(allocation), Some(access)) = (status.allocation, access) {
        context.engine().report_access(&objects.slot, allocation, access).await?;
    }
    status.access_due = false;
    Ok(Progress::Done)
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
