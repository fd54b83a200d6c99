//! Plans the next step of a slot: the life of one node, from its bid to its end.
//!
//! A step is carried out, its outcome is recorded in the status, and the next step is planned. Every step is idempotent:
//! after a crash between a step and its record the step is repeated, and the repeat has no further effect.

pub mod conditions;

use super::ceiling::{self, Markets, StandingBid};
use super::drain::{self, PodView, Removal, Tier};
use super::gang::{self, GangStep, GangView};
use super::scope::{Scope, bid_markets, names_all};
use crate::api::{BidNode, BidSlotSpec, BidSlotStatus, ReleaseReason, SlotKey, SlotPhase};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// The reason why a slot is not wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnwantedReason {
    /// It is to be given up, as its `spec` says.
    Release(ReleaseReason),
    /// The slot or its BidNode is being deleted.
    Deleted,
}

impl UnwantedReason {
    pub(super) fn reason(self) -> &'static str {
        match self {
            UnwantedReason::Release(ReleaseReason::ScaleDown) => "ScaleDown",
            UnwantedReason::Release(ReleaseReason::Empty) => "Empty",
            UnwantedReason::Release(ReleaseReason::NotReady) => "NotReady",
            UnwantedReason::Release(ReleaseReason::Rescinded) => "Rescinded",
            UnwantedReason::Release(ReleaseReason::MaxBid) => "MaxBid",
            UnwantedReason::Release(ReleaseReason::Regroup) => "Regroup",
            UnwantedReason::Deleted => "Deleted",
        }
    }
}

/// The slot's bid, as the engine knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BidState {
    /// The bids have not been listed yet.
    NotListed,
    /// The engine does not know the bid.
    Unknown,
    /// The engine knows the bid.
    Known(BidView),
}

/// A live bid of a slot whose status names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BidWithoutStatus {
    /// The bids have not been listed yet.
    NotListed,
    /// There is none.
    #[default]
    None,
    /// There is one.
    Bid {
        /// Its number.
        bid: u64,
        /// Its ceiling in micro-dollars per node-hour.
        ceiling_micros: u64,
    },
}

/// A bid, as the plan of its slot needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BidView {
    /// True until the bid closes.
    pub open: bool,
    /// The ceiling in micro-dollars per node-hour.
    pub ceiling_micros: u64,
    /// The allocation of the slot; a gang slot has none.
    pub allocation: Option<AllocationView>,
}

/// An allocation, as the plan of its slot needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationView {
    /// Its number.
    pub allocation: u64,
    /// True if it was reported ready.
    pub ready: bool,
    /// Its notice, if it is under notice.
    pub notice: Option<Notice>,
    /// The engine's word for why it ended, if it has.
    pub ended: Option<String>,
}

/// A pre-emption notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its begin.
    pub started: Timestamp,
    /// The time at which the allocation ends.
    pub deadline: Timestamp,
}

impl Notice {
    /// Returns whether the drain still waits for the other slots: for a quarter of the notice, at most 30 seconds.
    pub fn waits_for_peers(&self, now: Timestamp) -> bool {
        now.duration_since(self.started) <= (self.deadline.duration_since(self.started) / 4).min(PEERS_WAIT)
    }

    /// Returns whether an engine that does not answer is still asked for the price to stay.
    pub fn waits_for_engine(&self, now: Timestamp) -> bool {
        now.duration_since(self.started) <= ENGINE_WAIT
    }
}

/// The other slots, as far as the drain of a node under notice waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// A node under notice has no taint yet.
    Untainted,
    /// All nodes under notice have their taint.
    Tainted {
        /// The number of bids of the BidNode that are not under notice.
        bids: usize,
        /// The number of bids that the BidNode is to have.
        wanted: usize,
    },
}

