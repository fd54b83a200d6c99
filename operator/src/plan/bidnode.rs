//! Plans the slots of a BidNode, and its deletion.

use super::count::{self, Changes, Rules, SlotView};
use super::demand::{Demand, SETTLED_AFTER};
use super::gang;
use super::packing::{self, OverdueNode, Part, Pool};
use super::room::{self, OpenNode, Room};
use super::scope::Scope;
use crate::api::{BidNodeSpec, Disruption, SlotKey, SlotPhase, micros};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A slot, its node and its pods.
#[derive(Clone, Debug)]
pub struct ObservedSlot {
    /// The slot.
    pub view: SlotView,
    /// The types and regions in which it bids.
    pub scope: Scope,
    /// The pods on its node that would have to move.
    pub pods: Vec<Arc<Pod>>,
    /// Its node, if the slot stays and the node is initialized and takes pods.
    pub node: Option<OpenNode>,
    /// Its node, if that is not initialized although it had time to be.
    pub overdue: Option<OverdueNode>,
    /// True if it has the bid of a gang, and no node.
    pub is_gang_slot: bool,
}

/// Everything that the number of slots of a BidNode depends on.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The time of the observation.
    pub now: Timestamp,
    /// The UID of the BidNode.
    pub uid: String,
    /// The types and regions in which it bids.
    pub scope: Scope,
    /// True if all of its nodes are had, or none.
    pub gang: bool,
    /// Its `minNodes`.
    pub min_nodes: u32,
    /// The number of nodes that it may have; see [`most_nodes`].
    pub most_nodes: usize,
    /// The `minNodes` that slots were last given up for.
    pub observed_min_nodes: Option<u32>,
    /// True if no slots were given up for this generation yet. The status that says so may lag.
    pub is_new_generation: bool,
    /// The bound on nodes that the operator gives up by its own decision.
    pub disruption: Option<Disruption>,
    /// The time for which a node beyond `minNodes` may be empty.
    pub empty_after: SignedDuration,
    /// The time for which a node may be not ready.
    pub unhealthy_after: SignedDuration,
    /// The slots.
    pub slots: Vec<ObservedSlot>,
    /// The pods that may need nodes of any BidNode.
    pub demand: Demand,
    /// This BidNode and the others that these pods fit, in the order of [`packing::sort`]; `None` if it is not known what a node of
    /// this one would be. It need not be in the list if there is no pod.
    pub pools: Option<Vec<Pool>>,
    /// The rest of the pause after machines that failed.
    pub pause: Option<Duration>,
    /// True if the API server refuses the labels or taints of the nodes.
    pub registration_refused: bool,
    /// The time after which the BidNode is reconciled again, at the latest.
    pub resync: Duration,
}

/// The slots to create and to give up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The number of nodes that are wanted.
    pub target: usize,
    /// The slots to create at this moment, and the slots to give up.
    pub changes: Changes,
    /// The nodes that it needs for pods, and the pods that its nodes do not help.
    pub part: Part,
    /// The UIDs of the pods that need room.
    pub pending: BTreeSet<String>,
    /// The time after which the BidNode is reconciled again.
    pub requeue_after: Duration,
}

/// The time after a notice in which taints are written before replacement slots are created. A node that stays untainted
/// delays the slots no longer than this.
const TAINTS_FIRST: SignedDuration = SignedDuration::from_secs(2);
/// The time after which a BidNode is reconciled again while nodes under notice are to be tainted.
const TAINTS_POLL: Duration = Duration::from_millis(100);

/// Returns the plan for the slots of a BidNode; `None` if it is not known how many nodes pods need.
pub fn plan(observation: &Observation) -> Option<Plan> {
    if observation.gang {
        return Some(gang::slots(observation));
    }
    let (part, pending) = part(observation)?;
    let rules = rules(observation, part.needed, !pending.is_empty());
    let slots = slots(observation);
    let mut changes = count::plan(&rules, &slots);
    let mut requeue_after = next_look(&rules, &slots, observation.resync);
    if !changes.create.is_empty() {
        // Creating slots keeps the API server busy, and a taint cannot wait.
        let taints = slots.iter().any(is_to_be_tainted).then_some(TAINTS_POLL);
        if observation.pause.is_some() || observation.registration_refused || taints.is_some() {
            changes.create.clear();
        }
        requeue_after = [observation.pause, taints].into_iter().flatten().fold(requeue_after, Duration::min);
    }
    if !pending.is_empty() {
        // The scheduler may bind them by then, or it is known that it does not.
        requeue_after = requeue_after.min(Duration::try_from(SETTLED_AFTER).unwrap_or_default());
    }
    Some(Plan { target: count::target(&rules, &slots), changes, part, pending, requeue_after })
}

