//! Plans the number of slots of a BidNode, and which slots are given up.

use super::slot::UnwantedReason;
use crate::api::{ReleaseReason, SlotPhase};
use k8s_openapi::jiff::SignedDuration;

/// A slot, as the plan of its BidNode needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// Its name.
    pub name: String,
    /// The number in its name.
    pub ordinal: u32,
    /// Its phase.
    pub phase: SlotPhase,
    /// The reason why it is being given up, if it is.
    pub leaving: Option<UnwantedReason>,
    /// True if it has an allocation.
    pub holds: bool,
    /// True if its node was won and is not initialized: it may be what a pod waits for.
    pub is_coming: bool,
    /// The number of pods on its node that would have to move. Pods of daemon sets do not count.
    pub pods: usize,
    /// The time for which its ready node has had no such pod.
    pub empty_for: Option<SignedDuration>,
    /// The time for which its node, which was ready, has not been ready.
    pub not_ready_for: Option<SignedDuration>,
    /// The time since the begin of the notice, if its node has no taint yet.
    pub untainted_for: Option<SignedDuration>,
    /// The slot whose node was under notice when this slot was created.
    pub replaces: Option<String>,
    /// True if people do not want its node, or a pod on it, to be disrupted.
    pub is_protected: bool,
    /// True if its pods would find room on the other ready nodes.
    pub fits_elsewhere: bool,
}

impl SlotView {
    fn counts(&self) -> bool {
        self.leaving.is_none() && self.phase.counts()
    }

    /// Returns whether the market takes its node.
    pub fn is_preempted(&self) -> bool {
        self.leaving.is_none() && matches!(self.phase, SlotPhase::Notice | SlotPhase::Draining)
    }

    /// Returns whether its node is in use: it is on its way, pods run on it, or had time to come for less than `empty_after`.
    fn is_used(&self, rules: &Rules) -> bool {
        self.is_coming || self.pods > 0 || self.empty_for.is_some_and(|span| span < rules.empty_after)
    }

    fn is_unhealthy(&self, rules: &Rules) -> bool {
        self.counts() && self.not_ready_for.is_some_and(|span| span >= rules.unhealthy_after)
    }
}

/// The bounds on the number of slots of a BidNode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The number of nodes to have always.
    pub min: usize,
    /// The number of nodes to have at most, if it is above `min`.
    pub max: usize,
    /// The number of bids that pods need besides the nodes that are won.
    pub needed: usize,
    /// The number of nodes by which a person has just lowered `minNodes`: as many slots go at once, busy or not.
    pub fewer: usize,
    /// The most nodes that are given up at a time by the operator's own decision.
    pub disrupted: usize,
    /// The time for which a node beyond `min` may be empty.
    pub empty_after: SignedDuration,
    /// The time for which a node may be not ready.
    pub unhealthy_after: SignedDuration,
}

/// The slots to create and the slots to give up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The slots to create.
    pub create: Vec<NewSlot>,
    /// The names of the slots to give up, with the reasons.
    pub release: Vec<(String, ReleaseReason)>,
}

/// A slot to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSlot {
    /// The lowest free number. A plan from an old list of slots so creates no slot twice.
    pub ordinal: u32,
    /// The slot that it replaces, if the market takes that slot's node.
    pub replaces: Option<String>,
    /// True if it is one beyond `min`, because pods need it.
    pub for_pods: bool,
}

/// Returns the number of nodes that are wanted.
pub fn target(rules: &Rules, slots: &[SlotView]) -> usize {
    let used = slots.iter().filter(|slot| slot.counts() && slot.is_used(rules)).count();
    (used + rules.needed).max(rules.min).min(rules.max.max(rules.min))
}