/// The engine's answer to the question which ceiling keeps a node under notice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PriceToStay {
    /// The engine was not asked: there is no notice, or it has been answered.
    #[default]
    NotAsked,
    /// The engine does not answer, and is not waited for any longer.
    NoAnswer,
    /// The notice has been rescinded.
    Rescinded,
    /// The ceiling in micro-dollars, if one keeps the node, and the markets, if one is open.
    Known {
        /// The lowest ceiling that keeps the node.
        price_micros: Option<u64>,
        /// The markets of the BidNode.
        markets: Option<Arc<Markets>>,
    },
}

/// The prices by which a slot bids and amends.
#[derive(Clone, Debug, PartialEq)]
pub struct Pricing {
    /// The markets of the BidNode.
    pub markets: Arc<Markets>,
    /// The slot's own bid, if it stands.
    pub bid: Option<StandingBid>,
    /// The bids of the BidNode's other slots that may be amended, by the name of the slot. They are read only if the
    /// slot's own bid is to be amended.
    pub others: Vec<(String, StandingBid)>,
}

/// The Node object of a slot, as the plan needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// True if its condition `Ready` is true.
    pub ready: bool,
    /// True if it has the labels and taints of its BidNode, and not the taint that it registered with.
    pub registered: bool,
    /// True if it has the taint of nodes that are given up.
    pub leaving: bool,
    /// Its deletion timestamp. A Node that has one still exists because another finalizer holds it.
    pub ending_since: Option<Timestamp>,
}

/// The time-outs of a slot. A slot waits without a limit for what costs nothing: a price, a unit, an engine that does
/// not answer (docs/decisions/0034).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time for a machine to come, and then the time for its node to be ready.
    pub machine: SignedDuration,
    /// The time for the pods of a node that is given up without a notice.
    pub drain: SignedDuration,
    /// The time for other finalizers of a deleted Node object.
    pub held: SignedDuration,
    /// The time for a node that vanished to come back, unless the provider says that the unit is lost.
    pub vanished: SignedDuration,
    /// The time for an engine that does not know the bid: its right store may come back.
    pub unknown: SignedDuration,
    /// The time for a bid that pods need, before the next BidNode that they fit bids too.
    pub next_pool: SignedDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            machine: SignedDuration::from_mins(15),
            drain: SignedDuration::from_mins(15),
            held: SignedDuration::from_mins(2),
            vanished: SignedDuration::from_mins(2),
            unknown: SignedDuration::from_mins(10),
            next_pool: SignedDuration::from_mins(2),
        }
    }
}

/// Everything that the next step of a slot depends on.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The time of the observation.
    pub now: Timestamp,
    /// The specification of the slot.
    pub spec: BidSlotSpec,
    /// The status of the slot.
    pub status: BidSlotStatus,
    /// The BidNode of the slot, unless it is gone.
    pub bidnode: Option<Arc<BidNode>>,
    /// The reason why the slot is not wanted, if it is not.
    pub unwanted: Option<UnwantedReason>,
    /// The slot's bid at the engine.
    pub bid: BidState,
    /// A live bid of the slot that its status does not name: people, or a restore, have removed the status.
    pub bid_without_status: BidWithoutStatus,
    /// The Node object of the slot.
    pub node: Option<NodeView>,
    /// The prices, if they matter in this phase and are known.
    pub pricing: Option<Pricing>,
    /// The engine's answer about a notice.
    pub price_to_stay: PriceToStay,
    /// The other slots, while the drain of a node under notice waits for them.
    pub peers: Option<PeerState>,
    /// The pods on the node while it is drained.
    pub pods: Vec<PodView>,
    /// The number of other nodes that end by a deadline and are not given back yet.
    pub other_drains: usize,
    /// True if the provisioner says that the machine of the node is gone.
    pub machine_gone: bool,
    /// True if the slot may be given up in case the engine does not know its bid; see [`is_turn_of_unknown`].
    pub is_turn_of_unknown: bool,
    /// The gang, if the slot is a gang slot.
    pub gang: Option<GangView>,
    /// True if the slot is a member whose gang is about to be regrouped: its allocation ends together with the others.
    pub regroups: bool,
    /// The time-outs.
    pub limits: Limits,
}

