//! Observes a slot: its BidNode, its node, its bid, and the prices.

use super::gang;
use super::node::{is_machine_of, node_view, not_ready_since};
use super::pod::pod_view;
use super::pool::is_protected;
use crate::api::{ANNOTATION_DRAIN_WITHIN, BidNode, BidSlot, BidSlotStatus, Disruption, SlotKey, SlotPhase};
use crate::clock;
use crate::context::Context;
use crate::engine::{CachedAllocation, CachedBid};
use crate::error::Error;
use crate::plan;
use crate::plan::annotations::duration;
use crate::plan::ceiling::{Markets, StandingBid};
use crate::plan::drain::PodView;
use crate::plan::slot::{
    AllocationView, BidState, BidView, BidWithoutStatus, Limits, Notice, Observation, PeerState, PriceToStay,
    Pricing, UnknownSlot, UnwantedReason, is_turn_of_unknown, most_unknown,
};
use crate::provisioner::Machine;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use tracing::warn;

/// A slot and the objects that its steps write to.
pub(crate) struct SlotObjects {
    /// The slot.
    pub(crate) slot: BidSlot,
    /// Its BidNode, if it still exists and can be read.
    pub(crate) bidnode: Option<Arc<BidNode>>,
    /// Its Node object, if it proves that it is the slot's machine.
    pub(crate) node: Option<Arc<Node>>,
    /// Its bid.
    pub(crate) bid: Option<CachedBid>,
}

impl SlotObjects {
    /// Returns the status of the slot.
    pub(crate) fn status(&self) -> BidSlotStatus {
        self.slot.status.clone().unwrap_or_default()
    }

    /// Returns its allocation, if it has one.
    pub(crate) fn allocation(&self) -> Option<&CachedAllocation> {
        self.bid.as_ref()?.allocation_of(&self.slot).filter(|_| self.slot.spec.gang_nodes.is_none())
    }

    /// Returns the notice on its allocation, if there is one.
    pub(crate) fn notice(&self) -> Option<Notice> {
        notice(self.allocation()?)
    }
}

/// Observes a slot.
pub(crate) async fn observe(slot: BidSlot, context: &Context) -> Result<(SlotObjects, Observation), Error> {
    let objects = objects(slot, context).await?;
    let now = clock::now();
    let status = objects.status();
    let unwanted = unwanted(&objects, context);
    let mut observation = Observation {
        now,
        spec: objects.slot.spec.clone(),
        bidnode: objects.bidnode.clone(),
        unwanted,
        bid: bid_state(&objects, context),
        bid_without_status: bid_without_status(&objects, context),
        node: objects.node.as_ref().map(|node| node_view(node, is_registered(&objects, context))),
        pricing: None,
        price_to_stay: PriceToStay::NotAsked,
        peers: objects
            .notice()
            .filter(|notice| notice.waits_for_peers(now))
            .map(|_| peers(&objects, context)),
        pods: pods(&objects, context),
        other_drains: context.stores.ending_slots().saturating_sub(1),
        machine_gone: false,
        is_turn_of_unknown: true,
        gang: None,
        regroups: gang::regroups(&objects.slot, context),
        limits: limits(&objects, context),
        status,
    };
    if observation.bid == BidState::Unknown {
        let is_without_node = observation.status.allocation.is_none();
        observation.is_turn_of_unknown =
            context.journal.is_same() && (is_without_node || is_its_turn(&objects, context));
    }
    if let Some(nodes) = objects.slot.spec.gang_nodes {
        let (bidnode, bid) = (objects.bidnode.as_deref(), objects.bid.as_ref());
        observation.gang = Some(gang::observe(&objects.slot, nodes, bidnode, bid, context).await?);
    }
    if let Some(markets) = markets(&objects, unwanted.is_some(), context).await? {
        let bid = objects.bid.as_ref().map(|bid| standing(bid, &objects.slot, &observation.status));
        observation.pricing = Some(Pricing { markets, bid, others: Vec::new() });
        if observation.amend_micros().is_some()
            && let Some(pricing) = &mut observation.pricing
        {
            pricing.others = other_bids(&objects, context);
        }
    }
    observation.price_to_stay = price_to_stay(&objects, &observation, context).await?;
    observation.machine_gone = machine_gone(&objects, context).await;
    Ok((objects, observation))
}

async fn objects(slot: BidSlot, context: &Context) -> Result<SlotObjects, Error> {
    let bidnode = context.stores.bidnode_of(&slot);
    let status = slot.status.as_ref();
    let node = status.and_then(|status| status.node.as_deref()).and_then(|name| context.stores.node(name));
    // A later node of the same name is not the slot's, nor is a node that does not prove that it is.
    let uid = status.and_then(|status| status.node_uid.clone());
    let unit = status.and_then(|status| status.unit.as_deref());
    let slot_uid = slot.metadata.uid.as_deref().unwrap_or_default();
    let node = node
        .filter(|node| uid.is_none() || node.uid() == uid)
        .filter(|node| is_machine_of(node, slot_uid, unit));
    let node = node.map(|node| context.newest(node));
    let bid = match status.and_then(|status| status.bid) {
        Some(bid) => known_bid(bid, &slot, context).await?,
        None => None,
    };
    Ok(SlotObjects { slot, bidnode, node, bid })
}