/// Returns the slots to create and the slots to give up.
pub fn plan(rules: &Rules, slots: &[SlotView]) -> Changes {
    let mut release: Vec<_> =
        unhealthy(rules, slots).into_iter().map(|name| (name, ReleaseReason::NotReady)).collect();
    let mut left = disruptable(rules, slots).saturating_sub(release.len());
    let standing: Vec<&SlotView> = slots
        .iter()
        .filter(|slot| slot.counts() && !release.iter().any(|(name, _)| *name == slot.name))
        .collect();
    let target = target(rules, slots);
    if standing.len() < target {
        let mut replaced = unreplaced(slots);
        let created = target - standing.len();
        let new = |(index, ordinal)| NewSlot {
            ordinal,
            replaces: replaced.next(),
            for_pods: standing.len() + index >= rules.min,
        };
        let create = free_ordinals(slots).take(created).enumerate().map(new).collect();
        return Changes { create, release };
    }
    let must = standing.len().saturating_sub(rules.max.max(rules.min));
    let asked = rules.fewer.min(standing.len().saturating_sub(rules.min));
    for (index, slot) in cheapest_first(rules, standing.clone()).enumerate() {
        let surplus = index < standing.len() - target;
        let free_to_go = index < must || !slot.is_used(rules);
        if slot.is_protected || index >= asked && !(surplus && free_to_go) {
            continue;
        }
        let waited = index >= asked && slot.empty_for.is_some();
        let reason = if waited { ReleaseReason::Empty } else { ReleaseReason::ScaleDown };
        if reason == ReleaseReason::Empty && index >= must {
            let Some(rest) = left.checked_sub(1) else { continue };
            left = rest;
        }
        release.push((slot.name.clone(), reason));
    }
    let spare = standing.len().saturating_sub(release.len()).saturating_sub(rules.min);
    if rules.needed == 0 {
        let doubles = doubles(rules, slots).filter(|double| !release.iter().any(|(name, _)| name == double));
        let doubles: Vec<_> =
            doubles.take(spare.min(left)).map(|name| (name, ReleaseReason::Rescinded)).collect();
        release.extend(doubles);
    }
    Changes { create: Vec::new(), release }
}

/// Returns the number of nodes that may be given up at this moment by the operator's own decision.
fn disruptable(rules: &Rules, slots: &[SlotView]) -> usize {
    rules.disrupted.saturating_sub(being_disrupted(slots))
}

/// Returns the number of nodes that are being given up by the operator's own decision.
pub(super) fn being_disrupted(slots: &[SlotView]) -> usize {
    let is_own = |slot: &&SlotView| {
        let Some(UnwantedReason::Release(reason)) = slot.leaving else { return false };
        let is_own = match reason {
            ReleaseReason::Empty | ReleaseReason::NotReady | ReleaseReason::Rescinded => true,
            ReleaseReason::ScaleDown | ReleaseReason::MaxBid | ReleaseReason::Regroup => false,
        };
        is_own && slot.holds && slot.phase < SlotPhase::Released
    };
    slots.iter().filter(is_own).count()
}

/// Returns the slots whose nodes the market takes and that no slot replaces yet.
fn unreplaced(slots: &[SlotView]) -> impl Iterator<Item = String> {
    slots
        .iter()
        .filter(|slot| slot.is_preempted())
        .map(|slot| &slot.name)
        .filter(|name| !slots.iter().any(|other| other.replaces.as_ref() == Some(name)))
        .cloned()
}

/// Returns one slot of each pair of a ready node whose notice was rescinded and the node that replaces it: the emptier
/// one, if its pods find room elsewhere.
fn doubles(rules: &Rules, slots: &[SlotView]) -> impl Iterator<Item = String> {
    let of_pair = |new: &SlotView| {
        let is_old = |slot: &&SlotView| Some(&slot.name) == new.replaces.as_ref();
        let old = slots.iter().find(is_old)?;
        let stays = |slot: &SlotView| slot.counts() && slot.phase == SlotPhase::Ready;
        if !stays(old) || !new.counts() {
            return None;
        }
        let emptier = cheapest_first(rules, vec![old, new]).next()?;
        let may_go = !emptier.is_protected && (emptier.pods == 0 || emptier.fits_elsewhere);
        may_go.then(|| emptier.name.clone())
    };
    slots.iter().filter_map(of_pair)
}

/// Returns the slots whose nodes are replaced because they are not ready, as many as may be given up at this moment.
pub(super) fn unhealthy(rules: &Rules, slots: &[SlotView]) -> Vec<String> {
    let unhealthy = slots.iter().filter(|slot| slot.is_unhealthy(rules));
    unhealthy.take(disruptable(rules, slots)).map(|slot| slot.name.clone()).collect()
}

