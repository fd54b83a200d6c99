//! Plans the slots of a BidNode, and its deletion.

use super::count::{self, Changes, Rules, SlotView};
use super::demand::{self, Demand, OpenNode, Room};
use super::scope::Scope;
use crate::api::{SlotKey, SlotPhase};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::SignedDuration;
use std::collections::BTreeMap;
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
    /// Its node, if the slot stays and the node takes pods.
    pub node: Option<OpenNode>,
}

/// Everything that the number of slots of a BidNode depends on.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The types and regions in which it bids.
    pub scope: Scope,
    /// Its `minNodes`.
    pub min_nodes: u32,
    /// Its `maxNodes`.
    pub max_nodes: u32,
    /// The `minNodes` that slots were last given up for.
    pub observed_min_nodes: Option<u32>,
    /// True if no slots were given up for this generation yet. The status that says so may lag.
    pub is_new_generation: bool,
    /// The time for which a node beyond `minNodes` may be empty.
    pub empty_after: SignedDuration,
    /// The time for which a node may be not ready.
    pub unhealthy_after: SignedDuration,
    /// The slots.
    pub slots: Vec<ObservedSlot>,
    /// The pods that may need nodes.
    pub demand: Demand,
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
    let rules = rules(observation)?;
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
    Some(Plan { target: count::target(&rules, &slots), changes, requeue_after })
}

/// Returns the slots to which types or regions of the BidNode are to be added: those that still bid.
pub fn to_widen(observation: &Observation) -> Vec<String> {
    let bids = |slot: &&ObservedSlot| {
        slot.view.leaving.is_none() && slot.view.phase <= SlotPhase::Bidding && !slot.view.holds
    };
    let narrow = |slot: &&ObservedSlot| !slot.scope.covers(&observation.scope);
    observation.slots.iter().filter(bids).filter(narrow).map(|slot| slot.view.name.clone()).collect()
}

fn rules(observation: &Observation) -> Option<Rules> {
    let ready: Vec<_> =
        observation.slots.iter().filter_map(|slot| Some(slot.node.as_ref()?.room())).collect();
    let observed = observation.observed_min_nodes.filter(|_| observation.is_new_generation);
    Some(Rules {
        min: observation.min_nodes as usize,
        max: observation.max_nodes as usize,
        needed: observation.demand.nodes_needed(&ready)?,
        fewer: observed.map_or(0, |observed| observed.saturating_sub(observation.min_nodes)) as usize,
        empty_after: observation.empty_after,
        unhealthy_after: observation.unhealthy_after,
    })
}

/// Returns the slots, each with whether its pods would find room elsewhere. That is asked only of a slot that replaces
/// another or is replaced.
fn slots(observation: &Observation) -> Vec<SlotView> {
    let mut views: Vec<_> = observation.slots.iter().map(|slot| slot.view.clone()).collect();
    for index in 0..views.len() {
        views[index].fits_elsewhere =
            is_of_pair(&views[index], &views) && fits_elsewhere(index, &observation.slots);
    }
    views
}

fn is_of_pair(slot: &SlotView, slots: &[SlotView]) -> bool {
    slot.replaces.is_some() || slots.iter().any(|other| other.replaces.as_ref() == Some(&slot.name))
}

fn fits_elsewhere(index: usize, slots: &[ObservedSlot]) -> bool {
    let others = slots.iter().enumerate().filter(|(other, _)| *other != index);
    let rooms: Vec<Room<'_>> = others.filter_map(|(_, slot)| Some(slot.node.as_ref()?.room())).collect();
    demand::fit(slots[index].pods.iter().map(AsRef::as_ref), &rooms)
}

fn is_to_be_tainted(slot: &SlotView) -> bool {
    slot.untainted_for.is_some_and(|waited| waited < TAINTS_FIRST)
}

/// Returns the time until the next node has been empty, or not ready, for too long.
fn next_look(rules: &Rules, slots: &[SlotView], resync: Duration) -> Duration {
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
        ObservedSlot { view, scope: scope(&["h100-8x"]), pods: Vec::new(), node: None }
    }

    fn observation(slots: Vec<ObservedSlot>) -> Observation {
        Observation {
            scope: scope(&["h100-8x"]),
            min_nodes: 2,
            max_nodes: 4,
            observed_min_nodes: Some(2),
            is_new_generation: false,
            empty_after: SignedDuration::from_mins(10),
            unhealthy_after: SignedDuration::from_mins(5),
            slots,
            demand: Demand::default(),
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