impl Observation {
    /// Returns the time for which the slot has been in its phase.
    fn waited(&self) -> SignedDuration {
        self.status.since.as_ref().map(|since| self.now.duration_since(since.0)).unwrap_or_default()
    }

    /// Returns the Node object, until other finalizers have held it for too long.
    fn object(&self) -> Option<&NodeView> {
        self.node.as_ref().filter(|node| {
            node.ending_since.is_none_or(|since| self.now.duration_since(since) < self.limits.held)
        })
    }

    /// Returns the time until which pods may leave by themselves.
    fn drained_by(&self, deadline: Option<Timestamp>) -> Option<Timestamp> {
        let began = self.status.drain_time.as_ref();
        deadline
            .map(|deadline| deadline - self.release_before())
            .or_else(|| Some(began?.0 + self.limits.drain))
    }

    /// Returns the time before the deadline at which the node is given back: longer the more nodes go at the same time, but at most half
    /// of the notice.
    fn release_before(&self) -> SignedDuration {
        let drains = i32::try_from(self.other_drains).unwrap_or(i32::MAX);
        let all = RELEASE_BEFORE + RELEASE_EACH.saturating_mul(drains);
        let notice = self.held().and_then(|held| held.notice);
        let half = notice.map(|notice| notice.deadline.duration_since(notice.started) / 2);
        half.map_or(all, |half| all.min(half)).max(RELEASE_BEFORE)
    }

    /// Returns the ceiling to bid, if a price is known: 0 if `maxBid` is below one tick.
    fn ceiling_micros(&self) -> Option<u64> {
        let (bidnode, pricing) = (self.bidnode.as_ref()?, self.pricing.as_ref()?);
        Some(ceiling::ceiling(&bidnode.spec, &pricing.markets).ceiling_micros)
    }

    /// Returns the markets that the slot's bid is to name; none while no market is known.
    pub(super) fn wanted_markets(&self) -> Vec<String> {
        let open = self.pricing.as_ref().map(|pricing| &pricing.markets.open[..]);
        open.map(|open| Scope::of_slot(&self.spec).named(open).names).unwrap_or_default()
    }

    /// Returns whether a market is open to the slot that its bid does not name.
    pub(super) fn lacks_markets(&self) -> bool {
        !names_all(&bid_markets(&self.spec, &self.status), &self.wanted_markets())
    }

    /// Returns the ceiling to amend the bid to, if it is to be amended.
    pub fn amend_micros(&self) -> Option<u64> {
        let (bidnode, pricing) = (self.bidnode.as_ref()?, self.pricing.as_ref()?);
        ceiling::amendment(&bidnode.spec, &pricing.markets, pricing.bid.as_ref()?, self.now)
    }

    /// Returns the other slots whose bids are to be amended before this one is amended to this ceiling.
    fn amended_before(&self, amend_micros: u64) -> Vec<String> {
        let (Some(bidnode), Some(pricing)) = (&self.bidnode, &self.pricing) else { return Vec::new() };
        let Some(bid) = &pricing.bid else { return Vec::new() };
        let (amend, others) = ((bid, amend_micros), &pricing.others);
        let before = ceiling::amended_before(&bidnode.spec, &pricing.markets, amend, others, self.now);
        before.into_iter().cloned().collect()
    }

    /// Returns the allocation that the slot holds, if the engine and the status agree on it.
    fn held(&self) -> Option<&AllocationView> {
        let BidState::Known(BidView { allocation: Some(allocation), .. }) = &self.bid else { return None };
        let agreed = self.status.allocation == Some(allocation.allocation);
        (agreed && allocation.ended.is_none() && self.status.lost_time.is_none()).then_some(allocation)
    }

    /// Returns the notice that the slot has not answered yet, if there is one: the engine is then to be asked for the
    /// price to stay.
    pub fn unanswered_notice(&self) -> Option<Notice> {
        let notice = self.held()?.notice?;
        let answered = self.status.phase >= SlotPhase::Releasing || self.status.deadline.is_some();
        (!answered && self.unwanted.is_none()).then_some(notice)
    }

