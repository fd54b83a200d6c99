//! Plans the steps of a gang slot, and the slots of a BidNode that is a gang.
//!
//! A gang has all of its nodes or none. Its gang slot has one bid for all of them, whose minimum is their number (R12). Each
//! allocation of the bid has a slot of its own, a member, which lives like the slot of any node. A member answers a notice by
//! itself: it raises the bid of the gang up to `maxBid`, or lets its node go. The bid then looks for a replacement. If the gang
//! is not whole at the deadline, all members are drained, and the bid is regrouped (R14).

use super::bidnode::{self, next_look};
use super::count::{self, Changes, NewSlot, Rules, SlotView};
use super::packing::Part;
use super::slot::{BidState, BidView, LONG_WAIT, Observation, SHORT_WAIT, Step, UnwantedReason};
use crate::api::{ReleaseReason, SlotPhase, usd};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;

/// The nodes and claims of the bid of a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GangBid {
    /// True while it searches.
    pub open: bool,
    /// The number of nodes that it wants.
    pub max_nodes: u32,
    /// The number of its nodes that are not under notice.
    pub held: u32,
    /// The number of its nodes under notice.
    pub under_notice: u32,
    /// The number of nodes that it gets when their notices end.
    pub claimed: u32,
}

/// A node under notice that its member has let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The name of the node, or of its slot if there is no node yet.
    pub node: String,
    /// The time at which it ends at the latest.
    pub deadline: Timestamp,
    /// The ceiling that would keep it, in micro-dollars per node-hour, if the engine has said so: `Some(None)` if no ceiling would.
    pub price_to_stay_micros: Option<Option<u64>>,
}

/// A member, as the plan of its gang slot needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name of its slot.
    pub name: String,
    /// True if its slot is to be given up, or is deleted.
    pub leaving: bool,
    /// True if its machine is ended.
    pub machine_ended: bool,
    /// The notice that its node was let go for.
    pub loss: Option<Loss>,
}

/// Everything that the plan of a gang slot needs besides what the plan of any slot needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangView {
    /// The number of nodes of the gang.
    pub nodes: u32,
    /// The nodes and claims of its bid; `None` if there is no bid that the engine knows.
    pub bid: Option<GangBid>,
    /// The members.
    pub members: Vec<Member>,
    /// The allocations of the bid that have no member yet.
    pub without_member: Vec<u64>,
    /// True if no node is bid for at this time: machines failed a moment ago, or the API server refuses labels or taints.
    pub paused: bool,
}

/// One step of a gang slot that other slots do not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GangStep {
    /// Creates the members of these allocations.
    AddMembers(Vec<u64>),
    /// Records that these members are to be given up.
    ReleaseMembers {
        /// The names of their slots.
        names: Vec<String>,
        /// The reason.
        reason: ReleaseReason,
    },
    /// Lets the bid want as many nodes as the gang has.
    Enlarge,
    /// Records how far the gang is.
    Record {
        /// The reason, as one word.
        reason: &'static str,
        /// The time until which a replacement is looked for.
        deadline: Option<Timestamp>,
        /// The reason in a sentence; the former one stays if it is `None`.
        message: Option<String>,
    },
    /// Records that the nodes of the gang are given up, so that all are bid for again.
    BeginRegroup {
        /// The reason in a sentence.
        message: String,
    },
    /// Ends all nodes and claims of the bid, which waits for all of its nodes again.
    Regroup,
    /// Ends the search of the bid. Its nodes stay until their members give them back.
    EndSearch,
}

/// The reason of a gang slot whose bid waits for all of its nodes.
pub const WAITS: &str = "BidWaits";
/// The reason of a gang slot whose gang has all of its nodes.
pub const COMPLETE: &str = "Complete";
/// The reason of a gang slot whose bid looks for a replacement.
pub const REPLACING: &str = "Replacing";
/// The reason of a gang slot whose gang gives up its nodes, to bid for all of them again.
pub const REGROUPING: &str = "Regrouping";

/// Returns the next step of a gang slot whose bid was placed. `amend_micros` is the ceiling to amend the bid to, if it is to be
/// amended.
pub(super) fn next(observation: &Observation, gang: &GangView, amend_micros: Option<u64>) -> Step {
    match &observation.bid {
        BidState::NotListed => Step::Wait(SHORT_WAIT),
        BidState::Unknown => unknown(observation, gang),
        BidState::Known(_) if observation.status.lost_time.is_some() => Step::FindBid,
        BidState::Known(bid) => match &gang.bid {
            Some(has) => known(observation, gang, bid, has, amend_micros),
            None => Step::Wait(SHORT_WAIT),
        },
    }
}