/// Returns the slots in the order in which they are given up: without a node, empty, with few pods; the youngest first. Protected
/// ones are last.
fn cheapest_first<'a>(
    rules: &Rules,
    mut slots: Vec<&'a SlotView>,
) -> impl Iterator<Item = &'a SlotView> + use<'a> {
    slots.sort_by_key(|slot| {
        let idle = !slot.is_used(rules);
        let idleness = if idle { slot.empty_for.unwrap_or_default() } else { SignedDuration::ZERO };
        (
            slot.is_protected,
            slot.holds,
            slot.phase == SlotPhase::Ready,
            slot.pods,
            std::cmp::Reverse(idleness),
            std::cmp::Reverse(slot.ordinal),
        )
    });
    slots.into_iter()
}

fn free_ordinals(slots: &[SlotView]) -> impl Iterator<Item = u32> {
    (0..).filter(|ordinal| !slots.iter().any(|slot| slot.ordinal == *ordinal))
}

#[cfg(test)]
impl SlotView {
    /// Returns a slot of the BidNode `gpu`, for tests.
    pub(crate) fn sample(ordinal: u32, phase: SlotPhase) -> SlotView {
        SlotView {
            name: format!("gpu-{ordinal}"),
            ordinal,
            phase,
            leaving: None,
            holds: phase > SlotPhase::Bidding,
            is_coming: (SlotPhase::Awarded..SlotPhase::Ready).contains(&phase),
            pods: 0,
            empty_for: None,
            not_ready_for: None,
            untainted_for: None,
            replaces: None,
            is_protected: false,
            fits_elsewhere: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        min: 2,
        max: 4,
        needed: 0,
        fewer: 0,
        disrupted: 1,
        empty_after: SignedDuration::from_mins(10),
        unhealthy_after: SignedDuration::from_mins(5),
    };

    fn slot(ordinal: u32, phase: SlotPhase) -> SlotView {
        SlotView::sample(ordinal, phase)
    }

    fn busy(ordinal: u32, pods: usize) -> SlotView {
        SlotView { pods, ..slot(ordinal, SlotPhase::Ready) }
    }

    fn empty(ordinal: u32, minutes: i64) -> SlotView {
        SlotView { empty_for: Some(SignedDuration::from_mins(minutes)), ..slot(ordinal, SlotPhase::Ready) }
    }

    /// Expects "+1 +2" for slots to create, "-0:Empty" for slots to give up.
    #[track_caller]
    fn check(rules: Rules, slots: &[SlotView], expect: &str) {
        let changes = plan(&rules, slots);
        let mut said: Vec<String> = changes.create.iter().map(|new| format!("+{}", new.ordinal)).collect();
        said.extend(
            changes
                .release
                .iter()
                .map(|(name, reason)| format!("-{}:{reason:?}", name.trim_start_matches("gpu-"))),
        );
        assert_eq!(said.join(" "), expect);
    }

    #[test]
    fn bids_in_flight_count() {
        check(RULES, &[], "+0 +1");
        check(RULES, &[slot(0, SlotPhase::Pending)], "+1");
        check(RULES, &[slot(0, SlotPhase::Bidding), slot(1, SlotPhase::Provisioning)], "");
    }

    #[test]
    fn a_node_under_notice_is_replaced_once_and_its_number_is_not_used_again() {
        check(RULES, &[slot(0, SlotPhase::Notice), busy(1, 3)], "+2");
        check(RULES, &[slot(0, SlotPhase::Draining), busy(1, 3), slot(2, SlotPhase::Bidding)], "");
    }

    #[test]
    fn when_a_notice_is_taken_back_the_new_bid_goes_if_it_holds_nothing() {
        check(RULES, &[busy(0, 1), busy(1, 1), slot(2, SlotPhase::Bidding)], "-2:ScaleDown");
        let not_awaited = SlotView { is_coming: false, ..slot(2, SlotPhase::Provisioning) };
        check(RULES, &[busy(0, 1), busy(1, 1), not_awaited], "-2:ScaleDown");
    }

    #[test]
    fn a_node_on_its_way_is_kept_until_it_was_ready_and_empty_for_long() {
        let rules = Rules { min: 0, ..RULES };
        for phase in [SlotPhase::Awarded, SlotPhase::Provisioning, SlotPhase::Registered] {
            check(rules, &[slot(0, phase)], "");
            check(Rules { needed: 1, ..rules }, &[slot(0, phase)], "+1");
        }
        let uninitialized = SlotView { is_coming: true, ..slot(0, SlotPhase::Ready) };
        check(rules, &[uninitialized], "");
        check(rules, &[empty(0, 9)], "");
        check(rules, &[empty(0, 10)], "-0:Empty");
    }

    #[test]
    fn each_new_slot_is_in_the_place_of_one_whose_node_goes() {
        let of = |replaces: &str| Some(format!("gpu-{replaces}"));
        let slots = [slot(0, SlotPhase::Notice), slot(1, SlotPhase::Draining)];
        let create = plan(&Rules { min: 3, ..RULES }, &slots).create;
        assert_eq!(
            create.iter().map(|new| (new.ordinal, new.replaces.clone())).collect::<Vec<_>>(),
            [(2, of("0")), (3, of("1")), (4, None)]
        );
        let replaced = SlotView { replaces: of("0"), ..slot(2, SlotPhase::Bidding) };
        let create = plan(&RULES, &[slots[0].clone(), slots[1].clone(), replaced]).create;
        assert_eq!(create, [NewSlot { ordinal: 3, replaces: of("1"), for_pods: false }]);
    }

    #[test]
    fn when_a_notice_is_taken_back_and_both_nodes_run_the_emptier_goes() {
        let rules = Rules { min: 1, ..RULES };
        let new = |pods, fits_elsewhere| SlotView {
            replaces: Some("gpu-0".into()),
            fits_elsewhere,
            ..busy(1, pods)
        };
        let old = |pods, fits_elsewhere| SlotView { fits_elsewhere, ..busy(0, pods) };
        check(rules, &[old(2, true), new(1, true)], "-1:Rescinded");
        check(rules, &[old(1, true), new(2, true)], "-0:Rescinded");
        check(rules, &[old(1, true), new(1, true)], "-1:Rescinded");
        check(rules, &[old(1, false), new(1, false)], "");
        let fresh = SlotView { empty_for: Some(SignedDuration::ZERO), ..new(0, false) };
        check(rules, &[old(1, false), fresh], "-1:Rescinded");
        // While the market takes the old one, and where both are wanted, both stay.
        check(rules, &[slot(0, SlotPhase::Draining), new(1, true)], "");
        check(RULES, &[old(2, true), new(1, true)], "");
    }

    #[test]
    fn pods_that_need_nodes_get_them_up_to_the_maximum() {
        let asked = |needed| Rules { needed, ..RULES };
        check(asked(1), &[busy(0, 1), busy(1, 1)], "+2");
        check(asked(9), &[busy(0, 1), busy(1, 1)], "+2 +3");
        check(asked(1), &[busy(0, 1), busy(1, 1), slot(2, SlotPhase::Bidding)], "");
        check(Rules { min: 0, ..asked(1) }, &[], "+0");
    }

    #[test]
    fn nodes_beyond_the_minimum_go_when_they_were_empty_for_long() {
        check(RULES, &[busy(0, 1), busy(1, 1), empty(2, 9)], "");
        check(RULES, &[busy(0, 1), busy(1, 1), empty(2, 10)], "-2:Empty");
        check(RULES, &[empty(0, 99), empty(1, 99)], "");
        check(RULES, &[empty(0, 99), empty(1, 12), empty(2, 12)], "-0:Empty");
    }

    #[test]
    fn as_many_as_a_person_takes_off_the_minimum_go_at_once_the_emptiest_first() {
        let fewer = |min, fewer| Rules { min, fewer, ..RULES };
        check(fewer(1, 2), &[busy(0, 3), empty(1, 0), busy(2, 1)], "-1:ScaleDown -2:ScaleDown");
        check(fewer(1, 1), &[busy(0, 3), empty(1, 0), busy(2, 1)], "-1:ScaleDown");
        check(fewer(2, 1), &[busy(0, 1), busy(1, 1)], "");
        check(fewer(0, 2), &[busy(0, 1), slot(1, SlotPhase::Bidding)], "-1:ScaleDown -0:ScaleDown");
        // What the operator would give up by itself waits.
        check(fewer(1, 1), &[empty(0, 0), empty(1, 0), busy(2, 1)], "-1:ScaleDown");
        check(Rules { needed: 1, ..fewer(1, 1) }, &[busy(0, 8), busy(1, 8)], "+2");
    }

    #[test]
    fn above_the_maximum_the_emptiest_goes_first_then_the_youngest() {
        check(RULES, &[busy(0, 3), busy(1, 2), busy(2, 2), busy(3, 9), busy(4, 9)], "-2:ScaleDown");
        check(
            RULES,
            &[busy(0, 3), busy(1, 2), busy(2, 2), busy(3, 9), slot(4, SlotPhase::Pending)],
            "-4:ScaleDown",
        );
    }

    #[test]
    fn only_as_many_as_the_bound_are_replaced_for_their_health_at_once() {
        let sick =
            |ordinal| SlotView { not_ready_for: Some(SignedDuration::from_mins(6)), ..busy(ordinal, 1) };
        let mut slots: Vec<_> = (0..10).map(sick).collect();
        let rules = Rules { min: 10, max: 10, disrupted: 2, ..RULES };
        check(rules, &slots, "+10 +11 -0:NotReady -1:NotReady");
        slots[0].leaving = Some(UnwantedReason::Release(ReleaseReason::NotReady));
        slots.push(slot(10, SlotPhase::Bidding));
        check(rules, &slots, "+11 -1:NotReady");
        check(Rules { min: 1, max: 2, ..RULES }, &[sick(0)], "+1 -0:NotReady");
    }

    #[test]
    fn the_bound_holds_for_all_causes_of_the_operator_together() {
        let rules = |disrupted| Rules { min: 0, max: 4, disrupted, ..RULES };
        let sick =
            |ordinal| SlotView { not_ready_for: Some(SignedDuration::from_mins(6)), ..busy(ordinal, 1) };
        let slots = [sick(0), empty(1, 11), empty(2, 12)];
        check(rules(0), &slots, "");
        check(rules(1), &slots, "-0:NotReady");
        check(rules(2), &slots, "-0:NotReady -2:Empty");
        let mut leaving = slots.clone();
        leaving[1].leaving = Some(UnwantedReason::Release(ReleaseReason::Empty));
        check(rules(1), &leaving, "");
        leaving[1].phase = SlotPhase::Released;
        check(rules(1), &leaving, "-0:NotReady");
        // What people lower is not bounded, and a slot without a node disrupts nothing.
        check(Rules { fewer: 2, ..rules(0) }, &slots[1..], "-2:ScaleDown -1:ScaleDown");
        check(Rules { max: 1, ..rules(0) }, &[busy(0, 1), busy(1, 1)], "-1:ScaleDown");
        check(rules(0), &[slot(0, SlotPhase::Bidding)], "-0:ScaleDown");
    }

    #[test]
    fn a_protected_node_is_given_up_for_its_health_alone() {
        let protected = |slot: SlotView| SlotView { is_protected: true, ..slot };
        let rules = Rules { min: 0, ..RULES };
        check(rules, &[protected(empty(0, 99))], "");
        check(rules, &[protected(empty(0, 99)), empty(1, 11)], "-1:Empty");
        check(Rules { fewer: 1, ..rules }, &[protected(empty(0, 99)), busy(1, 3)], "-1:ScaleDown");
        check(Rules { max: 1, ..rules }, &[protected(busy(0, 1)), protected(busy(1, 1))], "");
        let sick = SlotView { not_ready_for: Some(SignedDuration::from_mins(6)), ..busy(0, 1) };
        check(rules, &[protected(sick)], "+1 -0:NotReady");
        let rules = Rules { min: 1, ..RULES };
        let new = SlotView { replaces: Some("gpu-0".into()), fits_elsewhere: true, ..busy(1, 1) };
        let old = SlotView { fits_elsewhere: true, ..busy(0, 2) };
        check(rules, &[old.clone(), protected(new.clone())], "-0:Rescinded");
        check(rules, &[protected(old), protected(new)], "");
    }

    #[test]
    fn slots_beyond_the_minimum_are_for_pods() {
        let rules = Rules { min: 1, needed: 2, ..RULES };
        let create = plan(&rules, &[]).create;
        assert_eq!(create.iter().map(|new| new.for_pods).collect::<Vec<_>>(), [false, true]);
    }
}