    /// Returns whether the drain may begin: after every node under notice has its taint and the BidNode's new bids are
    /// placed, or when it has waited long enough for that.
    fn may_drain(&self) -> bool {
        match self.peers {
            None => true,
            Some(PeerState::Untainted) => false,
            Some(PeerState::Tainted { bids, wanted }) => bids >= wanted,
        }
    }

    /// Returns whether pods are left that the drain waits for. The pods of daemon sets go with the node. A node that is not
    /// ready never reports the end of a terminating pod.
    fn pods_left(&self) -> bool {
        let silent = self.node.as_ref().is_none_or(|node| !node.ready);
        let stays = |pod: &PodView| !pod.ending || (pod.tier < Tier::Daemon && !silent);
        self.pods.iter().any(stays)
    }
}

/// The next step of a slot, and the slots that must take theirs first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The next step.
    pub step: Step,
    /// The other slots of the BidNode whose bids are to be amended first: they are reconciled at once.
    pub reconcile: Vec<String>,
}

/// The way in which a bid that was begun is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The bid is placed.
    New,
    /// The engine is searched first: the bid was begun some time ago, and may have been placed before a crash.
    SearchFirst,
    /// The engine is only searched: the BidNode is gone.
    SearchOnly,
}

/// One step in the life of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Records the ceiling and the markets of a bid that is about to be placed.
    Begin {
        /// The ceiling in micro-dollars per node-hour.
        ceiling_micros: u64,
        /// The markets that the bid names, as in the status of the slot.
        markets: Vec<String>,
    },
    /// Records a live bid of the slot that its status does not name.
    Adopt {
        /// The number of the bid.
        bid: u64,
        /// Its ceiling in micro-dollars per node-hour.
        ceiling_micros: u64,
    },
    /// Places the bid that was begun.
    Place(Placement),
    /// Amends the ceiling of the bid.
    Amend {
        /// The new ceiling in micro-dollars per node-hour.
        ceiling_micros: u64,
    },
    /// Cancels the bid, which waits, so that one that names more markets is placed.
    Replace,
    /// Orders the machine, and asks for its state.
    Provision,
    /// Patches the node with its labels and taints.
    Register,
    /// Reports to the engine that the node is ready.
    ReportReady,
    /// Reports to the engine how the node is reached, which the provisioner did not say before.
    ReportAccess,
    /// Answers a notice.
    AnswerNotice {
        /// The time at which the allocation ends.
        deadline: Timestamp,
        /// The ceiling that keeps the node; `None` if it is let go.
        raise_to_micros: Option<u64>,
    },
    /// Taints the node as one that is given up.
    Taint,
    /// Removes that taint.
    Untaint,
    /// Removes the next pods of the node.
    Drain {
        /// The pods to remove.
        removals: Vec<Removal>,
        /// The time after which the drain is planned again.
        requeue_after: SignedDuration,
    },
    /// Deletes the Node object.
    DeleteNode,
    /// Ends the machine.
    Deprovision,
    /// Cancels the bid, and releases its allocation.
    Cancel,
    /// Records the bid of the gang that the slot is a member of.
    Join,
    /// Releases the allocation of a member.
    GiveBack,
    /// A step of a gang slot.
    Gang(GangStep),
    /// Records that the engine does not know the bid.
    MissBid,
    /// Records that the engine knows the bid again.
    FindBid,
    /// Moves the slot to a phase.
    Move {
        /// The phase.
        phase: SlotPhase,
        /// The reason, as one word.
        reason: &'static str,
    },
    /// Moves the slot to its last phase, with the engine's reason.
    End {
        /// The engine's word for why the allocation ended.
        reason: String,
    },
    /// Removes the finalizer, and deletes the object.
    Forget,
    /// Waits for an event, at most for this time.
    Wait(SignedDuration),
}

impl Step {
    /// Returns whether the status is written before the step, because a crash during the step must find it so.
    pub fn is_recorded_before(&self) -> bool {
        // The number of a regrouping is part of the key of its command.
        matches!(self, Step::Place(_) | Step::Gang(GangStep::Regroup))
    }
}

