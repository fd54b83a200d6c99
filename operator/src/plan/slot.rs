//! Plans the next step of a slot: the life of one node, from its bid to its end.
//!
//! A step is done, its outcome is written into the status, and the next one is asked for. Every step may be
//! repeated: who crashes between the doing and the writing does it again and nothing more happens.

pub mod conditions;

use crate::api::{BidSlotStatus, ReleaseReason, SlotPhase};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Why a slot is not wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwanted {
    Release(ReleaseReason),
    /// Its BidNode, or itself, is being deleted.
    Deleted,
}

impl Unwanted {
    fn word(self) -> &'static str {
        match self {
            Unwanted::Release(ReleaseReason::ScaleDown) => "ScaleDown",
            Unwanted::Release(ReleaseReason::Empty) => "Empty",
            Unwanted::Release(ReleaseReason::NotReady) => "NotReady",
            Unwanted::Release(ReleaseReason::Rescinded) => "Rescinded",
            Unwanted::Release(ReleaseReason::MaxBid) => "MaxBid",
            Unwanted::Deleted => "Deleted",
        }
    }
}

/// What the engine says of the slot's bid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auction {
    /// It has not been heard yet.
    Unknown,
    /// It does not know the bid.
    NoBid,
    Bid(BidView),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BidView {
    /// It searches, or has what it wants.
    pub open: bool,
    pub allocation: Option<AllocationView>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationView {
    pub allocation: u64,
    /// It was reported ready.
    pub ready: bool,
    /// The time at which a notice ends.
    pub deadline: Option<Timestamp>,
    /// Why it ended, if it has.
    pub ended: Option<String>,
}

/// The Node object of the slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    pub ready: bool,
    /// It has its labels and taints, and not the one it came with.
    pub registered: bool,
    /// It has the taint of nodes that are given up.
    pub leaving: bool,
    /// Since when it is being deleted: others hold it with a finalizer.
    pub ending_since: Option<Timestamp>,
}

/// How long a slot waits for what may never come. What costs nothing is waited for without end: a price, a unit, an
/// engine that is away (docs/decisions/0034).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For a machine to come, and then for its node to be ready.
    pub machine: SignedDuration,
    /// For the pods of a node that is given up without a notice.
    pub drain: SignedDuration,
    /// For those who hold a deleted Node object.
    pub held: SignedDuration,
    /// For a node that vanished, unless the provider says that the unit is lost.
    pub vanished: SignedDuration,
    /// For an engine that does not know the bid: the right store may come back.
    pub unknown: SignedDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            machine: SignedDuration::from_mins(15),
            drain: SignedDuration::from_mins(15),
            held: SignedDuration::from_mins(2),
            vanished: SignedDuration::from_mins(2),
            unknown: SignedDuration::from_mins(1),
        }
    }
}

/// All that the next step depends on.
#[derive(Clone, Debug)]
pub struct Observation<'a> {
    pub now: Timestamp,
    pub status: &'a BidSlotStatus,
    pub unwanted: Option<Unwanted>,
    pub auction: Auction,
    pub node: Option<NodeView>,
    /// The ceiling to bid; 0 where `maxBid` is below one tick; `None` while no price is known.
    pub ceiling_micros: Option<u64>,
    /// The ceiling to amend the bid to.
    pub amend_micros: Option<u64>,
    /// Pods are left on the node.
    pub pods_left: bool,
    /// All nodes under notice have their taint, and a new bid stands in its place.
    pub may_drain: bool,
    /// The machine behind the node is known to be gone.
    pub machine_gone: bool,
    pub limits: Limits,
}