/// Plans for a bid that the engine does not know. Its members find that out by themselves.
fn unknown(observation: &Observation, gang: &GangView) -> Step {
    if observation.unwanted.is_none() {
        let Some(since) = &observation.status.lost_time else { return Step::MissBid };
        let left = observation.limits.unknown - observation.now.duration_since(since.0);
        if left.is_positive() {
            return Step::Wait(left.min(LONG_WAIT));
        }
    }
    if gang.members.is_empty() {
        Step::Move { phase: SlotPhase::Failed, reason: "BidUnknown" }
    } else {
        release_members(gang, ReleaseReason::Regroup).unwrap_or(Step::Wait(SHORT_WAIT))
    }
}

/// Plans for a bid that the engine knows.
fn known(
    observation: &Observation,
    gang: &GangView,
    bid: &BidView,
    has: &GangBid,
    amend_micros: Option<u64>,
) -> Step {
    let is_left = has.held + has.under_notice >= gang.nodes;
    match observation.unwanted {
        Some(why) => return give_up(gang, has, why),
        None if observation.status.regroup_time.is_some() && has.open => return regroup(gang, has),
        None if !has.open && !is_left => return closed(gang, has),
        None => {}
    }
    if !gang.without_member.is_empty() {
        return Step::Gang(GangStep::AddMembers(gang.without_member.clone()));
    }
    if has.open && has.max_nodes < gang.nodes && !gang.paused {
        return Step::Gang(GangStep::Enlarge);
    }
    if let Some(ceiling_micros) = amend_micros.filter(|_| bid.open) {
        return Step::Amend { ceiling_micros };
    }
    if has.held + has.claimed + has.under_notice == 0 {
        if observation.lacks_markets() {
            return Step::Replace;
        }
        return recorded(observation, WAITS, None, None, LONG_WAIT / 2);
    }
    if has.held + has.claimed >= gang.nodes {
        return recorded(observation, COMPLETE, None, Some(String::new()), LONG_WAIT / 2);
    }
    short(observation, gang, has)
}

/// Plans for a gang that has some of its nodes: its bid looks for others until the deadline of the first node that it lost.
fn short(observation: &Observation, gang: &GangView, has: &GangBid) -> Step {
    let now = observation.now;
    let is_missing = has.held + has.claimed + has.under_notice < gang.nodes;
    let losses = || gang.members.iter().filter_map(|member| member.loss.as_ref());
    let next_loss = losses().filter(|loss| loss.deadline > now).min_by_key(|loss| loss.deadline);
    match (observation.status.deadline.as_ref().map(|deadline| deadline.0), next_loss) {
        (Some(deadline), _) if now < deadline => {
            let left = deadline.duration_since(now).clamp(SOON, LONG_WAIT / 2);
            recorded(observation, REPLACING, Some(deadline), None, left)
        }
        // The bid was closed by hand: nothing is looked for, and the members stay for as long as the market lets them.
        _ if !is_missing && !has.open => Step::Wait(LONG_WAIT / 2),
        (Some(_), _) if is_missing => begin_regroup(observation, gang, has),
        (_, Some(loss)) => {
            let message = why(loss, observation);
            recorded(observation, REPLACING, Some(loss.deadline), Some(message), SOON)
        }
        // A notice is being answered, or its node is about to end.
        (_, None) if !is_missing => Step::Wait(SOON),
        (_, None) if has.max_nodes < gang.nodes => Step::Wait(SHORT_WAIT),
        (_, None) => begin_regroup(observation, gang, has),
    }
}

/// Returns the reason why a node was let go, in a sentence.
fn why(loss: &Loss, observation: &Observation) -> String {
    let Loss { node, deadline, price_to_stay_micros } = loss;
    let max_bid = observation.bidnode.as_ref().map(|bidnode| bidnode.spec.max_bid).unwrap_or_default();
    let price = match price_to_stay_micros {
        Some(Some(price)) => {
            format!(": {} USD per hour would keep it, and maxBid is {max_bid} USD", usd(*price))
        }
        Some(None) => format!(": no price keeps it, and maxBid is {max_bid} USD"),
        None => format!(", and maxBid is {max_bid} USD"),
    };
    format!("node {node} is taken away at {deadline}{price}")
}

fn begin_regroup(observation: &Observation, gang: &GangView, has: &GangBid) -> Step {
    let lost = match observation.status.message.as_deref() {
        Some(why) if observation.status.deadline.is_some() => why,
        Some(_) | None => "a node has ended without a notice",
    };
    let message = format!(
        "{lost}; no replacement was found, and {} of {} nodes are worth nothing",
        has.held + has.claimed + has.under_notice,
        gang.nodes
    );
    Step::Gang(GangStep::BeginRegroup { message })
}