/// Returns whether a slot that gave its unit back has failed, by its reason.
fn is_failure(reason: Option<&str>) -> bool {
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

/// Returns the last phase of a slot whose allocation has ended, with its reason. The engine's reason counts, unless the
/// slot itself gave the unit back.
pub fn end(engine_reason: &str, status_reason: Option<&str>) -> (SlotPhase, String) {
    let given_back = is_given_back(engine_reason);
    let reason = status_reason.filter(|_| given_back).unwrap_or(engine_reason);
    let failed = !given_back || is_failure(Some(reason));
    (if failed { SlotPhase::Failed } else { SlotPhase::Released }, reason.to_owned())
}

/// Returns whether the tenant gave a unit back, by the engine's reason for the end of its allocation.
pub fn is_given_back(engine_reason: &str) -> bool {
    matches!(engine_reason, RELEASED | REGROUPED)
}

/// Returns whether the API server would refuse the same labels and taints again: they are invalid (400, 422), or a policy
/// has forbidden them (403) for as long as a machine may take to come.
pub fn is_refusal_final(code: u16, status: &BidSlotStatus, limits: &Limits, now: Timestamp) -> bool {
    let waited = status.since.as_ref().map(|since| now.duration_since(since.0)).unwrap_or_default();
    matches!(code, 400 | 422) || code == 403 && waited >= limits.machine
}

/// Returns the time between two questions about the machine of a slot: short while the machine may be a quick one, and
/// longer if it takes minutes or if it runs, since its Node has events.
pub fn machine_poll(status: &BidSlotStatus, now: Timestamp) -> SignedDuration {
    let waited = status.since.as_ref().map(|since| now.duration_since(since.0)).unwrap_or_default();
    let shortest = SignedDuration::from_millis(if status.node.is_some() { 2_000 } else { 250 });
    (waited / 4).clamp(shortest, SignedDuration::from_secs(5))
}

/// Returns the time between two questions about the way to reach a node that is ready.
pub fn access_poll(status: &BidSlotStatus, now: Timestamp) -> SignedDuration {
    let ready = status.ready_time.as_ref().map(|since| now.duration_since(since.0)).unwrap_or_default();
    (ready / 4).clamp(SignedDuration::from_secs(2), LONG_WAIT)
}

/// The engine's reason for the end of an allocation that its tenant released.
const RELEASED: &str = "RELEASED";
/// The engine's reason for the end of the allocations of a gang whose tenant regrouped it.
const REGROUPED: &str = "REGROUPED";

/// The longest time that the drain of a node under notice waits for the other slots.
const PEERS_WAIT: SignedDuration = SignedDuration::from_secs(30);
/// The time after the begin of a notice for which an engine that does not answer is asked for the price to stay.
const ENGINE_WAIT: SignedDuration = SignedDuration::from_secs(10);
/// The age of a begun bid from which the engine is searched for it before it is placed.
const SEARCH_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// The time before the deadline at which the node is given back, even if pods are left on it: what the API server, the provisioner and
/// the engine need for one node.
const RELEASE_BEFORE: SignedDuration = SignedDuration::from_secs(2);
/// The time that they need for each further node that goes at the same time.
const RELEASE_EACH: SignedDuration = SignedDuration::from_millis(100);
/// The wait for what comes soon and has no event.
pub(super) const SHORT_WAIT: SignedDuration = SignedDuration::from_secs(2);
/// The wait for what has an event: the slot is reconciled at least as often.
pub(super) const LONG_WAIT: SignedDuration = SignedDuration::from_secs(60);
/// The interval at which a node that is not ready is observed: no event says that its machine is gone.
const NOT_READY_WAIT: SignedDuration = SignedDuration::from_secs(10);
/// The time that a bid waits for another bid of its BidNode to be amended first.
const AMEND_WAIT: SignedDuration = SignedDuration::from_millis(200);

/// Returns the plan for a slot.
pub fn plan(observation: &Observation) -> Plan {
    let amend_micros = observation.amend_micros();
    let reconcile = amend_micros.map(|micros| observation.amended_before(micros)).unwrap_or_default();
    let mut step = next(observation, amend_micros.filter(|_| reconcile.is_empty()));
    if let Step::Wait(time) = &mut step
        && !reconcile.is_empty()
    {
        *time = (*time).min(AMEND_WAIT);
    }
    Plan { step, reconcile }
}

/// Returns the next step. `amend_micros` is the ceiling to amend the bid to, if it is the bid's turn.
fn next(observation: &Observation, amend_micros: Option<u64>) -> Step {
    let status = &observation.status;
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
    let is_member = observation.spec.member.is_some();
    if status.bid.is_none() && is_member {
        return Step::Join;
    }
    if status.bid.is_none() {
        // A bid with a ceiling was begun, and may have been placed.
        return if status.ceiling_micros.is_some() { place(observation) } else { begin(observation) };
    }
    if let Some(gang) = &observation.gang {
        return gang::next(observation, gang, amend_micros);
    }
    match &observation.bid {
        BidState::NotListed => Step::Wait(SHORT_WAIT),
        BidState::Unknown => unknown(observation),
        BidState::Known(_) if status.lost_time.is_some() => Step::FindBid,
        BidState::Known(bid) => match &bid.allocation {
            // The engine's store is from an older backup.
            None if is_member => ended(observation, "AllocationUnknown", false),
            None => waiting(observation, bid, amend_micros),
            Some(allocation) => match &allocation.ended {
                Some(reason) => ended(observation, reason, bid.open && !is_member),
                None => holding(observation, bid, allocation, amend_micros),
            },
        },
    }
}

/// Plans for a bid that was begun.
fn place(observation: &Observation) -> Step {
    let begun = observation.status.bid_time.as_ref().map(|time| observation.now.duration_since(time.0));
    Step::Place(match begun {
        _ if observation.bidnode.is_none() => Placement::SearchOnly,
        Some(age) if age > SEARCH_AFTER => Placement::SearchFirst,
        Some(_) | None => Placement::New,
    })
}

/// Plans for a slot that has not bid yet.
fn begin(observation: &Observation) -> Step {
    match observation.bid_without_status {
        BidWithoutStatus::NotListed => return Step::Wait(SHORT_WAIT),
        BidWithoutStatus::None => {}
        BidWithoutStatus::Bid { bid, ceiling_micros } => return Step::Adopt { bid, ceiling_micros },
    }
    match (observation.unwanted, observation.ceiling_micros()) {
        (Some(_), _) => Step::Move { phase: SlotPhase::Released, reason: "NeverBid" },
        (None, None) => moved(observation, SlotPhase::Pending, "NoPrice", SHORT_WAIT),
        (None, Some(0)) => moved(observation, SlotPhase::Pending, "MaxBidBelowTick", LONG_WAIT),
        (None, Some(ceiling_micros)) => Step::Begin { ceiling_micros, markets: observation.wanted_markets() },
    }
}

/// Plans for a bid without an allocation.
fn waiting(observation: &Observation, bid: &BidView, amend_micros: Option<u64>) -> Step {
    match (observation.unwanted, bid.open) {
        (Some(_), true) => Step::Cancel,
        (Some(why), false) => Step::Move { phase: SlotPhase::Released, reason: why.reason() },
        (None, false) if observation.lacks_markets() => Step::Replace,
        (None, false) => Step::Move { phase: SlotPhase::Failed, reason: "BidClosed" },
        (None, true) => match amend_micros {
            Some(ceiling_micros) => Step::Amend { ceiling_micros },
            None if observation.lacks_markets() => Step::Replace,
            None => moved(observation, SlotPhase::Bidding, "BidWaits", LONG_WAIT / 2),
        },
    }
}

/// A slot whose bid the engine does not know and whose node still runs, or another slot with an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownSlot {
    /// The engine knows its bid.
    Known,
    /// The engine does not know its bid, and it has not been given up yet.
    Waits(SlotKey),
    /// It is being given up because the engine does not know its bid.
    Leaves,
}

