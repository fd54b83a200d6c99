//! Reconciles a slot: step after step, until it has to wait.

use super::act::{Outcome, act};
use super::context::Context;
use super::objects::write_status;
use super::{Error, node};
use crate::api::{BidNode, BidSlot, BidSlotStatus, SlotPhase, micros};
use crate::auction::{Known, SlotKey};
use crate::clock;
use crate::plan::drain::{PodView, Tier};
use crate::plan::price::{self, Bid, Markets};
use crate::plan::slot::conditions::{Facts, Obstacle, conditions};
use crate::plan::slot::{self as plan, AllocationView, Auction, BidView, Observation, Step, Unwanted};
use crate::provision::Machine;
use crate::world::{is_machine_of, is_ready, node_view, not_ready_since, pod_view};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use kube::runtime::events::EventType;
use kube::runtime::reflector::ObjectRef;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// More than a slot ever needs in one look.
const STEPS_MAX: usize = 32;
/// The time to wait before the same step is tried again, where no event comes first.
const AGAIN: Duration = Duration::from_millis(500);
/// The time that a bid waits for another of its BidNode to be amended first, before it looks again.
const TURN: SignedDuration = SignedDuration::from_millis(200);

/// All there is to see of a slot.
pub(super) struct ObservedObjects {
    pub(super) slot: BidSlot,
    pub(super) owner: Option<Arc<BidNode>>,
    pub(super) node: Option<Arc<Node>>,
    pub(super) known: Option<Known>,
}

impl ObservedObjects {
    pub(super) fn status(&self) -> BidSlotStatus {
        self.slot.status.clone().unwrap_or_default()
    }

    /// Tells people, on the BidNode of the slot.
    pub(super) fn tell_owner(&self, type_: EventType, reason: &str, note: String, context: &Context) {
        if let Some(owner) = &self.owner {
            context.tell(owner.as_ref(), Some(&self.slot), type_, reason, note);
        }
    }

    /// Returns when the notice on its node began and ends, if there is one.
    pub(super) fn notice(&self) -> Option<(Timestamp, Timestamp)> {
        let (started, deadline) = self.known.as_ref()?.allocation.as_ref()?.notice?;
        Some((instant(started)?, instant(deadline)?))
    }
}

/// The status is written when the slot waits, and before a step that must find it so after a crash; what changes in
/// between is one write.
pub(super) async fn reconcile(slot: Arc<BidSlot>, context: Arc<Context>) -> Result<Action, Error> {
    let slot = context.slots.newest(slot);
    let mut draft = Draft::new(BidSlot::clone(&slot));
    let done = steps(&mut draft, &context).await;
    // What was done before a failure was done.
    draft.describe(done.as_ref().err(), &context);
    draft.write(&context).await?;
    done
}

async fn steps(draft: &mut Draft, context: &Context) -> Result<Action, Error> {
    let mut last = None;
    for _ in 0..STEPS_MAX {
        context.leads()?;
        let observed = look(draft.slot.clone(), context).await?;
        let step = next(&observed, context).await?;
        if let Step::Wait(time) = step {
            let time = Duration::try_from(time).unwrap_or(AGAIN).max(Duration::from_millis(50));
            return Ok(Action::requeue(time));
        }
        if last.as_ref() == Some(&step) {
            // Done, and not to be seen yet: an event will tell.
            return Ok(Action::requeue(AGAIN));
        }
        if step == Step::Place {
            draft.describe(None, context);
            draft.write(context).await?;
        }
        match act(&step, observed, context, &mut draft.slot).await? {
            Outcome::Done => {}
            Outcome::Later(time) => return Ok(Action::requeue(time)),
            Outcome::Gone => {
                draft.forget();
                return Ok(Action::await_change());
            }
        }
        last = Some(step);
    }
    Ok(Action::requeue(AGAIN))
}

/// A slot with a status that may not be written yet.
struct Draft {
    slot: BidSlot,
    written: Option<BidSlotStatus>,
    gone: bool,
}

impl Draft {
    fn new(slot: BidSlot) -> Self {
        Draft { written: slot.status.clone(), slot, gone: false }
    }