/// Plans for a gang that gives up its nodes, to bid for all of them again: they are drained, their machines end, and the bid is
/// regrouped. It wants all of its nodes before that, since its minimum is never above the number that it wants.
fn regroup(gang: &GangView, has: &GangBid) -> Step {
    if let Some(step) = release_members(gang, ReleaseReason::Regroup) {
        return step;
    }
    if gang.members.iter().any(|member| !member.machine_ended) {
        return Step::Wait(SHORT_WAIT);
    }
    Step::Gang(if has.max_nodes < gang.nodes { GangStep::Enlarge } else { GangStep::Regroup })
}

/// Plans for a bid that has closed and does not have all of its nodes. What is left is given up. Another gang slot is made after
/// this one.
fn closed(gang: &GangView, has: &GangBid) -> Step {
    if let Some(step) = release_members(gang, ReleaseReason::Regroup) {
        return step;
    }
    nothing_left(gang, has, Step::Move { phase: SlotPhase::Failed, reason: "BidClosed" })
}

/// Plans for a gang slot that is not wanted. No node is bought while its members give theirs back.
fn give_up(gang: &GangView, has: &GangBid, why: UnwantedReason) -> Step {
    if has.open && !gang.members.is_empty() {
        return Step::Gang(GangStep::EndSearch);
    }
    let reason = match why {
        UnwantedReason::Release(reason) => reason,
        UnwantedReason::Deleted => ReleaseReason::ScaleDown,
    };
    if let Some(step) = release_members(gang, reason) {
        return step;
    }
    nothing_left(gang, has, Step::Move { phase: SlotPhase::Released, reason: why.reason() })
}

/// Returns the last step of a gang slot, or what comes before it: the members are gone, and then the bid is cancelled.
fn nothing_left(gang: &GangView, has: &GangBid, last: Step) -> Step {
    if !gang.members.is_empty() {
        return Step::Wait(SHORT_WAIT);
    }
    if has.open || has.held + has.under_notice > 0 { Step::Cancel } else { last }
}

fn release_members(gang: &GangView, reason: ReleaseReason) -> Option<Step> {
    let stay = gang.members.iter().filter(|member| !member.leaving);
    let names: Vec<_> = stay.map(|member| member.name.clone()).collect();
    (!names.is_empty()).then_some(Step::Gang(GangStep::ReleaseMembers { names, reason }))
}

/// Records how far the gang is, once, and then waits. An empty message removes the former one, and `None` keeps it.
fn recorded(
    observation: &Observation,
    reason: &'static str,
    deadline: Option<Timestamp>,
    message: Option<String>,
    wait: SignedDuration,
) -> Step {
    let status = &observation.status;
    let is_recorded = status.reason.as_deref() == Some(reason)
        && status.deadline.as_ref().map(|time| time.0) == deadline
        && message.as_ref().is_none_or(|message| status.message.as_deref().unwrap_or_default() == message);
    if is_recorded { Step::Wait(wait) } else { Step::Gang(GangStep::Record { reason, deadline, message }) }
}

/// The wait for a deadline, or for an answer that is on its way.
const SOON: SignedDuration = SignedDuration::from_secs(1);

/// Returns the plan for the slots of a BidNode that is a gang: it has one gang slot, which makes the members. A member whose node is
/// not ready for too long is given up.
pub(super) fn slots(observation: &bidnode::Observation) -> bidnode::Plan {
    let (gang_slots, members): (Vec<_>, Vec<_>) =
        observation.slots.iter().partition(|slot| slot.is_gang_slot);
    let members: Vec<SlotView> = members.into_iter().map(|slot| slot.view.clone()).collect();
    let nodes = observation.min_nodes as usize;
    let rules = Rules {
        min: nodes,
        max: nodes,
        needed: 0,
        fewer: 0,
        disrupted: bidnode::most_disrupted(observation),
        empty_after: observation.empty_after,
        unhealthy_after: observation.unhealthy_after,
    };
    let may_create = observation.pause.is_none() && !observation.registration_refused;
    let new = NewSlot { ordinal: 0, replaces: None, for_pods: false };
    let changes = Changes {
        create: if gang_slots.is_empty() && may_create { vec![new] } else { Vec::new() },
        release: count::unhealthy(&rules, &members)
            .into_iter()
            .map(|name| (name, ReleaseReason::NotReady))
            .collect(),
    };
    let later = next_look(&rules, &members, observation.resync);
    let requeue_after = observation.pause.filter(|_| gang_slots.is_empty()).map_or(later, |it| it.min(later));
    bidnode::Plan { target: nodes, changes, part: Part::default(), pending: BTreeSet::new(), requeue_after }
}

#[cfg(test)]
mod tests;
