//! Plans the status of a BidNode from the status of its slots, and when it is written.

mod conditions;

pub use conditions::{NODES_INITIALIZE, is_bid_refused};

use super::ceiling::{self, Ceiling, Markets};
use super::packing::{NotHelped, OverdueNode};
use crate::api::{
    BidNodePhase, BidNodeSpec, BidNodeStatus, BidSlotStatus, LABEL_UID, NodeStatus, SlotPhase,
    UNHELPED_PODS_MAX, UnhelpedPod, UnusedNodes, usd,
};
use conditions::{NODES_REGISTER, conditions};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;

/// The currency of the market.
const CURRENCY: &str = "USD";

/// The markets of a BidNode, compared with its ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// The engine was not asked, or did not answer.
    Unknown,
    /// No market of the type is open.
    NoMarket,
    /// No bid can be made: `maxBid`, or what the markets allow, is below one tick.
    BelowTick {
        /// The tick that all the markets share, in micro-dollars per node-hour.
        tick_micros: u64,
    },
    /// No provider offers a unit that stays.
    NoUnit,
    /// Providers offer units; the ceiling may be too low for them.
    Offered(Ceiling),
}

impl Supply {
    /// Compares the markets of a BidNode, if any is open, with its ceiling.
    pub fn of(spec: &BidNodeSpec, markets: Option<&Markets>) -> Self {
        let Some(markets) = markets else { return Supply::NoMarket };
        match ceiling::ceiling(spec, markets) {
            Ceiling { ceiling_micros: 0, .. } => Supply::BelowTick { tick_micros: markets.quote.tick_micros },
            _ if markets.quote.floor_micros.is_none() => Supply::NoUnit,
            ceiling => Supply::Offered(ceiling),
        }
    }
}

/// A slot, as the status of its BidNode needs it.
#[derive(Clone, Debug)]
pub struct SlotReport {
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: BidSlotStatus,
    /// True if it is being given up.
    pub leaving: bool,
    /// True if its node exists and is ready.
    pub node_ready: bool,
    /// The price in force of its allocation, in micro-dollars per node-hour.
    pub price_micros: Option<u64>,
    /// The number of nodes of the gang, if it is a gang slot.
    pub gang_nodes: Option<u32>,
}

/// The pods that need room, as the status of a BidNode needs them.
#[derive(Clone, Debug, Default)]
pub struct PodsReport {
    /// The UIDs of all pods that need room.
    pub pending: BTreeSet<String>,
    /// The pods that the nodes of the BidNode do not help, with the causes.
    pub not_helped: Vec<NotHelped>,
}

/// Everything that the status of a BidNode depends on.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The status as it was last written, if it was.
    pub previous: Option<BidNodeStatus>,
    /// The slots.
    pub slots: Vec<SlotReport>,
    /// The UID of the BidNode.
    pub uid: String,
    /// The generation of the BidNode.
    pub generation: Option<i64>,
    /// Its `minNodes`.
    pub min_nodes: usize,
    /// Its `maxBid`, in USD per node-hour.
    pub max_bid: f64,
    /// True if the BidNode is being deleted.
    pub deleting: bool,
    /// The time of the observation.
    pub now: Timestamp,
    /// The error with which the engine does not answer; `None` while it answers.
    pub engine_fault: Option<String>,
    /// The markets, compared with the ceiling.
    pub supply: Supply,
    /// The number of open markets that its bids do not name because there are too many.
    pub markets_left_out: usize,
    /// The pods that its nodes do not help; `None` if that is not known.
    pub pods: Option<PodsReport>,
    /// A node that is not initialized although it had time to be, if there is one.
    pub overdue: Option<OverdueNode>,
    /// The message with which the API server refuses the labels or taints of the nodes, if it does.
    pub registration_refused: Option<String>,
    /// The cost of all nodes so far, in micro-dollars; `None` if it is not known.
    pub cost_micros: Option<u64>,
    /// Why the engine's journal is not known to be the remembered one, as a sentence.
    pub journal_difference: Option<String>,
    /// The nodes in a row that were bought for pods and that no pod has used.
    pub unused_nodes: Option<UnusedNodes>,
    /// An annotation with a value that does not count, as a clause, if there is one.
    pub invalid_annotation: Option<String>,
    /// The `minNodes` that slots were given up for.
    pub observed_min_nodes: Option<u32>,
    /// The time at which the mean price was last changed.
    pub price_written: Option<Timestamp>,
    /// The time at which the cost was last changed, or at which the process first observed the BidNode.
    pub cost_written: Timestamp,
    /// The time at which the status was last written.
    pub status_written: Option<Timestamp>,
}

/// The status of a BidNode, and when it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The new status.
    pub status: BidNodeStatus,
    /// The time at which it is written.
    pub write: Write,
}