    /// Says in its conditions how far the slot is, and what it waits for.
    fn describe(&mut self, error: Option<&Error>, context: &Context) {
        let status = self.slot.status.get_or_insert_default();
        let node = context.node_of(status);
        let held =
            || node.as_ref()?.metadata.deletion_timestamp.as_ref().map(|since| Obstacle::Held(since.0));
        let uid = self.slot.metadata.uid.as_deref().unwrap_or_default();
        let unproven = status.phase < SlotPhase::Releasing
            && node.as_ref().is_some_and(|node| !is_machine_of(node, uid, status.unit.as_deref()));
        let away = || context.auction().bid_cache().fault().map(Obstacle::Auction);
        let obstacle = match error {
            // Why a bid was not placed is in the status.
            Some(Error::Auction(kubebid_client::Error::Refused(refusal))) => {
                status.bid.map(|_| Obstacle::Refused(refusal.to_string()))
            }
            Some(Error::Auction(error)) => Some(Obstacle::Auction(error.to_string())),
            Some(Error::Provisioner(fault)) => Some(Obstacle::Provisioner(fault.to_string())),
            Some(Error::Cluster(_)) if status.refused_generation.is_some() => {
                status.message.clone().map(Obstacle::Registration)
            }
            Some(Error::Stale | Error::Cluster(_) | Error::NotLeading | Error::Panicked(_)) => return,
            None if unproven => status.node.clone().map(Obstacle::Unproven),
            None if context.auction().bid_cache().is_listed() => held(),
            None => away(),
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

    async fn write(&mut self, context: &Context) -> Result<(), Error> {
        if self.slot.status != self.written && !self.gone {
            *self = Draft::new(write_status(&self.slot, context).await?);
        }
        Ok(())
    }

    /// The object is gone, and its status with it.
    fn forget(&mut self) {
        self.gone = true;
    }
}

async fn look(slot: BidSlot, context: &Context) -> Result<ObservedObjects, Error> {
    let owner = context.world().owner(&slot);
    let status = slot.status.as_ref();
    let node = status.and_then(|status| status.node.as_deref()).and_then(|name| context.world().node(name));
    // A node of the same name that came later is not ours, nor is one that does not prove that it is.
    let uid = status.and_then(|status| status.node_uid.clone());
    let unit = status.and_then(|status| status.unit.as_deref());
    let slot_uid = slot.metadata.uid.as_deref().unwrap_or_default();
    let node = node
        .filter(|node| uid.is_none() || node.uid() == uid)
        .filter(|node| is_machine_of(node, slot_uid, unit));
    let node = node.map(|node| context.nodes.newest(node));
    let auction = context.auction();
    let known = match status.and_then(|status| status.bid) {
        Some(bid) => {
            let known = auction.bid_cache().bid(bid);
            // One that it never heard of, or whose node it lost observation of between two lists.
            let held = status.is_some_and(|status| status.allocation.is_some());
            let lost = known.as_ref().is_none_or(|known| held && known.allocation.is_none());
            if lost && auction.bid_cache().is_listed() {
                auction.resolve(bid).await?;
                auction.bid_cache().bid(bid)
            } else {
                known
            }
        }
        None => None,
    };
    Ok(ObservedObjects { slot, owner, node, known })
}

async fn next(observed: &ObservedObjects, context: &Context) -> Result<Step, Error> {
    let now = clock::now();
    let status = observed.status();
    let unwanted = unwanted(observed);
    let markets = markets(observed, unwanted.is_some(), context).await?;
    let prices = prices(observed, markets.as_deref(), now, context);
    let amend_micros = prices.amend_micros.filter(|_| prices.its_turn);
    let registered = || observed.owner.as_ref().is_none_or(|owner| is_registered(observed, owner));
    let node_name = status.node.clone().unwrap_or_default();
    let node = observed.node.as_ref().map(|node| node_view(node, registered()));
    // Where the kubelet says nothing, a pod that is ending will be so for ever.
    let silent = node.as_ref().is_none_or(|node| !node.ready);
    let stays = |pod: &PodView| !pod.ending || (pod.tier < Tier::Daemon && !silent);
    let pods_left = status.phase == SlotPhase::Draining
        && node.is_some()
        && context.world().pods_on(&node_name).iter().filter_map(|pod| pod_view(pod)).any(|pod| stays(&pod));
    let step = plan::next(&Observation {
        now,
        status: &status,
        unwanted,
        auction: auction(observed, context),
        node,
        ceiling_micros: prices.ceiling_micros,
        amend_micros,
        pods_left,
        may_drain: may_drain(observed, context, now),
        machine_gone: machine_gone(observed, context).await,
        limits: context.limits(),
    });
    if let Step::Wait(time) = step
        && !prices.its_turn
    {
        return Ok(Step::Wait(time.min(TURN)));
    }
    Ok(step)
}

fn unwanted(observed: &ObservedObjects) -> Option<Unwanted> {
    let deleting = observed.owner.as_ref().is_none_or(|owner| owner.metadata.deletion_timestamp.is_some());
    if deleting || observed.slot.metadata.deletion_timestamp.is_some() {
        return Some(Unwanted::Deleted);
    }
    observed.slot.spec.release.map(Unwanted::Release)
}

/// Prices are asked for where they matter: before a bid, and while it may be amended.
async fn markets(
    observed: &ObservedObjects,
    unwanted: bool,
    context: &Context,
) -> Result<Option<Arc<Markets>>, Error> {
    let phase = observed.status().phase;
    let matters = phase <= SlotPhase::Bidding || phase == SlotPhase::Ready;
    match &observed.owner {
        // A node that runs has other needs than its price.
        Some(owner) if phase == SlotPhase::Ready && !unwanted => {
            Ok(context.auction().markets(&owner.spec).await.ok().flatten())
        }
        Some(owner) if matters && !unwanted => Ok(context.auction().markets(&owner.spec).await?),
        Some(_) | None => Ok(None),
    }
}

/// What a slot is to bid.
#[derive(Default)]
struct Prices {
    /// The ceiling for a bid of its own; `None` while no price is known.
    ceiling_micros: Option<u64>,
    /// What the bid that stands is to be amended to.
    amend_micros: Option<u64>,
    /// No other bid of its BidNode is to be amended first.
    its_turn: bool,
}

fn prices(
    observed: &ObservedObjects,
    markets: Option<&Markets>,
    now: Timestamp,
    context: &Context,
) -> Prices {
    let (Some(owner), Some(markets)) = (&observed.owner, markets) else {
        return Prices { its_turn: true, ..Prices::default() };
    };
    let spec = &owner.spec;
    let bid = observed.known.as_ref().map(|known| standing(known, &observed.status()));
    let amend = bid.and_then(|bid| Some((bid, price::amendment(spec, markets, &bid, now)?)));
    Prices {
        ceiling_micros: Some(price::offer(spec, &markets.quote).ceiling_micros),
        amend_micros: amend.map(|(_, micros)| micros),
        its_turn: amend.is_none_or(|(bid, micros)| {
            let others = others(observed, owner, context);
            let before = price::amended_before(spec, markets, (&bid, micros), &others, now);
            before.iter().for_each(|slot| context.wakes().slot(ObjectRef::from_obj(slot.as_ref())));
            before.is_empty()
        }),
    }
}

/// Returns how the bid of a slot stands.
fn standing(known: &Known, status: &BidSlotStatus) -> Bid {
    Bid {
        ceiling_micros: known.ceiling_micros,
        waits: known.allocation.is_none(),
        protected_until: status.protected_until.as_ref().map(|time| time.0),
    }
}

/// The other bids of its BidNode that may be amended: those that wait, and those of nodes that run.
fn others(observed: &ObservedObjects, owner: &BidNode, context: &Context) -> Vec<(Arc<BidSlot>, Bid)> {
    let siblings = context.world().slots_of(owner);
    let bids = siblings.into_iter().filter(|slot| slot.uid() != observed.slot.uid()).filter_map(|slot| {
        let status = slot.status.as_ref()?;
        let known = context.auction().bid_cache().bid(status.bid?).filter(|known| known.open)?;
        let bid = standing(&known, status);
        let amended = if bid.waits { SlotPhase::Bidding } else { SlotPhase::Ready };
        (status.phase == amended).then_some((Arc::clone(&slot), bid))
    });
    bids.collect()
}

fn auction(observed: &ObservedObjects, context: &Context) -> Auction {
    match &observed.known {
        None if context.auction().bid_cache().is_listed() => Auction::NoBid,
        None => Auction::Unknown,
        Some(known) if Some(&known.slot.uid) != observed.slot.uid().as_ref() => Auction::NoBid,
        Some(known) => Auction::Bid(BidView {
            open: known.open,
            allocation: known.allocation.as_ref().map(|held| AllocationView {
                allocation: held.allocation,
                ready: held.ready,
                deadline: held.notice.and_then(|(_, deadline)| instant(deadline)),
                ended: held.ended.clone(),
            }),
        }),
    }
}

/// Market time as Kubernetes tells it.
pub(super) fn instant(us: u64) -> Option<Timestamp> {
    i64::try_from(us).ok().and_then(|us| Timestamp::from_microsecond(us).ok())
}

fn is_registered(observed: &ObservedObjects, owner: &BidNode) -> bool {
    observed.node.as_ref().is_some_and(|there| node::registration(there, owner, observed).is_none())
}

/// Nobody is evicted before every node under notice has its taint, and new bids stand where nodes go: for a while,
/// since the notice does not wait.
fn may_drain(observed: &ObservedObjects, context: &Context, now: Timestamp) -> bool {
    let Some((started, deadline)) = observed.notice() else { return true };
    let patience = (deadline.duration_since(started) / 4).min(SignedDuration::from_secs(30));
    if now.duration_since(started) > patience {
        return true;
    }
    let noticed = context.auction().bid_cache().under_notice();
    noticed.iter().all(|key| is_tainted(key, context)) && is_replaced(observed, &noticed, context)
}

fn is_tainted(key: &SlotKey, context: &Context) -> bool {
    let which = ObjectRef::new(&key.name).within(&key.namespace);
    let Some(slot) = context.world().slots.get(&which).filter(|slot| slot.uid().as_deref() == Some(&key.uid))
    else {
        return true;
    };
    let name = slot.status.as_ref().and_then(|status| status.node.as_deref());
    let Some(node) = name.and_then(|name| context.world().node(name)) else { return true };
    node_view(&node, true).leaving
}

/// As many bids stand as the BidNode is to have slots: its pods have somewhere to go.
fn is_replaced(observed: &ObservedObjects, noticed: &[SlotKey], context: &Context) -> bool {
    let Some(owner) = observed.owner.as_ref().filter(|owner| owner.metadata.deletion_timestamp.is_none())
    else {
        return true;
    };
    let noticed: BTreeSet<&str> = noticed.iter().map(|slot| slot.uid.as_str()).collect();
    let bids = |slot: &BidSlot| {
        slot.status.as_ref().is_some_and(|status| status.phase.counts() && status.bid.is_some())
    };
    let standing = context.world().slots_of(owner).into_iter().filter(|slot| {
        let noticed = slot.uid().is_some_and(|uid| noticed.contains(uid.as_str()));
        !noticed && slot.spec.release.is_none() && bids(slot)
    });
    let target = context.target(&owner.uid().unwrap_or_default());
    standing.count() >= target.unwrap_or(owner.spec.min_nodes as usize)
}

/// A node that says nothing any more may have no machine: the provisioner knows. Where it does not answer, whatever
/// else there is to do for the slot is not held up.
async fn machine_gone(observed: &ObservedObjects, context: &Context) -> bool {
    let silent = observed.node.as_ref().is_some_and(|node| not_ready_since(node).is_some());
    let status = observed.status();
    let Some(name) = status.node.filter(|_| silent && status.phase == SlotPhase::Ready) else { return false };
    match context.provisioner().get(&observed.slot.uid().unwrap_or_default(), &name).await {
        Ok(Machine::Gone | Machine::Failed { .. }) => true,
        Ok(Machine::Coming | Machine::Running { .. }) => false,
        Err(error) => {
            warn!(slot = observed.slot.name_any(), %error, "whether its machine is gone is not known");
            false
        }
    }
}

/// Returns whether the ceiling of a slot's bid is above what its BidNode allows.
pub(super) fn is_above_max(status: &BidSlotStatus, max_bid: f64) -> bool {
    status.ceiling_micros.is_some_and(|ceiling| ceiling > micros(max_bid))
}