/// Returns the most slots with an allocation, of this number, that are given up at once because the engine does not know their bids: a
/// fifth, but at least one. An engine with an empty or older store knows none.
pub fn most_unknown(slots: usize) -> usize {
    (slots / 5).max(1)
}

/// Returns whether it is the turn of a slot to be given up because the engine does not know its bid: at most `most` of these slots go at
/// once, first those that are first by name.
pub fn is_turn_of_unknown(slot: &SlotKey, slots: &[UnknownSlot], most: usize) -> bool {
    let leaving = slots.iter().filter(|it| **it == UnknownSlot::Leaves).count();
    let before = slots.iter().filter(|it| matches!(it, UnknownSlot::Waits(other) if other < slot)).count();
    leaving + before < most
}

/// Plans for a bid that the engine does not know: it is another engine, or its store is from an older backup. The right
/// store may come back, so the slot waits for a while. Then the node is given up. No tenant has taken it: its pods have
/// the time that they have when a node is given up without a notice.
fn unknown(observation: &Observation) -> Step {
    if observation.unwanted.is_none() && observation.status.phase < SlotPhase::Notice {
        let Some(since) = &observation.status.lost_time else { return Step::MissBid };
        let left = observation.limits.unknown - observation.now.duration_since(since.0);
        if left.is_positive() {
            return Step::Wait(left.min(LONG_WAIT));
        }
        if !observation.is_turn_of_unknown {
            return Step::Wait(LONG_WAIT / 2);
        }
    }
    let runs = observation.node.as_ref().is_some_and(|node| node.ending_since.is_none());
    if runs && observation.status.phase < SlotPhase::Releasing {
        leave(observation, None, "BidUnknown")
    } else {
        ended(observation, "BidUnknown", false)
    }
}