/// The time at which a status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// The status is not written: it is as it was.
    Unchanged,
    /// The status is planned again after this time, since it was written a moment ago.
    Later(Duration),
    /// The status is written at once.
    Now,
}

/// The mean price of the same nodes changes at most once in this time, and by at least a hundredth.
const PRICE_INTERVAL: SignedDuration = SignedDuration::from_secs(60);
/// A cost that alone has changed is written once in this time.
const COST_INTERVAL: SignedDuration = SignedDuration::from_mins(10);
/// A status with the same phase and generation is written at most once in this time if counts or conditions changed.
const NUMBERS_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// A status of which only other fields changed is written at most once in this time.
const DETAILS_INTERVAL: SignedDuration = SignedDuration::from_secs(5);

/// Returns the status of a BidNode, and when it is written: at once if the phase or the generation changed, and less often
/// otherwise.
pub fn plan(observation: &Observation) -> Plan {
    let status = status(observation);
    let none = BidNodeStatus::default();
    let previous = observation.previous.as_ref().unwrap_or(&none);
    if observation.previous.as_ref() == Some(&status) {
        return Plan { status, write: Write::Unchanged };
    }
    let turned = status.phase != previous.phase || status.observed_generation != previous.observed_generation;
    let numbers = |it: &BidNodeStatus| (it.active_nodes, it.pending_bids, it.conditions.clone());
    let interval = match (turned, numbers(&status) == numbers(previous)) {
        (true, _) => SignedDuration::ZERO,
        (false, false) => NUMBERS_INTERVAL,
        (false, true) => DETAILS_INTERVAL,
    };
    let left = observation.status_written.map(|when| interval - observation.now.duration_since(when));
    let left = left.and_then(|left| Duration::try_from(left).ok()).filter(|left| !left.is_zero());
    Plan { status, write: left.map_or(Write::Now, Write::Later) }
}

/// Returns the status of a BidNode.
pub fn status(observation: &Observation) -> BidNodeStatus {
    let none = BidNodeStatus::default();
    let was = observation.previous.as_ref().unwrap_or(&none);
    let slots = &observation.slots;
    let active: Vec<_> =
        slots.iter().filter(|slot| state(slot) == SlotPhase::Ready && !slot.leaving).collect();
    let counting: Vec<_> = slots.iter().filter(|slot| slot.status.phase.counts() && !slot.leaving).collect();
    let pending: usize = counting.iter().map(|slot| still_bid_for(slot, &counting)).sum();
    let enough = active.len() >= observation.min_nodes;
    let phase = if observation.deleting {
        BidNodePhase::Releasing
    } else if enough && counting.is_empty() {
        BidNodePhase::Idle
    } else if enough && !active.is_empty() {
        BidNodePhase::Running
    } else {
        short_of_nodes(&counting)
    };
    let mut nodes: Vec<_> = slots.iter().filter_map(node).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    // The prices of the nodes change with their mean.
    let mean = mean(active.iter().filter_map(|slot| slot.price_micros));
    let names = |nodes: &[NodeStatus]| -> Vec<String> {
        let ready = nodes.iter().filter(|node| node.state == SlotPhase::Ready);
        ready.map(|node| node.name.clone()).collect()
    };
    let average_price = if names(&nodes) == names(&was.nodes) {
        price_to_write(was.average_price, mean, observation.price_written, observation.now)
    } else {
        mean
    };
    for node in &mut nodes {
        let before = was.nodes.iter().find(|old| old.name == node.name).and_then(|old| old.price);
        if average_price == was.average_price && before.is_some() {
            node.price = before;
        }
    }
    let unhelped_pods = unhelped_pods(was, observation);
    let ceilings = slots.iter().filter(|slot| slot.status.phase.counts() && slot.status.bid.is_some());
    let mut status = BidNodeStatus {
        phase,
        active_nodes: count(active.len()),
        pending_bids: count(pending),
        average_price,
        bid_price: ceilings.filter_map(|slot| slot.status.ceiling_micros).max().map(usd),
        cost: was.cost,
        currency: Some(CURRENCY.to_owned()),
        last_bid_time: slots
            .iter()
            .filter_map(|slot| slot.status.bid_time.clone())
            .max()
            .or(was.last_bid_time.clone()),
        nodes,
        conditions: conditions(was, observation, &unhelped_pods, active.len(), enough),
        unhelped_pods,
        unused_nodes: observation.unused_nodes.clone(),
        observed_generation: observation.generation,
        observed_min_nodes: observation.observed_min_nodes,
        selector: Some(format!("{LABEL_UID}={}", observation.uid)),
    };
    // The cost grows all the time: that alone is written seldom.
    let is_cost_due = observation.now.duration_since(observation.cost_written) >= COST_INTERVAL;
    if status != *was || is_cost_due || was.cost.is_none() {
        status.cost = observation.cost_micros.map(whole_cents).or(was.cost);
    }
    status
}