impl Observation<'_> {
    /// For how long the slot has been where it is.
    fn waited(&self) -> SignedDuration {
        self.status.since.as_ref().map(|since| self.now.duration_since(since.0)).unwrap_or_default()
    }

    /// The Node object, for as long as those who hold it are waited for.
    fn object(&self) -> Option<&NodeView> {
        self.node.as_ref().filter(|node| {
            node.ending_since.is_none_or(|since| self.now.duration_since(since) < self.limits.held)
        })
    }

    /// Until when pods may leave of their own.
    fn drained_by(&self, deadline: Option<Timestamp>) -> Option<Timestamp> {
        let began = self.status.drain_time.as_ref();
        deadline.map(|deadline| deadline - LAST).or_else(|| Some(began?.0 + self.limits.drain))
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write down that this is about to be bid.
    Begin { ceiling_micros: u64 },
    /// Place the bid that was begun.
    Place,
    /// Change the ceiling.
    Amend { ceiling_micros: u64 },
    /// Order the machine, and ask how far it is.
    Provision,
    /// Give the node its labels and taints, in one patch.
    Register,
    /// Tell the engine that the node runs.
    ReportReady,
    /// Ask the strategy what to do about the notice: raise, or let go.
    AnswerNotice { deadline: Timestamp },
    /// Give the node the taint of nodes that are given up.
    Taint,
    /// Take that taint away.
    Untaint,
    /// Make the next pods go.
    Drain,
    /// Delete the Node object.
    DeleteNode,
    /// End the machine.
    Deprovision,
    /// End the bid, and what it holds.
    Cancel,
    /// Write down that the engine does not know the bid.
    MissBid,
    /// Write down that the engine knows the bid again.
    FindBid,
    /// Write down where it is.
    Move { phase: SlotPhase, reason: &'static str },
    /// Write down where it is, with the engine's word for why.
    End { reason: String },
    /// Nothing holds it any more: let the object go.
    Forget,
    /// Until something happens, at the latest after this time.
    Wait(SignedDuration),
}

/// Returns whether a slot has failed that was given back in good order, by why it was.
pub fn is_failure(reason: Option<&str>) -> bool {
    matches!(
        reason,
        Some(
            "MachineFailed"
                | "MachineGone"
                | "MachineLate"
                | "NodeLate"
                | "NodeVanished"
                | "RegistrationRefused"
        )
    )
}

/// Kept back of a deadline, for the node to be given back in.
const LAST: SignedDuration = SignedDuration::from_secs(2);
const SOON: SignedDuration = SignedDuration::from_secs(2);
const BEAT: SignedDuration = SignedDuration::from_secs(60);
/// The interval at which a node that says nothing is looked at: its machine may be gone, which no event tells.
const SILENT_BEAT: SignedDuration = SignedDuration::from_secs(10);

/// The next step.
pub fn next(observation: &Observation<'_>) -> Step {
    let status = observation.status;
    match status.phase {
        SlotPhase::Released | SlotPhase::Failed => return Step::Forget,
        SlotPhase::Pending
        | SlotPhase::Bidding
        | SlotPhase::Awarded
        | SlotPhase::Provisioning
        | SlotPhase::Registered
        | SlotPhase::Ready
        | SlotPhase::Notice
        | SlotPhase::Draining
        | SlotPhase::Releasing => {}
    }
    if status.bid.is_none() {
        // With a ceiling it was begun, and may stand.
        return if status.ceiling_micros.is_some() { Step::Place } else { begin(observation) };
    }
    match &observation.auction {
        Auction::Unknown => Step::Wait(SOON),
        Auction::NoBid => unheard_of(observation),
        Auction::Bid(_) if status.lost_time.is_some() => Step::FindBid,
        Auction::Bid(bid) => match &bid.allocation {
            None => waiting(observation, bid),
            Some(allocation) => match &allocation.ended {
                Some(reason) => ended(observation, reason, bid.open),
                None => holding(observation, allocation),
            },
        },
    }
}

fn begin(observation: &Observation<'_>) -> Step {
    match (observation.unwanted, observation.ceiling_micros) {
        (Some(_), _) => Step::Move { phase: SlotPhase::Released, reason: "NeverBid" },
        (None, None) => moved(observation, SlotPhase::Pending, "NoPrice", SOON),
        (None, Some(0)) => moved(observation, SlotPhase::Pending, "MaxBidBelowTick", BEAT),
        (None, Some(ceiling_micros)) => Step::Begin { ceiling_micros },
    }
}

/// The bid has nothing.
fn waiting(observation: &Observation<'_>, bid: &BidView) -> Step {
    match (observation.unwanted, bid.open) {
        (Some(_), true) => Step::Cancel,
        (Some(why), false) => Step::Move { phase: SlotPhase::Released, reason: why.word() },
        (None, false) => Step::Move { phase: SlotPhase::Failed, reason: "BidClosed" },
        (None, true) => match observation.amend_micros {
            Some(ceiling_micros) => Step::Amend { ceiling_micros },
            None => moved(observation, SlotPhase::Bidding, "BidWaits", BEAT / 2),
        },
    }
}

/// The engine does not know the bid: it is another one, or came back from an older backup. The right one may come back,
/// so the slot waits for a while. Then the node is given up. No tenant has taken it: its pods have the time that they
/// have when a node is given up.
fn unheard_of(observation: &Observation<'_>) -> Step {
    if observation.unwanted.is_none() && observation.status.phase < SlotPhase::Notice {
        let Some(since) = &observation.status.lost_time else { return Step::MissBid };
        let left = observation.limits.unknown - observation.now.duration_since(since.0);
        if left.is_positive() {
            return Step::Wait(left.min(BEAT));
        }
    }
    let runs = observation.node.as_ref().is_some_and(|node| node.ending_since.is_none());
    if runs && observation.status.phase < SlotPhase::Releasing {
        leave(observation, None, "BidUnknown")
    } else {
        ended(observation, "BidUnknown", false)
    }
}

/// The node is no longer ours: its pods move as soon as the Node object is gone.
fn ended(observation: &Observation<'_>, reason: &str, bid_open: bool) -> Step {
    if let Some(node) = observation.object() {
        return if node.ending_since.is_some() { Step::Wait(SOON) } else { Step::DeleteNode };
    }
    if !observation.status.machine_ended {
        return Step::Deprovision;
    }
    if bid_open {
        return Step::Cancel;
    }
    Step::End { reason: reason.to_owned() }
}

fn holding(observation: &Observation<'_>, allocation: &AllocationView) -> Step {
    let status = observation.status;
    if status.allocation != Some(allocation.allocation) {
        return Step::Move { phase: SlotPhase::Awarded, reason: "Allocated" };
    }
    if status.phase == SlotPhase::Releasing {
        return releasing(observation);
    }
    if let Some(why) = observation.unwanted {
        return leave(observation, allocation.deadline, why.word());
    }
    match (allocation.deadline, &status.deadline) {
        (Some(deadline), None) => Step::AnswerNotice { deadline },
        (Some(deadline), Some(_)) => leave(observation, Some(deadline), "Preempted"),
        (None, Some(_)) => rescinded(observation),
        (None, None) => run(observation, allocation),
    }
}

/// The node stays after all.
fn rescinded(observation: &Observation<'_>) -> Step {
    match &observation.node {
        Some(node) if node.leaving => Step::Untaint,
        Some(node) if node.ready => Step::Move { phase: SlotPhase::Ready, reason: "NoticeRescinded" },
        Some(_) => Step::Move { phase: SlotPhase::Registered, reason: "NoticeRescinded" },
        None => Step::Move { phase: SlotPhase::Provisioning, reason: "NoticeRescinded" },
    }
}

/// Towards a ready node, and then keeping it.
fn run(observation: &Observation<'_>, allocation: &AllocationView) -> Step {
    let status = observation.status;
    let limit = observation.limits.machine;
    if status.phase == SlotPhase::Provisioning && observation.node.is_none() && observation.waited() >= limit
    {
        return Step::Move { phase: SlotPhase::Releasing, reason: "MachineLate" };
    }
    let Some(node) = &observation.node else {
        return if status.ready_time.is_some() {
            Step::Move { phase: SlotPhase::Releasing, reason: "NodeVanished" }
        } else if status.phase < SlotPhase::Provisioning {
            Step::Move { phase: SlotPhase::Provisioning, reason: "MachineOrdered" }
        } else {
            Step::Provision
        };
    };
    if status.node.is_none() {
        return Step::Provision;
    }
    if node.ending_since.is_some() || observation.machine_gone {
        return Step::Move { phase: SlotPhase::Releasing, reason: "NodeVanished" };
    }
    if !node.registered {
        return Step::Register;
    }
    if !node.ready && status.ready_time.is_none() {
        let left = limit - observation.waited();
        if status.phase == SlotPhase::Registered && !left.is_positive() {
            return Step::Move { phase: SlotPhase::Releasing, reason: "NodeLate" };
        }
        return moved(observation, SlotPhase::Registered, "NodeNotReady", left.clamp(SOON, BEAT));
    }
    if node.ready && !allocation.ready {
        return Step::ReportReady;
    }
    if status.phase != SlotPhase::Ready {
        return Step::Move { phase: SlotPhase::Ready, reason: "NodeReady" };
    }
    match observation.amend_micros {
        Some(ceiling_micros) => Step::Amend { ceiling_micros },
        None => {
            let beat = if node.ready { BEAT } else { SILENT_BEAT };
            let protected =
                status.protected_until.as_ref().map(|until| until.0.duration_since(observation.now));
            Step::Wait(protected.filter(|left| left.is_positive()).unwrap_or(beat).min(beat))
        }
    }
}

/// Taint, drain, and go.
fn leave(observation: &Observation<'_>, deadline: Option<Timestamp>, reason: &'static str) -> Step {
    let Some(node) = &observation.node else {
        return Step::Move { phase: SlotPhase::Releasing, reason };
    };
    if !node.leaving {
        return Step::Taint;
    }
    if deadline.is_some() && !observation.may_drain {
        return moved(observation, SlotPhase::Notice, reason, SignedDuration::from_millis(500));
    }
    if observation.status.phase != SlotPhase::Draining {
        return Step::Move { phase: SlotPhase::Draining, reason };
    }
    let time_left = observation.drained_by(deadline).is_none_or(|until| observation.now < until);
    if observation.pods_left && time_left {
        return Step::Drain;
    }
    Step::Move { phase: SlotPhase::Releasing, reason }
}

/// The node is empty, or gone: the object, the machine, the allocation, in this order.
fn releasing(observation: &Observation<'_>) -> Step {
    if let Some(node) = observation.object() {
        return if node.ending_since.is_some() { Step::Wait(SOON) } else { Step::DeleteNode };
    }
    let missing = observation.status.missing_time.as_ref();
    let kept = missing.map(|since| observation.limits.vanished - observation.now.duration_since(since.0));
    match kept {
        Some(left) if left.is_positive() && observation.unwanted.is_none() => Step::Wait(left),
        Some(_) | None if observation.status.machine_ended => Step::Cancel,
        Some(_) | None => Step::Deprovision,
    }
}

/// Written once; then until something happens.
fn moved(
    observation: &Observation<'_>,
    phase: SlotPhase,
    reason: &'static str,
    wait: SignedDuration,
) -> Step {
    let there = observation.status.phase == phase && observation.status.reason.as_deref() == Some(reason);
    if there { Step::Wait(wait) } else { Step::Move { phase, reason } }
}

#[cfg(test)]
mod tests;