/// Plans for an allocation that has ended. The Node object goes first: its pods are replaced as soon as it is gone.
fn ended(observation: &Observation, reason: &str, bid_open: bool) -> Step {
    if let Some(node) = observation.object() {
        return if node.ending_since.is_some() { Step::Wait(SHORT_WAIT) } else { Step::DeleteNode };
    }
    if !observation.status.machine_ended {
        return Step::Deprovision;
    }
    if bid_open {
        return Step::Cancel;
    }
    Step::End { reason: reason.to_owned() }
}

/// Plans for an allocation that the slot holds.
fn holding(
    observation: &Observation,
    bid: &BidView,
    allocation: &AllocationView,
    amend_micros: Option<u64>,
) -> Step {
    let status = &observation.status;
    let deadline = allocation.notice.map(|notice| notice.deadline);
    if status.allocation != Some(allocation.allocation) {
        return Step::Move { phase: SlotPhase::Awarded, reason: "Allocated" };
    }
    if status.phase == SlotPhase::Releasing {
        return releasing(observation);
    }
    if let Some(why) = observation.unwanted {
        return leave(observation, deadline, why.reason());
    }
    match (deadline, &status.deadline) {
        (Some(deadline), None) => answer_notice(observation, bid, deadline),
        (Some(deadline), Some(_)) => leave(observation, Some(deadline), "Preempted"),
        (None, Some(_)) => rescinded(observation),
        (None, None) => run(observation, allocation, amend_micros),
    }
}

/// Plans the answer to a notice: the strategy raises the bid, or lets the node go.
fn answer_notice(observation: &Observation, bid: &BidView, deadline: Timestamp) -> Step {
    let raise_to_micros = match &observation.price_to_stay {
        // The event that says so is on its way.
        PriceToStay::Rescinded => return Step::Wait(SignedDuration::from_millis(250)),
        PriceToStay::NotAsked | PriceToStay::NoAnswer => None,
        PriceToStay::Known { price_micros, markets } => observation.bidnode.as_ref().and_then(|bidnode| {
            ceiling::raise_to_stay(&bidnode.spec, markets.as_deref(), *price_micros, bid.ceiling_micros)
        }),
    };
    Step::AnswerNotice { deadline, raise_to_micros }
}