/// Returns whether it is the turn of a slot to be given up because the engine does not know its bid: by the bound of the operator, and by
/// that of its BidNode. A node that people do not want to be disrupted stays.
fn is_its_turn(objects: &SlotObjects, context: &Context) -> bool {
    let key = SlotKey::of(&objects.slot);
    let of = |slots: Vec<Arc<BidSlot>>| -> Vec<UnknownSlot> {
        slots.iter().filter_map(|slot| unknown_slot(slot, context)).collect()
    };
    let all = of(context.stores.slots.all());
    let of_bidnode = objects.bidnode.as_ref().is_none_or(|bidnode| {
        let slots = of(context.stores.slots_of(bidnode));
        let most = Disruption::most(bidnode.spec.disruption.as_ref(), slots.len());
        is_turn_of_unknown(&key, &slots, most)
    });
    of_bidnode
        && is_turn_of_unknown(&key, &all, most_unknown(all.len()))
        && !is_protected(&objects.slot, context)
}

/// Returns a slot as [`is_turn_of_unknown`] needs it, if it has an allocation.
fn unknown_slot(slot: &BidSlot, context: &Context) -> Option<UnknownSlot> {
    let status = slot.status.as_ref().filter(|status| status.allocation.is_some())?;
    let leaves = (SlotPhase::Draining..=SlotPhase::Releasing).contains(&status.phase);
    match &status.lost_time {
        None => Some(UnknownSlot::Known),
        Some(_) if leaves => Some(UnknownSlot::Leaves),
        // It does not go, and others do not wait for it.
        Some(_) if is_protected(slot, context) => Some(UnknownSlot::Known),
        Some(_) if status.phase < SlotPhase::Notice => Some(UnknownSlot::Waits(SlotKey::of(slot))),
        Some(_) => None,
    }
}

/// Returns a bid from the cache. The engine is asked for a bid that the lists do not have, and for one whose allocation ended
/// between two lists.
async fn known_bid(bid: u64, slot: &BidSlot, context: &Context) -> Result<Option<CachedBid>, Error> {
    let cache = context.engine().bid_cache();
    let known = cache.bid(bid);
    let member = slot.spec.member.map(|member| member.allocation);
    let has_allocation =
        member.is_some() || slot.status.as_ref().is_some_and(|status| status.allocation.is_some());
    let is_lost = known.as_ref().is_none_or(|known| has_allocation && known.allocation_of(slot).is_none());
    if is_lost && cache.is_listed() {
        context.engine().resolve(bid, member.unwrap_or(bid)).await?;
        return Ok(cache.bid(bid));
    }
    Ok(known)
}

fn unwanted(objects: &SlotObjects, context: &Context) -> Option<UnwantedReason> {
    let deleted = match &objects.bidnode {
        Some(bidnode) => bidnode.metadata.deletion_timestamp.is_some(),
        None => !context.stores.is_bidnode_unreadable(&objects.slot),
    };
    if deleted || objects.slot.metadata.deletion_timestamp.is_some() {
        return Some(UnwantedReason::Deleted);
    }
    objects.slot.spec.release.map(UnwantedReason::Release)
}

fn is_registered(objects: &SlotObjects, context: &Context) -> bool {
    registration(objects, context).is_none()
}

/// Returns the patch that gives the node of a slot its labels and taints, if it needs one.
pub(crate) fn registration(objects: &SlotObjects, context: &Context) -> Option<Value> {
    let (node, bidnode) = (objects.node.as_ref()?, objects.bidnode.as_ref()?);
    match &context.label_sets {
        Some(sets) => {
            sets.with_pools(|pools| plan::node::registration(node, bidnode, &objects.slot, Some(pools)))
        }
        None => plan::node::registration(node, bidnode, &objects.slot, None),
    }
}

fn bid_state(objects: &SlotObjects, context: &Context) -> BidState {
    match &objects.bid {
        None if context.engine().bid_cache().is_listed() => BidState::Unknown,
        None => BidState::NotListed,
        Some(bid) if !is_bid_of(bid, &objects.slot) => BidState::Unknown,
        Some(bid) => BidState::Known(BidView {
            open: bid.open,
            ceiling_micros: bid.ceiling_micros,
            allocation: objects.allocation().map(|held| AllocationView {
                allocation: held.allocation,
                ready: held.ready,
                notice: notice(held),
                ended: held.ended.clone(),
            }),
        }),
    }
}

