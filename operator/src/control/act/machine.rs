//! The steps of a slot at the provisioner: order a machine, end it.

use super::{Outcome, moved};
use crate::api::{BidSlotStatus, SlotPhase};
use crate::control::Error;
use crate::control::context::Context;
use crate::control::slot::ObservedObjects;
use crate::provision::{Machine, Order};
use crate::world::is_machine_of;
use crate::{clock, fault};
use kube::ResourceExt as _;
use kube::runtime::events::EventType;
use std::time::Duration;

/// The measure of how often is asked after what no event tells.
const BEAT: Duration = Duration::from_secs(1);

pub(super) async fn provision(
    observed: ObservedObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Outcome, Error> {
    let kind = context.auction().instance_type(&observed.slot.spec.instance_type).await?;
    let uid = observed.slot.uid().unwrap_or_default();
    tell_of_foreign_node(&observed, status, context);
    let beat = ask_again(status);
    if let Some(left) = context.asked_lately(&uid, beat) {
        return Ok(Outcome::Later(left));
    }
    let order = Order {
        name: node_name(&observed.slot.name_any(), &uid),
        id: uid,
        instance_type: observed.slot.spec.instance_type.clone(),
        region: status.region().unwrap_or_default().to_owned(),
        unit: status.unit.clone().unwrap_or_default(),
        allocatable: kind.allocatable.clone(),
        labels: kind.labels.clone(),
    };
    let machine = context.provisioner().create(&order).await?;
    fault::point("ordered");
    match machine {
        Machine::Coming => Ok(Outcome::Later(beat)),
        Machine::Running { node } if status.node.as_deref() == Some(&node) => Ok(Outcome::Later(beat)),
        Machine::Running { node } => {
            status.node = Some(node);
            Ok(Outcome::Done)
        }
        Machine::Failed { reason } => {
            failed(&observed, "MachineFailed", &reason, context);
            status.message = Some(reason);
            Ok(moved(&observed, status, SlotPhase::Releasing, "MachineFailed", context))
        }
        Machine::Gone => Ok(moved(&observed, status, SlotPhase::Releasing, "MachineGone", context)),
    }
}

/// Tells people, once, that the machine is said to be a node that does not prove it.
fn tell_of_foreign_node(observed: &ObservedObjects, status: &mut BidSlotStatus, context: &Context) {
    let uid = observed.slot.uid().unwrap_or_default();
    let Some(name) = status.node.as_deref() else { return };
    let Some(node) = context.world().node(name) else { return };
    if is_machine_of(&node, &uid, status.unit.as_deref()) {
        return;
    }
    let note = format!(
        "the provisioner says that node {name} is the machine of the slot, and the node does not prove it"
    );
    if status.message.as_ref() != Some(&note) {
        let note = format!("slot {}: {note}", observed.slot.name_any());
        observed.tell_owner(EventType::Warning, "NodeUnproven", note, context);
    }
    status.message = Some(note);
}

/// A machine that was paid for did not become a node: its owner is told, and the next one is not bid for at once.
pub(super) fn failed(observed: &ObservedObjects, reason: &str, why: &str, context: &Context) {
    let Some(owner) = &observed.owner else { return };
    context.machine_failed(&owner.uid().unwrap_or_default(), clock::now());
    let note = format!("slot {}: {why}", observed.slot.name_any());
    observed.tell_owner(EventType::Warning, reason, note, context);
}

/// Soon while the machine may be a quick one; seldom when it takes minutes, and when it runs: its node tells the rest.
fn ask_again(status: &BidSlotStatus) -> Duration {
    let waited = status.since.as_ref().map(|since| clock::now().duration_since(since.0)).unwrap_or_default();
    let waited = Duration::try_from(waited).unwrap_or_default();
    let soonest = if status.node.is_some() { BEAT * 2 } else { BEAT / 4 };
    (waited / 4).clamp(soonest, BEAT * 5)
}

/// The name for a slot's node, where the provisioner is free to choose.
pub(in crate::control) fn node_name(slot: &str, uid: &str) -> String {
    format!("{slot}-{}", uid.get(..5).unwrap_or_default())
}

pub(super) async fn deprovision(
    observed: ObservedObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Outcome, Error> {
    let id = observed.slot.uid().unwrap_or_default();
    if status.node.is_none() {
        // It may have come since we last heard: then its Node goes first.
        let machine = context.provisioner().get(&id, &node_name(&observed.slot.name_any(), &id)).await?;
        if let Machine::Running { node } = machine {
            status.node = Some(node);
            return Ok(Outcome::Done);
        }
    }
    context.provisioner().delete(&id, status.node.as_deref()).await?;
    status.machine_ended = true;
    Ok(Outcome::Done)
}