/// Plans for a node whose notice was rescinded.
fn rescinded(observation: &Observation) -> Step {
    match &observation.node {
        Some(node) if node.leaving => Step::Untaint,
        Some(node) if node.ready => Step::Move { phase: SlotPhase::Ready, reason: "NoticeRescinded" },
        Some(_) => Step::Move { phase: SlotPhase::Registered, reason: "NoticeRescinded" },
        None => Step::Move { phase: SlotPhase::Provisioning, reason: "NoticeRescinded" },
    }
}

/// Plans for a node that is not ready yet, and then keeps it.
fn run(observation: &Observation, allocation: &AllocationView, amend_micros: Option<u64>) -> Step {
    let status = &observation.status;
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
        return moved(observation, SlotPhase::Registered, "NodeNotReady", left.clamp(SHORT_WAIT, LONG_WAIT));
    }
    if node.ready && !allocation.ready {
        return Step::ReportReady;
    }
    if status.phase != SlotPhase::Ready {
        return Step::Move { phase: SlotPhase::Ready, reason: "NodeReady" };
    }
    match amend_micros {
        Some(ceiling_micros) => Step::Amend { ceiling_micros },
        None if status.access_due => Step::ReportAccess,
        None => {
            let longest = if node.ready { LONG_WAIT } else { NOT_READY_WAIT };
            let protected =
                status.protected_until.as_ref().map(|until| until.0.duration_since(observation.now));
            Step::Wait(protected.filter(|left| left.is_positive()).unwrap_or(longest).min(longest))
        }
    }
}

/// Plans the steps of a node that is given up: taint, drain, release.
fn leave(observation: &Observation, deadline: Option<Timestamp>, reason: &'static str) -> Step {
    let Some(node) = &observation.node else {
        return Step::Move { phase: SlotPhase::Releasing, reason };
    };
    if !node.leaving {
        return Step::Taint;
    }
    if deadline.is_some() && !observation.may_drain() {
        return moved(observation, SlotPhase::Notice, reason, SignedDuration::from_millis(500));
    }
    if observation.status.phase != SlotPhase::Draining {
        return Step::Move { phase: SlotPhase::Draining, reason };
    }
    let time_left = observation.drained_by(deadline).is_none_or(|until| observation.now < until);
    if observation.pods_left() && time_left {
        return drain(observation, deadline);
    }
    Step::Move { phase: SlotPhase::Releasing, reason }
}

/// Plans which pods leave next.
fn drain(observation: &Observation, deadline: Option<Timestamp>) -> Step {
    let (end, now) = (observation.drained_by(deadline), observation.now);
    Step::Drain {
        removals: drain::plan(&observation.pods, end, now),
        requeue_after: drain::requeue_after(&observation.pods, end, now),
    }
}

/// Plans for a node that is empty or gone: the Node object, the machine and the allocation end in this order.
fn releasing(observation: &Observation) -> Step {
    if let Some(node) = observation.object() {
        return if node.ending_since.is_some() { Step::Wait(SHORT_WAIT) } else { Step::DeleteNode };
    }
    let missing = observation.status.missing_time.as_ref();
    let kept = missing.map(|since| observation.limits.vanished - observation.now.duration_since(since.0));
    match kept {
        Some(left) if left.is_positive() && observation.unwanted.is_none() => Step::Wait(left),
        Some(_) | None if !observation.status.machine_ended => Step::Deprovision,
        Some(_) | None if observation.regroups => Step::Wait(SHORT_WAIT),
        Some(_) | None if observation.spec.member.is_some() => Step::GiveBack,
        Some(_) | None => Step::Cancel,
    }
}

/// Moves the slot once, and then waits.
fn moved(observation: &Observation, phase: SlotPhase, reason: &'static str, wait: SignedDuration) -> Step {
    let there = observation.status.phase == phase && observation.status.reason.as_deref() == Some(reason);
    if there { Step::Wait(wait) } else { Step::Move { phase, reason } }
}

#[cfg(test)]
mod tests;
