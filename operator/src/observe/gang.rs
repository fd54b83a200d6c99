//! Observes a gang: what its bid has, and its members.

use super::status::registration_refused;
use crate::api::{BidNode, BidSlot, BidSlotStatus, SlotPhase};
use crate::cache::bidnode_ref_of;
use crate::clock;
use crate::context::Context;
use crate::engine::CachedBid;
use crate::error::Error;
use crate::plan::gang::{GangBid, GangView, Loss, Member};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use std::sync::Arc;

/// Returns the name of the gang slot of a BidNode.
pub(crate) fn gang_slot_name(bidnode: &str) -> String {
    format!("{bidnode}-gang")
}

/// Returns the name of the member for an allocation. The number makes the name the only one, however often it is made.
pub(crate) fn member_name(bidnode: &str, allocation: u64) -> String {
    format!("{bidnode}-{allocation}")
}

/// Returns the gang slot of a member.
pub(crate) fn gang_slot_of(slot: &BidSlot) -> Option<ObjectRef<BidSlot>> {
    let bidnode = bidnode_ref_of(slot).filter(|_| slot.spec.member.is_some())?;
    Some(ObjectRef::new(&gang_slot_name(&bidnode.name)).within(&slot.namespace()?))
}

/// Observes the gang of a gang slot.
pub(super) async fn observe(
    slot: &BidSlot,
    nodes: u32,
    bidnode: Option<&BidNode>,
    bid: Option<&CachedBid>,
    context: &Context,
) -> Result<GangView, Error> {
    let slots = bidnode.map(|bidnode| context.stores.slots_of(bidnode)).unwrap_or_default();
    let slots: Vec<_> = slots.into_iter().filter(|slot| slot.spec.member.is_some()).collect();
    let has = match slot.status.as_ref().and_then(|status| status.bid).filter(|_| bid.is_some()) {
        Some(bid) => context.engine().gang_bid(bid).await?,
        None => None,
    };
    let is_short = has.is_some_and(|has: GangBid| has.held + has.claimed < nodes);
    let mut members = Vec::new();
    for member in &slots {
        members.push(observe_member(member, is_short, context).await);
    }
    let has_member = |allocation: u64| {
        slots.iter().any(|slot| slot.spec.member.is_some_and(|member| member.allocation == allocation))
    };
    let held = bid.into_iter().flat_map(CachedBid::held).map(|held| held.allocation);
    Ok(GangView {
        nodes,
        bid: has,
        members,
        without_member: held.filter(|allocation| !has_member(*allocation)).collect(),
        paused: bidnode.is_some_and(|bidnode| is_paused(bidnode, &slots, context)),
    })
}

/// Observes a member. The engine is asked for the price to stay only while the gang is short of nodes, for the message alone.
async fn observe_member(slot: &BidSlot, is_short: bool, context: &Context) -> Member {
    let status = slot.status.clone().unwrap_or_default();
    let mut loss = None;
    if let (Some(deadline), Some(allocation)) = (&status.deadline, status.allocation)
        && status.phase < SlotPhase::Released
    {
        let price_to_stay_micros =
            if is_short { context.engine().price_to_stay(allocation).await.ok().flatten() } else { None };
        let node = status.node.clone().unwrap_or_else(|| slot.name_any());
        loss = Some(Loss { node, deadline: deadline.0, price_to_stay_micros });
    }
    Member {
        name: slot.name_any(),
        leaving: slot.spec.release.is_some() || slot.metadata.deletion_timestamp.is_some(),
        machine_ended: status.machine_ended,
        loss,
    }
}

/// Returns whether no node is bid for at this time.
fn is_paused(bidnode: &BidNode, slots: &[Arc<BidSlot>], context: &Context) -> bool {
    let uid = bidnode.uid().unwrap_or_default();
    let statuses = slots.iter().filter_map(|slot| slot.status.as_ref());
    context.memory.pause_after_failures(&uid, clock::now()).is_some()
        || registration_refused(bidnode, statuses, context).is_some()
}

/// Returns the status of the gang slot of a member.
fn gang_status(slot: &BidSlot, context: &Context) -> Option<BidSlotStatus> {
    context.stores.slots.get(&gang_slot_of(slot)?)?.status.clone()
}

/// Returns whether the gang slot of a member has recorded until when a replacement is looked for, or needs none because the bid has
/// all of its nodes besides those under notice. Otherwise the node might be given back before the gang slot has observed its
/// notice.
pub(super) fn knows_of_notice(slot: &BidSlot, bid: &CachedBid, nodes: usize, context: &Context) -> bool {
    let is_recorded = |status: BidSlotStatus| status.deadline.is_some() || status.regroup_time.is_some();
    gang_status(slot, context).is_none_or(is_recorded)
        || bid.held().filter(|held| held.notice.is_none()).count() >= nodes
}

/// Returns whether the gang of a member is about to be regrouped.
pub(super) fn regroups(slot: &BidSlot, context: &Context) -> bool {
    let status = gang_status(slot, context);
    status
        .zip(slot.spec.member)
        .is_some_and(|(status, member)| status.bid == Some(member.bid) && status.regroup_time.is_some())
}

/// Returns the slot of an allocation: of the bid of a gang slot that of the member, otherwise the slot of the bid itself.
pub(super) fn member_or_self(slot: Arc<BidSlot>, allocation: u64, context: &Context) -> Option<Arc<BidSlot>> {
    if slot.spec.gang_nodes.is_none() {
        return Some(slot);
    }
    let name = member_name(&bidnode_ref_of(&slot)?.name, allocation);
    context.stores.slots.get(&ObjectRef::new(&name).within(&slot.namespace()?))
}
