//! Reconciles a slot: step after step, until it has to wait.

use crate::act::objects::write_slot_status;
use crate::act::slot::{Outcome, RETRY, act};
use crate::api::{BidSlot, BidSlotStatus, SlotPhase};
use crate::clock;
use crate::context::Context;
use crate::error::Error;
use crate::observe::node::{is_machine_of, is_ready};
use crate::observe::slot::observe;
use crate::plan::slot::conditions::{Facts, Obstacle, conditions};
use crate::plan::slot::{Plan, Step, plan};
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use std::sync::Arc;
use std::time::Duration;

/// The number of steps in one pass. A slot never needs so many.
const STEPS_MAX: usize = 32;
/// The least time after which a slot is reconciled again.
const WAIT_MIN: Duration = Duration::from_millis(50);

/// Returns whether a slot is reconciled even in backoff: its node has a deadline.
pub(super) fn is_urgent(slot: &BidSlot) -> bool {
    let phase = slot.status.as_ref().map(|status| status.phase);
    matches!(phase, Some(SlotPhase::Notice | SlotPhase::Draining))
}

/// Reconciles a slot. Its status is written when the slot waits, and before a step that needs it after a crash: all changes
/// in between are one write.
pub(super) async fn reconcile(slot: Arc<BidSlot>, context: Arc<Context>) -> Result<Action, Error> {
    let slot = context.slots.newest(slot);
    let mut draft = StatusDraft::new(BidSlot::clone(&slot));
    let result = steps(&mut draft, &context).await;
    // The steps before a failure are recorded.
    draft.set_conditions(result.as_ref().err(), &context);
    draft.write(&context).await?;
    result
}

async fn steps(draft: &mut StatusDraft, context: &Context) -> Result<Action, Error> {
    let mut last = None;
    for _ in 0..STEPS_MAX {
        context.check_leadership()?;
        let (objects, observation) = observe(draft.slot.clone(), context).await?;
        let Plan { step, reconcile } = plan(&observation);
        enqueue(&reconcile, &draft.slot, context);
        if let Step::Wait(time) = step {
            return Ok(Action::requeue(Duration::try_from(time).unwrap_or(RETRY).max(WAIT_MIN)));
        }
        if last.as_ref() == Some(&step) {
            // The step is done, and its effect is not observed yet: an event will come.
            return Ok(Action::requeue(RETRY));
        }
        if step.is_recorded_before() {
            draft.set_conditions(None, context);
            draft.write(context).await?;
        }
        match act(&step, &objects, &mut draft.slot, context).await? {
            Outcome::Done => {}
            Outcome::Later(time) => return Ok(Action::requeue(time)),
            Outcome::Gone => {
                draft.is_gone = true;
                return Ok(Action::await_change());
            }
        }
        last = Some(step);
    }
    Ok(Action::requeue(RETRY))
}

/// Enqueues other slots of the same BidNode.
fn enqueue(names: &[String], slot: &BidSlot, context: &Context) {
    let namespace = slot.namespace().unwrap_or_default();
    for name in names {
        context.queues.slot(ObjectRef::new(name).within(&namespace));
    }
}

/// A slot with a status that may not be written yet.
struct StatusDraft {
    slot: BidSlot,
    written: Option<BidSlotStatus>,
    is_gone: bool,
}

impl StatusDraft {
    fn new(slot: BidSlot) -> Self {
        StatusDraft { written: slot.status.clone(), slot, is_gone: false }
    }

    /// Sets the conditions: what the slot has reached, and what it waits for.
    fn set_conditions(&mut self, error: Option<&Error>, context: &Context) {
        let status = self.slot.status.get_or_insert_default();
        let node = context.node_of(status);
        let slot_uid = self.slot.metadata.uid.as_deref().unwrap_or_default();
        let is_unproven = status.phase < SlotPhase::Releasing
            && node.as_ref().is_some_and(|node| !is_machine_of(node, slot_uid, status.unit.as_deref()));
        let held_since = || Some(node.as_ref()?.metadata.deletion_timestamp.as_ref()?.0);
        let bid_cache = context.engine().bid_cache();
        let obstacle = match error {
            // The status says why a bid was not placed.
            Some(Error::Engine(kubebid_client::Error::Refused(refusal))) => {
                status.bid.map(|_| Obstacle::Refused(refusal.to_string()))
            }
            Some(Error::Engine(error)) => Some(Obstacle::EngineUnavailable(error.to_string())),
            Some(Error::Provisioner(fault)) => Some(Obstacle::ProvisionerUnavailable(fault.to_string())),
            Some(Error::Cluster(_)) if status.refused_generation.is_some() => {
                status.message.clone().map(Obstacle::RegistrationRefused)
            }
            Some(Error::Conflict | Error::Cluster(_) | Error::NotLeading | Error::Panicked(_)) => return,
            None if is_unproven => status.node.clone().map(Obstacle::NodeUnproven),
            None if bid_cache.is_listed() => held_since().map(Obstacle::NodeHeld),
            None => bid_cache.fault().map(Obstacle::EngineUnavailable),
        };
        let facts = Facts {
            obstacle: obstacle.as_ref(),
            node_ready: node.as_ref().is_some_and(|node| is_ready(node)),
            limits: context.limits(),
            generation: self.slot.metadata.generation,
            now: clock::now(),
        };
        status.conditions = conditions(status, &facts);
    }

    /// Writes the status, if it has changed.
    async fn write(&mut self, context: &Context) -> Result<(), Error> {
        if self.slot.status != self.written && !self.is_gone {
            *self = StatusDraft::new(write_slot_status(&self.slot, context).await?);
        }
        Ok(())
    }
}