/// Returns the slots to which types or regions of the BidNode are to be added: those that still bid.
pub fn to_widen(observation: &Observation) -> Vec<String> {
    let bids = |slot: &&ObservedSlot| {
        slot.view.leaving.is_none() && slot.view.phase <= SlotPhase::Bidding && !slot.view.holds
    };
    let narrow = |slot: &&ObservedSlot| !slot.scope.covers(&observation.scope);
    observation.slots.iter().filter(bids).filter(narrow).map(|slot| slot.view.name.clone()).collect()
}

/// Returns the number of nodes that a BidNode may have. It is 0 if `maxHourlyCost` is below `maxBid`: no node is billed above its
/// ceiling, and so no hour costs more than `maxHourlyCost`.
pub fn most_nodes(spec: &BidNodeSpec) -> usize {
    let affordable = spec.max_hourly_cost.map(|cost| micros(cost) / micros(spec.max_bid).max(1));
    let affordable = affordable.and_then(|nodes| usize::try_from(nodes).ok()).unwrap_or(usize::MAX);
    (spec.max_nodes.max(spec.min_nodes) as usize).min(affordable)
}

/// Returns the part of this BidNode in the packing of all pods, and the UIDs of these pods.
fn part(observation: &Observation) -> Option<(Part, BTreeSet<String>)> {
    let pods = observation.demand.pods(observation.now);
    let pools = observation.pools.as_ref()?;
    let pending = pods.iter().filter_map(|pending| pending.pod.metadata.uid.clone()).collect();
    let own = pools.iter().position(|pool| pool.uid == observation.uid);
    let part = own.map(|own| packing::pack(&pods, pools).swap_remove(own)).unwrap_or_default();
    Some((part, pending))
}

/// The least time for which a node may be empty while pods need room: the scheduler may bind one to it, or it is known by then
/// that it does not.
const EMPTY_AFTER_MIN: SignedDuration = SignedDuration::from_secs(35);

fn rules(observation: &Observation, needed: usize, pods_wait: bool) -> Rules {
    let least = if pods_wait { EMPTY_AFTER_MIN } else { SignedDuration::ZERO };
    let observed = observation.observed_min_nodes.filter(|_| observation.is_new_generation);
    Rules {
        min: (observation.min_nodes as usize).min(observation.most_nodes),
        max: observation.most_nodes,
        needed,
        disrupted: most_disrupted(observation),
        fewer: observed.map_or(0, |observed| observed.saturating_sub(observation.min_nodes)) as usize,
        empty_after: observation.empty_after.max(least),
        unhealthy_after: observation.unhealthy_after,
    }
}

/// Returns the most nodes that the operator may give up at a time by its own decision.
pub(super) fn most_disrupted(observation: &Observation) -> usize {
    let nodes = observation.slots.iter().filter(|slot| !slot.is_gang_slot);
    let views: Vec<_> = nodes.map(|slot| slot.view.clone()).collect();
    let standing = views.iter().filter(|slot| slot.leaving.is_none() && slot.phase.counts()).count();
    Disruption::most(observation.disruption.as_ref(), standing + count::being_disrupted(&views))
}

/// Returns the slots, each with whether its pods would find room elsewhere. That is asked only of a slot that replaces
/// another or is replaced. A node on its way to replace one that stays after all is not waited for.
fn slots(observation: &Observation) -> Vec<SlotView> {
    let mut views: Vec<_> = observation.slots.iter().map(|slot| slot.view.clone()).collect();
    for index in 0..views.len() {
        if views[index].is_coming && replaces_one_that_stays(&views[index], &views) {
            views[index].is_coming = false;
        }
        views[index].fits_elsewhere =
            is_of_pair(&views[index], &views) && fits_elsewhere(index, &observation.slots);
    }
    views
}