/// Returns a live bid of a slot whose status names none and has begun none.
fn bid_without_status(objects: &SlotObjects, context: &Context) -> BidWithoutStatus {
    let status = objects.status();
    if status.bid.is_some() || status.ceiling_micros.is_some() || objects.slot.spec.member.is_some() {
        return BidWithoutStatus::None;
    }
    let cache = context.engine().bid_cache();
    if !cache.is_listed() {
        return BidWithoutStatus::NotListed;
    }
    let bid = cache.live_bid_of(&objects.slot.uid().unwrap_or_default(), status.replaced_bid.unwrap_or(0));
    let known = bid.and_then(|bid| Some((bid, cache.bid(bid)?)));
    known.map_or(BidWithoutStatus::None, |(bid, known)| BidWithoutStatus::Bid {
        bid,
        ceiling_micros: known.ceiling_micros,
    })
}

/// Returns whether a bid is that of the slot, or of the gang that the slot is a member of. A bid that the engine does not know has
/// no slot.
fn is_bid_of(bid: &CachedBid, slot: &BidSlot) -> bool {
    match slot.spec.member {
        Some(_) => !bid.slot.uid.is_empty(),
        None => Some(&bid.slot.uid) == slot.uid().as_ref(),
    }
}

/// Returns the notice on an allocation, if there is one.
pub(crate) fn notice(allocation: &CachedAllocation) -> Option<Notice> {
    let (started, deadline) = allocation.notice?;
    Some(Notice { started: instant(started)?, deadline: instant(deadline)? })
}

/// Converts microseconds of market time to a time of Kubernetes.
pub(crate) fn instant(us: u64) -> Option<Timestamp> {
    i64::try_from(us).ok().and_then(|us| Timestamp::from_microsecond(us).ok())
}

/// Returns the time-outs of a slot: those of the operator, unless its BidNode says another.
fn limits(objects: &SlotObjects, context: &Context) -> Limits {
    let limits = context.limits();
    let Some(bidnode) = &objects.bidnode else { return limits };
    Limits { drain: duration(bidnode, ANNOTATION_DRAIN_WITHIN, limits.drain), ..limits }
}

/// Returns the markets, if prices matter in this phase: before a bid, and while it may be amended.
async fn markets(
    objects: &SlotObjects,
    is_unwanted: bool,
    context: &Context,
) -> Result<Option<Arc<Markets>>, Error> {
    let phase = objects.status().phase;
    // The bid of a gang is amended by its gang slot.
    let is_unwanted = is_unwanted || objects.slot.spec.member.is_some();
    let Some(bidnode) = objects.bidnode.as_ref().filter(|_| !is_unwanted) else { return Ok(None) };
    // Slots are compared with each other, so all have the prices of their BidNode.
    let scope = context.scope_of(bidnode);
    match phase {
        // A node that runs has other needs than its price.
        SlotPhase::Ready => Ok(context.engine().markets(&scope).await.ok().flatten()),
        SlotPhase::Pending | SlotPhase::Bidding => Ok(context.engine().markets(&scope).await?),
        SlotPhase::Awarded
        | SlotPhase::Provisioning
        | SlotPhase::Registered
        | SlotPhase::Notice
        | SlotPhase::Draining
        | SlotPhase::Releasing
        | SlotPhase::Released
        | SlotPhase::Failed => Ok(None),
    }
}

fn standing(bid: &CachedBid, slot: &BidSlot, status: &BidSlotStatus) -> StandingBid {
    StandingBid {
        ceiling_micros: bid.ceiling_micros,
        waits: match slot.spec.gang_nodes {
            Some(_) => bid.held().next().is_none(),
            None => bid.allocations.is_empty(),
        },
        protected_until: status.protected_until.as_ref().map(|time| time.0),
    }
}

/// Returns the bids of the BidNode's other slots that may be amended: bids that wait, and bids of nodes that run.
fn other_bids(objects: &SlotObjects, context: &Context) -> Vec<(String, StandingBid)> {
    // A gang has one bid.
    let Some(bidnode) = objects.bidnode.as_ref().filter(|bidnode| !bidnode.spec.gang) else {
        return Vec::new();
    };
    let siblings = context.stores.slots_of(bidnode);
    let others = siblings.into_iter().filter(|slot| slot.uid() != objects.slot.uid());
    let bids = others.filter_map(|slot| {
        let status = slot.status.as_ref()?;
        let bid = context.engine().bid_cache().bid(status.bid?).filter(|bid| bid.open)?;
        let bid = standing(&bid, &slot, status);
        let amended = if bid.waits { SlotPhase::Bidding } else { SlotPhase::Ready };
        (status.phase == amended).then(|| (slot.name_any(), bid))
    });
    bids.collect()
}

