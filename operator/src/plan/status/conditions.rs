//! Conditions of a BidNode.

use super::{Observation, SlotReport, Supply};
use crate::api::{BidNodeStatus, BidSlotStatus, UnhelpedPod, micros, usd};
use crate::plan::ceiling::Ceiling;
use crate::plan::gang::{COMPLETE, REGROUPING, REPLACING, WAITS};
use crate::plan::packing::{Cause, NotHelped, OverdueNode};
use crate::plan::scope::MOST_MARKETS;
use crate::plan::unused;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The condition that is false if a node is ready for long without what its type promises.
pub const NODES_INITIALIZE: &str = "NodesInitialize";
pub(super) const NODES_REGISTER: &str = "NodesRegister";

const TRUE: &str = "True";
const FALSE: &str = "False";
const UNKNOWN: &str = "Unknown";

/// A condition without its times: type, status, reason and message.
type Verdict = (&'static str, &'static str, &'static str, String);

fn ceiling_suffices(observation: &Observation) -> Verdict {
    let (status, reason, message) = match (&observation.engine_fault, observation.supply) {
        (Some(_), _) => (UNKNOWN, "AuctionUnavailable", "the engine does not answer".to_owned()),
        (None, Supply::Unknown) => (UNKNOWN, "NotAsked", "the prices are not known".to_owned()),
        (None, Supply::NoMarket) => {
            (UNKNOWN, "NoMarket", "NO_MARKET: no market of its types is open in its regions".to_owned())
        }
        (None, Supply::BelowTick { tick_micros }) => (
            FALSE,
            "MaxBidBelowTick",
            format!(
                "no bid is made: maxBid, or what its markets allow, is below their tick of {} USD",
                usd(tick_micros)
            ),
        ),
        (None, Supply::NoUnit) => {
            (UNKNOWN, "NoSupply", "NO_SUPPLY: no provider offers a node in its markets".to_owned())
        }
        (None, Supply::Offered(Ceiling { below_floor_micros: None, .. })) => {
            (TRUE, "AtOrAboveFloor", "the ceiling is not below the lowest reserve".to_owned())
        }
        (None, Supply::Offered(Ceiling { ceiling_micros, below_floor_micros: Some(floor) })) => (
            FALSE,
            "BelowFloor",
            format!(
                "the ceiling of {} USD is below the lowest reserve: {} USD or more would win",
                usd(ceiling_micros),
                usd(floor)
            ),
        ),
    };
    ("CeilingSuffices", status, reason, message)
}

/// Returns whether the engine refused the bid of a slot.
pub fn is_bid_refused(status: &BidSlotStatus) -> bool {
    status.bid.is_none() && status.reason.as_deref() == Some("BidRefused")
}

fn bids_accepted(slots: &[SlotReport]) -> Verdict {
    let refused = |slot: &&SlotReport| !slot.leaving && is_bid_refused(&slot.status);
    match slots.iter().find(refused) {
        None => ("BidsAccepted", TRUE, "Accepted", "no bid is refused".to_owned()),
        Some(slot) => {
            let why = slot.status.message.as_deref().unwrap_or_default();
            let message = format!("the bid of slot {} is tried again within a minute: {why}", slot.name);
            ("BidsAccepted", FALSE, "BidRefused", message)
        }
    }
}

fn bids_known(slots: &[SlotReport]) -> Verdict {
    let lost = slots.iter().filter(|slot| slot.status.phase.counts());
    let lost: Vec<_> = lost.filter_map(|slot| slot.status.lost_time.as_ref()).collect();
    match lost.iter().min() {
        None => ("BidsKnown", TRUE, "Known", "the engine knows all bids".to_owned()),
        Some(since) => {
            let message = format!(
                "the engine does not know {} bids since {}: its store is another one, or older. They are placed again \
                 if it does not come back",
                lost.len(),
                since.0
            );
            ("BidsKnown", FALSE, "BidUnknown", message)
        }
    }
}

fn nodes_register(observation: &Observation) -> Verdict {
    match &observation.registration_refused {
        None => (NODES_REGISTER, TRUE, "Registered", "labels and taints are taken".to_owned()),
        Some(why) => {
            let end = "; no node is bid for until the specification changes";
            let why = format!("{}{end}", why.trim_end_matches(end));
            (NODES_REGISTER, FALSE, "RegistrationRefused", why)
        }
    }
}

/// Returns whether pods wait that a node of the BidNode did not help, or would not help.
fn pods_helped(observation: &Observation, unhelped: &[UnhelpedPod]) -> Verdict {
    let known = observation.pods.iter().flat_map(|pods| &pods.not_helped);
    let mut causes: Vec<(String, String)> =
        unhelped.iter().map(|pod| (format!("{}/{}", pod.namespace, pod.name), pod.message.clone())).collect();
    for NotHelped { pod, cause } in known.clone().filter(|it| !it.cause.cost_a_node()) {
        causes.push((format!("{}/{}", pod.namespace, pod.name), cause.clause()));
    }
    let Some((pod, clause)) = causes.first() else {
        return ("PodsHelped", TRUE, "Helped", "no pod waits that a node does not help".to_owned());
    };
    let reason = match known.map(|it| &it.cause).next() {
        Some(Cause::TooSmall(_)) => "NodeTooSmall",
        Some(Cause::NotInitialized(_)) => "NodeNotInitialized",
        Some(Cause::Volume(_)) => "VolumeMissing",
        Some(Cause::NotScheduled { .. }) | None => "NotScheduled",
    };
    let others = match causes.len() {
        1 => String::new(),
        count => format!(" (and {} other pods)", count - 1),
    };
    ("PodsHelped", FALSE, reason, format!("no node is bid for pod {pod}{others}: {clause}"))
}

fn nodes_initialize(overdue: Option<&OverdueNode>) -> Verdict {
    match overdue {
        None => (
            NODES_INITIALIZE,
            TRUE,
            "Initialized",
            "no node is ready without what its type promises".to_owned(),
        ),
        Some(node) => (
            NODES_INITIALIZE,
            FALSE,
            "NotInitialized",
            format!("{}; pods get no further node", node.clause()),
        ),
    }
}

/// Returns the condition of a gang; `None` if there is none.
fn gang_complete(slots: &[SlotReport]) -> Option<Verdict> {
    let (slot, nodes) = slots.iter().find_map(|slot| Some((slot, slot.gang_nodes?)))?;
    let why = || slot.status.message.clone().unwrap_or_default();
    let (status, reason, message) = match (slot.status.bid, slot.status.reason.as_deref()) {
        (Some(_), Some(COMPLETE)) => (TRUE, COMPLETE, format!("the bid has all {nodes} nodes")),
        (Some(_), Some(REPLACING)) => {
            (FALSE, REPLACING, format!("a replacement is looked for until then: {}", why()))
        }
        (Some(_), Some(REGROUPING)) => (FALSE, REGROUPING, why()),
        (Some(bid), _) if slot.status.regroups > 0 && slot.status.message.is_some() => {
            (FALSE, WAITS, format!("bid {bid} waits for {nodes} nodes at once again, because {}", why()))
        }
        (Some(bid), _) => (FALSE, WAITS, format!("bid {bid} waits for {nodes} nodes at once")),
        (None, _) => (FALSE, "NotBidYet", "no bid is placed".to_owned()),
    };
    Some(("GangComplete", status, reason, message))
}

fn max_bid_applied(observation: &Observation) -> Verdict {
    let is_above = |status: &&BidSlotStatus| {
        status.ceiling_micros.is_some_and(|ceiling| ceiling > micros(observation.max_bid))
    };
    let above: Vec<_> = observation.slots.iter().map(|slot| &slot.status).filter(is_above).collect();
    let protected = above.iter().filter_map(|status| status.protected_until.as_ref().map(|time| time.0));
    let (status, reason, message) = match protected.filter(|until| *until > observation.now).max() {
        _ if above.is_empty() => (TRUE, "Applied", "no bid is above maxBid".to_owned()),
        None => (FALSE, "Amending", "bids above maxBid are lowered".to_owned()),
        Some(until) => {
            let message = format!(
                "a node is protected, or was kept by a raise under notice; its ceiling is lowered at {until}"
            );
            (FALSE, "Protected", message)
        }
    };
    ("MaxBidApplied", status, reason, message)
}

/// Returns the conditions of a BidNode. A condition keeps the time of its last transition.
pub(super) fn conditions(
    was: &BidNodeStatus,
    observation: &Observation,
    unhelped: &[UnhelpedPod],
    active: usize,
    enough: bool,
) -> Vec<Condition> {
    let (ready, reason) = if enough { (TRUE, "EnoughNodes") } else { (FALSE, "TooFewNodes") };
    let mut wanted = vec![(
        "Ready",
        ready,
        reason,
        format!("{active} nodes are ready, and at least {} are wanted", observation.min_nodes),
    )];
    wanted.push(match &observation.engine_fault {
        None => ("AuctionAvailable", TRUE, "Answers", "the engine answers".to_owned()),
        Some(fault) => ("AuctionAvailable", FALSE, "AuctionUnavailable", fault.clone()),
    });
    let slots = &observation.slots;
    wanted.extend([
        ceiling_suffices(observation),
        bids_accepted(slots),
        bids_known(slots),
        nodes_register(observation),
        nodes_initialize(observation.overdue.as_ref()),
        pods_helped(observation, unhelped),
        max_bid_applied(observation),
    ]);
    wanted.extend(gang_complete(slots));
    if observation.markets_left_out > 0 {
        let message = format!(
            "{} open markets are left out: a bid names at most {MOST_MARKETS}, those of the first types and regions",
            observation.markets_left_out
        );
        wanted.push(("MarketsNamed", FALSE, "TooManyMarkets", message));
    }
    if let Some(difference) = &observation.journal_difference {
        wanted.push(("JournalAccepted", FALSE, "JournalDiffers", difference.clone()));
    }
    if unused::is_stopped(observation.unused_nodes.as_ref()) {
        wanted.push(("NodesUsed", FALSE, "NodesUnused", unused::clause(observation.unused_nodes.as_ref())));
    }
    if let Some(invalid) = &observation.invalid_annotation {
        wanted.push(("AnnotationsValid", FALSE, "InvalidAnnotation", invalid.clone()));
    }
    if observation.deleting {
        wanted.push(match &observation.engine_fault {
            None => ("Releasing", TRUE, "Releasing", "bids are cancelled and nodes given back".to_owned()),
            Some(fault) => ("Releasing", FALSE, "AuctionUnavailable", fault.clone()),
        });
    }
    wanted
        .into_iter()
        .map(|(type_, status, reason, message)| {
            let before = was.conditions.iter().find(|old| old.type_ == type_ && old.status == status);
            Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
                last_transition_time: before
                    .map_or(Time(observation.now), |old| old.last_transition_time.clone()),
                observed_generation: observation.generation,
            }
        })
        .collect()
}
