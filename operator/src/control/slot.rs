//! Reconciles a slot: step after step, until it has to wait.

use crate::act::slot::{RETRY, act};
use crate::api::{BidSlot, SlotPhase};
use crate::clock;
use crate::context::Context;
use crate::error::ServiceError;
use crate::observe::node::{is_machine_of, is_ready};
use crate::observe::slot::{SlotObjects, observe};
use crate::plan;
use crate::plan::slot::conditions::{Facts, Obstacle, conditions};
use crate::plan::slot::{Observation, Step};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use kubebid_controller::phased::{self, Phased, Plan, Progress};
use kubebid_controller::{Action, Context as PassContext, Error, ObjectName, Reconciler};
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// The time after which a slot is reconciled again whose step was withheld by `--dry-run`.
const DRY_RUN_POLL: Duration = Duration::from_secs(60);

/// The time after which a slot is looked at again whose BidNode this version of the program cannot read.
const UNREADABLE_POLL: Duration = Duration::from_secs(30);

/// The controller of slots.
pub(super) struct Slots(pub(super) Arc<Context>);

impl Reconciler for Slots {
    type Object = BidSlot;
    type Error = ServiceError;

    const NAME: &'static str = "slots";

    async fn reconcile(
        &self,
        slot: Arc<BidSlot>,
        context: &PassContext,
    ) -> Result<Action, Error<ServiceError>> {
        if self.0.stores.is_bidnode_unreadable(&slot) && makes_bids(&slot) {
            return Ok(Action::RequeueAfter(UNREADABLE_POLL));
        }
        phased::run(self, slot, context).await
    }

    /// The node of such a slot has a deadline.
    fn is_urgent(&self, slot: &BidSlot) -> bool {
        let phase = slot.status.as_ref().map(|status| status.phase);
        matches!(phase, Some(SlotPhase::Notice | SlotPhase::Draining))
    }

    /// A slot of a paused BidNode still answers notices.
    fn is_pausable(&self) -> bool {
        false
    }

    fn forget(&self, _: &ObjectName, uid: &str) {
        self.0.forget(uid);
    }
}

impl Phased for Slots {
    type Object = BidSlot;
    type Observation = (SlotObjects, Observation);
    type Step = Step;
    type Error = ServiceError;

    async fn observe(
        &self,
        slot: &BidSlot,
        _: &PassContext,
    ) -> Result<(SlotObjects, Observation), Error<ServiceError>> {
        Ok(observe(slot.clone(), &self.0).await?)
    }

    fn plan(&self, (objects, observation): &(SlotObjects, Observation)) -> Plan<Step> {
        let plan = plan::slot::plan(observation);
        // Slots whose bids are amended before this one.
        let namespace = objects.slot.namespace().unwrap_or_default();
        for name in &plan.reconcile {
            self.0.slot_wakes.wake(ObjectRef::new(name).within(&namespace));
        }
        if let Step::Wait(time) = plan.step {
            return Plan::Wait(Duration::try_from(time).unwrap_or(RETRY));
        }
        Plan::Do(plan.step)
    }

    fn records_before(&self, step: &Step) -> bool {
        step.is_recorded_before()
    }

    async fn act(
        &self,
        step: &Step,
        (objects, _): (SlotObjects, Observation),
        slot: &mut BidSlot,
        context: &PassContext,
    ) -> Result<Progress, Error<ServiceError>> {
        if context.writer.is_dry_run() {
            info!(slot = objects.slot.name_any(), ?step, "withheld by --dry-run");
            return Ok(Progress::RetryAfter(DRY_RUN_POLL));
        }
        Ok(act(step, &objects, slot, &self.0).await?)
    }

    fn describe(&self, slot: &mut BidSlot, error: Option<&Error<ServiceError>>) {
        set_conditions(slot, error, &self.0);
        record_applied(slot, error, &self.0);
    }
}

/// Returns true if a slot is wanted and holds no unit: it places and amends bids as its BidNode says.
fn makes_bids(slot: &BidSlot) -> bool {
    let holds = slot.status.as_ref().is_some_and(|status| status.allocation.is_some());
    !holds && slot.spec.release.is_none() && slot.metadata.deletion_timestamp.is_none()
}

/// Records the labels and taints of a registered node, for a slot of an earlier operator, which has no record.
fn record_applied(slot: &mut BidSlot, error: Option<&Error<ServiceError>>, context: &Context) {
    let Some(status) = &slot.status else { return };
    let is_registered = matches!(status.phase, SlotPhase::Registered | SlotPhase::Ready) && error.is_none();
    if status.applied.is_some() || !is_registered {
        return;
    }
    if let Some(bidnode) = context.stores.bidnode_of(slot) {
        let applied = plan::node::applied(&bidnode, slot);
        slot.status.get_or_insert_default().applied = Some(applied);
    }
}

/// Sets the conditions of a slot: what the slot has reached, and what it waits for.
fn set_conditions(slot: &mut BidSlot, error: Option<&Error<ServiceError>>, context: &Context) {
    let status = slot.status.get_or_insert_default();
    let node = context.node_of(status);
    let slot_uid = slot.metadata.uid.as_deref().unwrap_or_default();
    let is_unproven = status.phase < SlotPhase::Releasing
        && node.as_ref().is_some_and(|node| !is_machine_of(node, slot_uid, status.unit.as_deref()));
    let held_since = || Some(node.as_ref()?.metadata.deletion_timestamp.as_ref()?.0);
    let bid_cache = context.engine().bid_cache();
    let obstacle = match error {
        // The status says why a bid was not placed.
        Some(Error::Own(ServiceError::Engine(kubebid_client::Error::Refused(refusal)))) => {
            status.bid.map(|_| Obstacle::Refused(refusal.to_string()))
        }
        Some(Error::Own(ServiceError::Engine(error))) => Some(Obstacle::EngineUnavailable(error.to_string())),
        Some(Error::Own(ServiceError::Provisioner(fault))) => {
            Some(Obstacle::ProvisionerUnavailable(fault.to_string()))
        }
        Some(Error::Cluster(_)) if status.refused_generation.is_some() => {
            status.message.clone().map(Obstacle::RegistrationRefused)
        }
        Some(Error::Conflict | Error::Cluster(_) | Error::NotLeader | Error::Panicked(_)) => return,
        None if is_unproven => status.node.clone().map(Obstacle::NodeUnproven),
        None if bid_cache.is_listed() => held_since().map(Obstacle::NodeHeld),
        None => bid_cache.fault().map(Obstacle::EngineUnavailable),
    };
    let facts = Facts {
        obstacle: obstacle.as_ref(),
        node_ready: node.as_ref().is_some_and(|node| is_ready(node)),
        limits: context.limits(),
        generation: slot.metadata.generation,
        now: clock::now(),
    };
    status.conditions = conditions(status, &facts);
}