/// Asks for the price to stay, if the slot has a notice that it has not answered.
async fn price_to_stay(
    objects: &SlotObjects,
    observation: &Observation,
    context: &Context,
) -> Result<PriceToStay, Error> {
    let (Some(notice), Some(bidnode)) = (observation.unanswered_notice(), &objects.bidnode) else {
        return Ok(PriceToStay::NotAsked);
    };
    let Some(allocation) = observation.status.allocation else { return Ok(PriceToStay::NotAsked) };
    let asked = async {
        let Some(price_micros) = context.engine().price_to_stay(allocation).await? else {
            return Ok(PriceToStay::Rescinded);
        };
        let markets = context.engine().markets(&context.scope_of(bidnode)).await?;
        Ok(PriceToStay::Known { price_micros, markets })
    };
    match asked.await {
        Err(error) if notice.waits_for_engine(clock::now()) => Err(Error::Engine(error)),
        Err(error) => {
            warn!(slot = objects.slot.name_any(), %error, "the engine does not say the price to stay: the node goes");
            Ok(PriceToStay::NoAnswer)
        }
        Ok(answer) => Ok(answer),
    }
}

fn peers(objects: &SlotObjects, context: &Context) -> PeerState {
    let noticed = context.engine().bid_cache().under_notice();
    if !noticed.iter().all(|(slot, allocation)| is_tainted(slot, *allocation, context)) {
        return PeerState::Untainted;
    }
    let is_deleting = |bidnode: &Arc<BidNode>| bidnode.metadata.deletion_timestamp.is_some();
    let Some(bidnode) = objects.bidnode.as_ref().filter(|bidnode| !is_deleting(bidnode)) else {
        return PeerState::Tainted { bids: 0, wanted: 0 };
    };
    if let (Some(_), Some(bid)) = (objects.slot.spec.member, &objects.bid) {
        // No other bid is placed for a gang.
        let knows = gang::knows_of_notice(&objects.slot, bid, bidnode.spec.min_nodes as usize, context);
        return PeerState::Tainted { bids: usize::from(knows), wanted: 1 };
    }
    let noticed: BTreeSet<&str> = noticed.iter().map(|(slot, _)| slot.uid.as_str()).collect();
    let has_bid = |slot: &BidSlot| {
        slot.status.as_ref().is_some_and(|status| status.phase.counts() && status.bid.is_some())
    };
    let bids = context.stores.slots_of(bidnode).into_iter().filter(|slot| {
        let noticed = slot.uid().is_some_and(|uid| noticed.contains(uid.as_str()));
        !noticed && slot.spec.release.is_none() && has_bid(slot)
    });
    let target = context.memory.target(&bidnode.uid().unwrap_or_default());
    PeerState::Tainted { bids: bids.count(), wanted: target.unwrap_or(bidnode.spec.min_nodes as usize) }
}

/// Returns whether the node of an allocation under notice has its taint. `key` is the slot of its bid. A slot or a node that is gone
/// needs none.
fn is_tainted(key: &SlotKey, allocation: u64, context: &Context) -> bool {
    let slot = context.stores.slots.get(&ObjectRef::new(&key.name).within(&key.namespace));
    let Some(slot) = slot.filter(|slot| slot.uid().as_deref() == Some(&key.uid)) else { return true };
    let Some(slot) = gang::member_or_self(slot, allocation, context) else { return true };
    let name = slot.status.as_ref().and_then(|status| status.node.as_deref());
    let Some(node) = name.and_then(|name| context.stores.node(name)) else { return true };
    node_view(&node, true).leaving
}

/// Returns the pods on the node while it is drained.
fn pods(objects: &SlotObjects, context: &Context) -> Vec<PodView> {
    let status = objects.status();
    let drains = status.phase == SlotPhase::Draining && objects.node.is_some();
    let Some(node) = status.node.filter(|_| drains) else { return Vec::new() };
    context.stores.pods_on(&node).iter().filter_map(|pod| pod_view(pod)).collect()
}

/// Returns whether the provisioner says that the machine of a node that is not ready is gone. A provisioner that does not
/// answer delays no other step.
async fn machine_gone(objects: &SlotObjects, context: &Context) -> bool {
    let silent = objects.node.as_ref().is_some_and(|node| not_ready_since(node).is_some());
    let status = objects.status();
    let Some(name) = status.node.filter(|_| silent && status.phase == SlotPhase::Ready) else { return false };
    match context.provisioner().get(&objects.slot.uid().unwrap_or_default(), &name).await {
        Ok(Machine::Gone | Machine::Failed { .. }) => true,
        Ok(Machine::Coming | Machine::Running { .. }) => false,
        Err(error) => {
            warn!(slot = objects.slot.name_any(), %error, "whether its machine is gone is not known");
            false
        }
    }
}