fn replaces_one_that_stays(slot: &SlotView, slots: &[SlotView]) -> bool {
    let stays = |old: &SlotView| old.leaving.is_none() && old.phase == SlotPhase::Ready;
    let old = slots.iter().find(|other| slot.replaces.as_ref() == Some(&other.name));
    slot.pods == 0 && old.is_some_and(stays)
}

fn is_of_pair(slot: &SlotView, slots: &[SlotView]) -> bool {
    slot.replaces.is_some() || slots.iter().any(|other| other.replaces.as_ref() == Some(&slot.name))
}

fn fits_elsewhere(index: usize, slots: &[ObservedSlot]) -> bool {
    let others = slots.iter().enumerate().filter(|(other, _)| *other != index);
    let rooms: Vec<Room<'_>> = others.filter_map(|(_, slot)| Some(slot.node.as_ref()?.room())).collect();
    room::fit(slots[index].pods.iter().map(AsRef::as_ref), &rooms)
}

fn is_to_be_tainted(slot: &SlotView) -> bool {
    slot.untainted_for.is_some_and(|waited| waited < TAINTS_FIRST)
}

/// Returns the time until the next node has been empty, or not ready, for too long.
pub(super) fn next_look(rules: &Rules, slots: &[SlotView], resync: Duration) -> Duration {
    let empty = slots.iter().filter_map(|slot| slot.empty_for).map(|span| rules.empty_after - span);
    let sick = slots.iter().filter_map(|slot| slot.not_ready_for).map(|span| rules.unhealthy_after - span);
    let soonest = empty.chain(sick).filter(|left| left.is_positive()).min();
    soonest
        .and_then(|left| Duration::try_from(left).ok())
        .map_or(resync, |left| resync.min(left + Duration::from_millis(50)))
}

/// A BidNode that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// True while it has the operator's finalizer.
    pub has_finalizer: bool,
    /// True if its owner lets it go although bids may be left at the engine.
    pub abandoned: bool,
    /// True while it has slots.
    pub has_slots: bool,
    /// Its bids that are open or hold a unit. They are asked for when it has no slot; `None` if the engine does not answer.
    pub bids: Option<BTreeMap<u64, SlotKey>>,
}

/// One step in the deletion of a BidNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeletionStep {
    /// Forgets the BidNode: its finalizer is gone.
    Forget,
    /// Removes all finalizers, of the slots as well.
    Abandon,
    /// Deletes the slots, each of which ends its bid.
    DeleteSlots,
    /// Ends the bids whose slots are gone.
    EndBids(BTreeMap<u64, SlotKey>),
    /// Waits for an answer of the engine.
    Wait,
    /// Removes the finalizer: nothing is left.
    Finish,
}

