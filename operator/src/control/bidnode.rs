//! Reconciles a BidNode: the number of its slots, and its status.

use crate::act;
use crate::api::{BidNode, BidSlot, FINALIZER};
use crate::context::Context;
use crate::error::{Error, ServiceError};
use crate::observe::status::Found;
use crate::plan::count::Changes;
use crate::plan::status::PodsReport;
use crate::{clock, observe, plan};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use kubebid_controller::{Action, Context as PassContext, Error as PassError, ObjectName, Reconciler};
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// The time after which a BidNode is reconciled again while it is not known how many nodes pods need, or how many slots it has.
const DEMAND_POLL: Duration = Duration::from_secs(10);
/// The time after which a BidNode that is being deleted is reconciled again.
const DELETION_POLL: Duration = Duration::from_secs(2);

/// The controller of BidNodes.
pub(super) struct BidNodes(pub(super) Arc<Context>);

impl Reconciler for BidNodes {
    type Object = BidNode;
    type Error = ServiceError;

    const NAME: &'static str = "bidnodes";

    async fn reconcile(
        &self,
        bidnode: Arc<BidNode>,
        _: &PassContext,
    ) -> Result<Action, PassError<ServiceError>> {
        Ok(reconcile(bidnode, &self.0).await?)
    }

    fn forget(&self, name: &ObjectName, uid: &str) {
        self.0.bidnode_metrics().remove(&name.namespace, &name.name);
        self.0.forget(uid);
    }
}

async fn reconcile(bidnode: Arc<BidNode>, context: &Context) -> Result<Action, Error> {
    let mut bidnode = context.newest(bidnode);
    let slots = context.stores.slots_of(&bidnode);
    if bidnode.metadata.deletion_timestamp.is_some() {
        return delete(&bidnode, &slots, context).await;
    }
    if !bidnode.finalizers().iter().any(|name| name == FINALIZER) {
        context.bidnode_writer.add_finalizer(bidnode.as_ref(), FINALIZER).await?;
        return Ok(Action::AwaitChange);
    }
    enqueue_slots_of_new_generation(&bidnode, &slots, context);
    let now = clock::now();
    if bidnode.status.is_none() {
        // People see at once that it is looked after, whatever becomes of its slots.
        report(&bidnode, &slots, Found::default(), now, context).await?;
        bidnode = context.newest(bidnode);
    }

    let observation = observe::bidnode::observe(&bidnode, &slots, now, context).await;
    let narrow = plan::bidnode::to_widen(&observation);
    act::bidnode::widen(&narrow, &observation.scope, &slots, context).await?;
    let overdue = observation.slots.iter().find_map(|slot| slot.overdue.clone());
    let unreadable = context.stores.unreadable_slots_of(&bidnode);
    if let Some(slot) = unreadable.first() {
        act::bidnode::report_unreadable(slot, &bidnode, context);
        let found = Found { observed_min_nodes: observation.observed_min_nodes, pods: None, overdue };
        let later = report(&bidnode, &slots, found, now, context).await?;
        return Ok(Action::RequeueAfter(later.unwrap_or(DEMAND_POLL)));
    }
    let Some(plan) = plan::bidnode::plan(&observation) else {
        // The engine does not say what a node is: as many slots as there are is the best guess.
        let found = Found { observed_min_nodes: observation.observed_min_nodes, pods: None, overdue };
        let later = report(&bidnode, &slots, found, now, context).await?;
        return Ok(Action::RequeueAfter(later.unwrap_or(DEMAND_POLL)));
    };
    if plan.changes != Changes::default() {
        debug!(bidnode = bidnode.name_any(), ?plan, ?observation, "slots change");
    }
    // A quota or a policy may refuse slots: the status is written all the same.
    let scaled = act::bidnode::scale(&plan, &bidnode, &slots, context).await;
    let observed_min_nodes = match &scaled {
        Ok(()) => Some(bidnode.spec.min_nodes),
        Err(_) => observation.observed_min_nodes,
    };
    act::bidnode::tell(&plan, overdue.as_ref(), &bidnode, context);

    let found = Found {
        observed_min_nodes,
        pods: Some(PodsReport { pending: plan.pending, not_helped: plan.part.not_helped }),
        overdue,
    };
    let later = report(&bidnode, &slots, found, now, context).await?;
    scaled?;
    Ok(Action::RequeueAfter(later.map_or(plan.requeue_after, |later| later.min(plan.requeue_after))))
}

/// Enqueues the slots of a BidNode whose specification has changed: they amend their bids and label their nodes anew.
fn enqueue_slots_of_new_generation(bidnode: &BidNode, slots: &[Arc<BidSlot>], context: &Context) {
    let observed = bidnode.status.as_ref().and_then(|status| status.observed_generation);
    if observed == bidnode.metadata.generation {
        return;
    }
    for slot in slots {
        context.slot_wakes.wake_urgently(ObjectRef::from_obj(slot.as_ref()));
    }
}

/// Reconciles the status of a BidNode. Returns the time after which it is to be written, if it is not written at once.
async fn report(
    bidnode: &BidNode,
    slots: &[Arc<BidSlot>],
    found: Found,
    now: Timestamp,
    context: &Context,
) -> Result<Option<Duration>, Error> {
    let observation = observe::status::observe(bidnode, slots, found, now, context).await;
    let plan = plan::status::plan(&observation);
    act::bidnode::write_status(&plan, bidnode, now, context).await
}

/// Reconciles a BidNode that is being deleted: its bids are cancelled and its nodes given back before it goes.
async fn delete(bidnode: &BidNode, slots: &[Arc<BidSlot>], context: &Context) -> Result<Action, Error> {
    let observation = observe::bidnode::deletion(bidnode, slots, context).await;
    let step = plan::bidnode::deletion(&observation);
    if act::bidnode::delete(step, bidnode, slots, context).await? {
        return Ok(Action::AwaitChange);
    }
    let found = Found { observed_min_nodes: Some(bidnode.spec.min_nodes), ..Found::default() };
    report(bidnode, slots, found, clock::now(), context).await?;
    Ok(Action::RequeueAfter(DELETION_POLL))
}