/// Returns the pods for which no further node is bid for: those of before that still need room, and those for which a node came
/// in vain since.
fn unhelped_pods(was: &BidNodeStatus, observation: &Observation) -> Vec<UnhelpedPod> {
    let Some(pods) = &observation.pods else { return was.unhelped_pods.clone() };
    let generation = observation.generation;
    let stays = |pod: &&UnhelpedPod| pod.generation == generation && pods.pending.contains(&pod.uid);
    let mut unhelped: Vec<_> = was.unhelped_pods.iter().filter(stays).cloned().collect();
    for NotHelped { pod, cause } in pods.not_helped.iter().filter(|it| it.cause.cost_a_node()) {
        if unhelped.len() < UNHELPED_PODS_MAX && unhelped.iter().all(|there| there.uid != pod.uid) {
            unhelped.push(UnhelpedPod {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
                generation,
                message: cause.clause(),
            });
        }
    }
    unhelped
}

/// Returns an amount in USD, rounded to the nearest cent.
fn whole_cents(micros: u64) -> f64 {
    usd((micros + 5_000) / 10_000 * 10_000)
}

/// Returns the message with which the API server refuses the labels or taints of this generation of a BidNode, if it does: as
/// a slot has recorded, or as the condition of the BidNode says.
pub fn registration_refused<'a>(
    previous: Option<&BidNodeStatus>,
    generation: Option<i64>,
    mut slots: impl Iterator<Item = &'a BidSlotStatus>,
) -> Option<String> {
    let found = slots.find(|slot| slot.refused_generation.is_some() && slot.refused_generation == generation);
    if let Some(slot) = found {
        return slot.message.clone().or(Some("the API server refuses the labels or taints".to_owned()));
    }
    let conditions = &previous?.conditions;
    let before = conditions.iter().find(|it| it.type_ == NODES_REGISTER && it.status == "False")?;
    (before.observed_generation == generation).then(|| before.message.clone())
}

/// Returns the phase of a BidNode that has too few ready nodes: what it waits for first.
fn short_of_nodes(slots: &[&SlotReport]) -> BidNodePhase {
    let any = |is_so: fn(&SlotReport) -> bool| slots.iter().any(|slot| is_so(slot));
    let bids = |slot: &&SlotReport| slot.status.phase == SlotPhase::Bidding && still_bid_for(slot, slots) > 0;
    if slots.iter().any(bids) {
        BidNodePhase::Bidding
    } else if any(|slot| (SlotPhase::Awarded..SlotPhase::Ready).contains(&slot.status.phase)) {
        BidNodePhase::Starting
    } else if any(|slot| slot.status.phase == SlotPhase::Ready && !slot.node_ready) {
        BidNodePhase::NotReady
    } else {
        BidNodePhase::Pending
    }
}

/// Returns the number of nodes that a slot still bids for. A gang slot bids for the nodes of its gang that have no member.
fn still_bid_for(slot: &SlotReport, counting: &[&SlotReport]) -> usize {
    match slot.gang_nodes {
        Some(nodes) => (nodes as usize).saturating_sub(counting.len() - 1),
        None => usize::from(slot.status.phase <= SlotPhase::Bidding),
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn node(slot: &SlotReport) -> Option<NodeStatus> {
    slot.status.allocation?;
    Some(NodeStatus {
        name: slot.status.node.clone().unwrap_or_else(|| slot.name.to_owned()),
        region: slot.status.region().map(str::to_owned),
        instance_type: slot.status.instance_type().map(str::to_owned),
        price: slot.price_micros.map(usd),
        state: state(slot),
        deadline: slot.status.deadline.clone(),
    })
}

/// Returns the phase of a slot's node. A node that was ready and is not ready is registered.
fn state(slot: &SlotReport) -> SlotPhase {
    let phase = slot.status.phase;
    if phase == SlotPhase::Ready && !slot.node_ready { SlotPhase::Registered } else { phase }
}

fn mean(prices: impl Iterator<Item = u64>) -> Option<f64> {
    let prices: Vec<_> = prices.collect();
    let count = u64::try_from(prices.len()).ok().filter(|count| *count > 0)?;
    Some(usd(prices.iter().sum::<u64>() / count))
}

fn price_to_write(
    was: Option<f64>,
    is: Option<f64>,
    priced: Option<Timestamp>,
    now: Timestamp,
) -> Option<f64> {
    let (Some(old), Some(new)) = (was, is) else { return is };
    let early = priced.is_some_and(|priced| now.duration_since(priced) < PRICE_INTERVAL);
    let small = (new - old).abs() < 0.01 * old;
    if early || small { was } else { is }
}

#[cfg(test)]
mod tests;