/// Returns the next step in the deletion of a BidNode.
pub fn deletion(observed: &Deletion) -> DeletionStep {
    match &observed.bids {
        _ if !observed.has_finalizer => DeletionStep::Forget,
        _ if observed.abandoned => DeletionStep::Abandon,
        _ if observed.has_slots => DeletionStep::DeleteSlots,
        None => DeletionStep::Wait,
        Some(bids) if bids.is_empty() => DeletionStep::Finish,
        Some(bids) => DeletionStep::EndBids(bids.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ReleaseReason;
    use crate::plan::slot::UnwantedReason;

    fn scope(instance_types: &[&str]) -> Scope {
        let instance_types = instance_types.iter().map(|name| (*name).to_owned()).collect();
        Scope { instance_types, regions: Vec::new() }
    }

    fn slot(ordinal: u32, phase: SlotPhase) -> ObservedSlot {
        let view = SlotView::sample(ordinal, phase);
        ObservedSlot {
            view,
            scope: scope(&["h100-8x"]),
            pods: Vec::new(),
            node: None,
            overdue: None,
            is_gang_slot: false,
        }
    }

    fn observation(slots: Vec<ObservedSlot>) -> Observation {
        Observation {
            now: Timestamp::UNIX_EPOCH,
            uid: "u".to_owned(),
            scope: scope(&["h100-8x"]),
            gang: false,
            min_nodes: 2,
            most_nodes: 4,
            observed_min_nodes: Some(2),
            is_new_generation: false,
            disruption: None,
            empty_after: SignedDuration::from_mins(10),
            unhealthy_after: SignedDuration::from_mins(5),
            slots,
            demand: Demand::default(),
            pools: Some(Vec::new()),
            pause: None,
            registration_refused: false,
            resync: Duration::from_secs(60),
        }
    }

    fn created(observation: &Observation) -> (usize, Duration) {
        let plan = plan(observation).unwrap();
        (plan.changes.create.len(), plan.requeue_after)
    }

    #[test]
    fn nothing_is_created_in_a_pause_after_a_refusal_or_before_the_taints() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(created(&observation(Vec::new())), (2, minute));
        let paused = Observation { pause: Some(second), ..observation(Vec::new()) };
        assert_eq!(created(&paused), (0, second));
        let refused = Observation { registration_refused: true, ..observation(Vec::new()) };
        assert_eq!(created(&refused), (0, minute));
        let mut noticed = slot(0, SlotPhase::Notice);
        noticed.view.untainted_for = Some(SignedDuration::from_millis(1_900));
        assert_eq!(created(&observation(vec![noticed.clone()])), (0, TAINTS_POLL));
        noticed.view.untainted_for = Some(TAINTS_FIRST);
        assert_eq!(created(&observation(vec![noticed])), (2, minute));
    }

    #[test]
    fn only_slots_that_still_bid_are_widened() {
        let mut slots = vec![slot(0, SlotPhase::Pending), slot(1, SlotPhase::Bidding)];
        slots.extend([slot(2, SlotPhase::Awarded), slot(3, SlotPhase::Ready), slot(4, SlotPhase::Bidding)]);
        slots[4].view.leaving = Some(UnwantedReason::Deleted);
        let same = observation(slots);
        assert_eq!(to_widen(&same), Vec::<String>::new());
        let wider = Observation { scope: scope(&["a100-8x", "h100-8x"]), ..same };
        assert_eq!(to_widen(&wider), ["gpu-0", "gpu-1"]);
    }

    #[test]
    fn slots_are_given_up_once_for_a_lower_minimum() {
        let slots = || vec![slot(0, SlotPhase::Ready), slot(1, SlotPhase::Ready), slot(2, SlotPhase::Ready)];
        let busy = |is_new_generation| {
            let mut slots = slots();
            slots.iter_mut().for_each(|slot| slot.view.pods = 1);
            let lowered =
                Observation { observed_min_nodes: Some(3), is_new_generation, ..observation(slots) };
            plan(&lowered).unwrap().changes.release
        };
        assert_eq!(busy(true), [("gpu-2".to_owned(), ReleaseReason::ScaleDown)]);
        assert_eq!(busy(false), []);
    }

    #[test]
    fn it_looks_again_when_a_node_has_been_empty_for_long() {
        let mut empty = slot(0, SlotPhase::Ready);
        empty.view.empty_for = Some(SignedDuration::from_secs(570));
        let observed = observation(vec![empty, slot(1, SlotPhase::Ready)]);
        assert_eq!(plan(&observed).unwrap().requeue_after, Duration::from_millis(30_050));
    }

    #[test]
    fn it_goes_when_the_engine_says_that_nothing_is_left() {
        let deleting = Deletion { has_finalizer: true, abandoned: false, has_slots: true, bids: None };
        assert_eq!(deletion(&deleting), DeletionStep::DeleteSlots);
        let bare = Deletion { has_slots: false, ..deleting.clone() };
        assert_eq!(deletion(&bare), DeletionStep::Wait);
        let bids = BTreeMap::from([(7, SlotKey::default())]);
        let left = Deletion { bids: Some(bids.clone()), ..bare.clone() };
        assert_eq!(deletion(&left), DeletionStep::EndBids(bids));
        let none = Deletion { bids: Some(BTreeMap::new()), ..bare };
        assert_eq!(deletion(&none), DeletionStep::Finish);
        assert_eq!(deletion(&Deletion { abandoned: true, ..deleting.clone() }), DeletionStep::Abandon);
        assert_eq!(deletion(&Deletion { has_finalizer: false, ..deleting }), DeletionStep::Forget);
    }
}
