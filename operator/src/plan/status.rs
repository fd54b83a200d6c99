//! Plans the status of a BidNode from the status of its slots, and when it is written.

use super::ceiling::{self, Ceiling, Markets};
use super::gang::{COMPLETE, REGROUPING, REPLACING, WAITS};
use super::packing::{Cause, NotHelped, OverdueNode};
use super::scope::MOST_MARKETS;
use crate::api::{
    BidNodePhase, BidNodeSpec, BidNodeStatus, BidSlotStatus, LABEL_UID, NodeStatus, SlotPhase,
    UNHELPED_PODS_MAX, UnhelpedPod, micros, usd,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;

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

/// The condition that is false if a node is ready for long without what its type promises.
pub const NODES_INITIALIZE: &str = "NodesInitialize";
const NODES_REGISTER: &str = "NodesRegister";

/// The currency of the market.
const CURRENCY: &str = "USD";

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

fn conditions(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::BidStrategy;
    use kubebid_strategy::Quote;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn observation(second: i64) -> Observation {
        Observation {
            previous: None,
            slots: Vec::new(),
            uid: "u".into(),
            generation: Some(1),
            min_nodes: 2,
            max_bid: 4.5,
            deleting: false,
            now: at(second),
            engine_fault: None,
            supply: offered(None),
            markets_left_out: 0,
            pods: Some(PodsReport::default()),
            overdue: None,
            registration_refused: None,
            cost_micros: None,
            observed_min_nodes: Some(2),
            price_written: None,
            cost_written: at(second),
            status_written: None,
        }
    }

    fn offered(below_floor_micros: Option<u64>) -> Supply {
        Supply::Offered(Ceiling { ceiling_micros: 3_000_000, below_floor_micros })
    }

    fn slot(phase: SlotPhase) -> BidSlotStatus {
        let allocation = (phase > SlotPhase::Bidding).then_some(3);
        BidSlotStatus {
            phase,
            bid: Some(1),
            allocation,
            node: allocation.map(|_| "gpu-0-x".into()),
            market: Some("h100-8x/eu-west".into()),
            ..BidSlotStatus::default()
        }
    }

    /// Stands for a node that is not ready, in the place of its price.
    const NOT_READY: u64 = 1;

    fn report(
        slots: &[(BidSlotStatus, u64)],
        second: i64,
        was: &BidNodeStatus,
        priced: Option<i64>,
    ) -> BidNodeStatus {
        let slots: Vec<_> = slots
            .iter()
            .map(|(status, price)| SlotReport {
                name: "gpu-0".into(),
                status: status.clone(),
                leaving: false,
                node_ready: *price != NOT_READY,
                price_micros: (*price > 0).then_some(*price),
                gang_nodes: None,
            })
            .collect();
        let price_written = priced.map(at);
        status(&Observation { previous: Some(was.clone()), slots, price_written, ..observation(second) })
    }

    #[test]
    fn it_counts_what_is_ready_and_what_is_still_bid_for() {
        let slots = [
            (slot(SlotPhase::Ready), 3_000_000),
            (slot(SlotPhase::Bidding), 0),
            (slot(SlotPhase::Notice), 9),
        ];
        let status = report(&slots, 1, &BidNodeStatus::default(), None);
        assert_eq!((status.active_nodes, status.pending_bids, status.phase), (1, 1, BidNodePhase::Bidding));
        assert_eq!(status.average_price, Some(3.0));
        assert_eq!(status.nodes[0].region.as_deref(), Some("eu-west"));
        assert_eq!(status.nodes[0].instance_type.as_deref(), Some("h100-8x"));
        assert_eq!(
            (status.conditions[0].type_.as_str(), status.conditions[0].status.as_str()),
            ("Ready", "False")
        );
    }

    #[test]
    fn a_node_that_is_not_ready_does_not_count() {
        let slots = [(slot(SlotPhase::Ready), 3_000_000), (slot(SlotPhase::Ready), NOT_READY)];
        let status = report(&slots, 1, &BidNodeStatus::default(), None);
        assert_eq!((status.active_nodes, status.pending_bids), (1, 0));
        assert_eq!((status.nodes[0].state, status.nodes[1].state), (SlotPhase::Ready, SlotPhase::Registered));
    }

    #[test]
    fn the_phase_says_what_is_waited_for_first() {
        use BidNodePhase as Is;
        use SlotPhase::{Awarded, Bidding, Notice, Pending, Provisioning, Ready, Registered};
        let phase = |phases: &[SlotPhase], ready: bool| {
            let price = if ready { 3_000_000 } else { NOT_READY };
            let slots: Vec<_> = phases.iter().map(|phase| (slot(*phase), price)).collect();
            report(&slots, 1, &BidNodeStatus::default(), None).phase
        };
        assert_eq!(phase(&[], true), Is::Pending);
        assert_eq!(phase(&[Pending, Pending], true), Is::Pending);
        assert_eq!(phase(&[Bidding, Pending], true), Is::Bidding);
        assert_eq!(phase(&[Bidding, Provisioning], true), Is::Bidding);
        assert_eq!(phase(&[Notice, Ready, Bidding], true), Is::Bidding);
        assert_eq!(phase(&[Awarded, Ready], true), Is::Starting);
        assert_eq!(phase(&[Registered, Pending], true), Is::Starting);
        assert_eq!(phase(&[Ready, Ready], true), Is::Running);
        assert_eq!(phase(&[Ready, Ready], false), Is::NotReady);
        assert_eq!(phase(&[Ready, Provisioning], false), Is::Starting);
        // A node that has never been ready has not ceased to be.
        assert_eq!(phase(&[Ready], true), Is::Pending);
        assert_eq!(phase(&[Ready, Pending], true), Is::Pending);
    }

    /// A gang of three nodes whose bid is placed, with members in these phases.
    fn gang(reason: &str, members: &[SlotPhase]) -> BidNodeStatus {
        let gang_slot = SlotReport {
            name: "gpu-gang".into(),
            status: BidSlotStatus {
                phase: SlotPhase::Bidding,
                bid: Some(12),
                reason: Some(reason.into()),
                message: Some("node gpu-7 is taken away".into()),
                regroups: 1,
                ..BidSlotStatus::default()
            },
            leaving: false,
            node_ready: false,
            price_micros: None,
            gang_nodes: Some(3),
        };
        let member = |phase: &SlotPhase| SlotReport {
            name: "gpu-7".into(),
            status: slot(*phase),
            node_ready: true,
            gang_nodes: None,
            ..gang_slot.clone()
        };
        let slots = members.iter().map(member).chain([gang_slot.clone()]).collect();
        status(&Observation { slots, min_nodes: 3, ..observation(1) })
    }

    #[test]
    fn a_gang_bids_for_the_nodes_that_have_no_member() {
        use SlotPhase::{Provisioning, Ready};
        let counts = |members: &[SlotPhase]| {
            let status = gang(COMPLETE, members);
            (status.phase, status.active_nodes, status.pending_bids)
        };
        assert_eq!(counts(&[]), (BidNodePhase::Bidding, 0, 3));
        assert_eq!(counts(&[Ready, Ready]), (BidNodePhase::Bidding, 2, 1));
        assert_eq!(counts(&[Ready, Ready, Provisioning]), (BidNodePhase::Starting, 2, 0));
        assert_eq!(counts(&[Ready, Ready, Ready]), (BidNodePhase::Running, 3, 0));
    }

    #[test]
    fn a_gang_says_how_far_it_is_and_why() {
        let said_of = |reason: &str| {
            let status = gang(reason, &[]);
            let condition = status.conditions.into_iter().find(|it| it.type_ == "GangComplete").unwrap();
            (condition.status, condition.reason, condition.message)
        };
        assert_eq!(said_of(COMPLETE).0, "True");
        for reason in [REPLACING, REGROUPING, WAITS] {
            let (status, said, message) = said_of(reason);
            assert_eq!((status.as_str(), said.as_str()), ("False", reason));
            assert!(message.contains("node gpu-7 is taken away"), "{message}");
        }
    }

    #[test]
    fn the_mean_price_moves_seldom_and_not_for_little() {
        let priced = |price| [(slot(SlotPhase::Ready), price), (slot(SlotPhase::Ready), price)];
        let first = report(&priced(3_000_000), 1, &BidNodeStatus::default(), None);
        assert_eq!(first.phase, BidNodePhase::Running);
        assert_eq!(report(&priced(3_020_000), 99, &first, Some(1)), first);
        assert_eq!(report(&priced(3_500_000), 60, &first, Some(1)), first);
        let later = report(&priced(3_500_000), 61, &first, Some(1));
        assert_eq!(later.average_price, Some(3.5));
    }

    fn said(status: &BidNodeStatus, type_: &str) -> (String, String) {
        let it = status.conditions.iter().find(|it| it.type_ == type_).expect("it is said");
        (it.status.clone(), it.reason.clone())
    }

    #[test]
    fn a_ceiling_suffices_only_if_that_is_known() {
        let said_of = |supply, engine_fault: Option<&str>| {
            let engine_fault = engine_fault.map(str::to_owned);
            let status = status(&Observation { supply, engine_fault, ..observation(1) });
            let (holds, reason) = said(&status, "CeilingSuffices");
            format!("{holds}:{reason}")
        };
        assert_eq!(said_of(offered(None), None), "True:AtOrAboveFloor");
        assert_eq!(said_of(offered(Some(2_000_000)), None), "False:BelowFloor");
        assert_eq!(said_of(offered(None), Some("away")), "Unknown:AuctionUnavailable");
        assert_eq!(said_of(Supply::Unknown, None), "Unknown:NotAsked");
        assert_eq!(said_of(Supply::NoMarket, None), "Unknown:NoMarket");
        assert_eq!(said_of(Supply::NoUnit, None), "Unknown:NoSupply");
        assert_eq!(said_of(Supply::BelowTick { tick_micros: 100 }, None), "False:MaxBidBelowTick");
    }

    #[test]
    fn a_ceiling_suffices_in_a_market_that_costs_nothing_and_only_if_a_bid_can_be_made() {
        let supply = |max_bid, floor_micros: Option<u64>, ceiling_max_micros| {
            let quote = Quote { reference_micros: floor_micros, floor_micros, tick_micros: 100 };
            let open = vec!["h100-8x/eu-west".to_owned()];
            let markets = Markets { quote, increment_bps: 500, ceiling_max_micros, open, left_out: 0 };
            Supply::of(&ceiling::tests::spec(BidStrategy::Balanced, max_bid), Some(&markets))
        };
        let offered = |ceiling_micros| Supply::Offered(Ceiling { ceiling_micros, below_floor_micros: None });
        let below_tick = Supply::BelowTick { tick_micros: 100 };
        assert_eq!(supply(4.5, Some(0), u64::MAX), offered(100));
        assert_eq!(supply(0.000_1, Some(0), u64::MAX), offered(100));
        assert_eq!(supply(0.000_099, Some(0), u64::MAX), below_tick);
        assert_eq!(supply(0.000_099, Some(2_000_000), u64::MAX), below_tick);
        assert_eq!(supply(4.5, Some(0), 99), below_tick);
        // All units leave, or there is none.
        assert_eq!(supply(4.5, None, u64::MAX), Supply::NoUnit);
    }

    #[test]
    fn markets_that_are_too_many_are_said() {
        let left_out = |markets_left_out| status(&Observation { markets_left_out, ..observation(1) });
        assert_eq!(said(&left_out(3), "MarketsNamed"), ("False".into(), "TooManyMarkets".into()));
        assert!(left_out(0).conditions.iter().all(|it| it.type_ != "MarketsNamed"));
    }

    #[test]
    fn labels_that_were_refused_stay_refused_until_the_specification_changes() {
        let refused = BidSlotStatus {
            refused_generation: Some(1),
            message: Some("no".into()),
            ..slot(SlotPhase::Releasing)
        };
        let none = BidNodeStatus::default();
        assert_eq!(registration_refused(Some(&none), Some(1), [].iter()), None);
        let found = registration_refused(None, Some(1), [&refused].into_iter());
        assert_eq!(found.as_deref(), Some("no"));
        assert_eq!(registration_refused(None, Some(2), [&refused].into_iter()), None);
        // The slot is gone: the condition remembers.
        let with = |previous: &BidNodeStatus, registration_refused, second| {
            let previous = Some(previous.clone());
            status(&Observation { previous, registration_refused, ..observation(second) })
        };
        let first = with(&none, found, 1);
        assert_eq!(said(&first, NODES_REGISTER), ("False".into(), "RegistrationRefused".into()));
        let later = registration_refused(Some(&first), Some(1), [].iter());
        let second = with(&first, later.clone(), 9);
        assert_eq!(second, first);
        assert!(later.is_some());
        assert_eq!(registration_refused(Some(&first), Some(2), [].iter()), None);
    }

    #[test]
    fn a_cost_that_grows_is_written_with_something_else_or_when_it_is_due() {
        let costs = |was: &BidNodeStatus, cents: u64, is_due| {
            let cost_written = if is_due { at(1) - COST_INTERVAL } else { at(1) };
            let (previous, cost_micros) = (Some(was.clone()), Some(cents * 10_000));
            status(&Observation { previous, cost_micros, cost_written, ..observation(1) })
        };
        let first = costs(&BidNodeStatus::default(), 100, false);
        assert_eq!((first.cost, first.currency.as_deref()), (Some(1.0), Some("USD")));
        assert_eq!(costs(&first, 150, false), first);
        assert_eq!(costs(&first, 150, true).cost, Some(1.5));
        let other = BidNodeStatus { active_nodes: 7, ..first };
        assert_eq!(costs(&other, 150, false).cost, Some(1.5));
    }

    #[test]
    fn conditions_keep_the_time_of_their_last_change() {
        let first = report(&[(slot(SlotPhase::Bidding), 0)], 1, &BidNodeStatus::default(), None);
        let second = report(&[(slot(SlotPhase::Bidding), 0)], 50, &first, None);
        assert_eq!(second, first);
    }

    #[test]
    fn a_status_is_written_at_once_when_it_turns_and_details_wait() {
        let first = status(&observation(1));
        let write = |previous: &BidNodeStatus, change: fn(&mut Observation), second| {
            let mut it = observation(second);
            (it.previous, it.status_written) = (Some(previous.clone()), Some(at(10)));
            change(&mut it);
            plan(&it).write
        };
        assert_eq!(plan(&observation(1)).write, Write::Now, "there is none yet");
        assert_eq!(write(&first, |_| {}, 10), Write::Unchanged);
        assert_eq!(write(&first, |it| it.generation = Some(2), 10), Write::Now);
        let refused = |it: &mut Observation| it.registration_refused = Some("no".into());
        assert_eq!(write(&first, refused, 10), Write::Later(Duration::from_secs(1)));
        assert_eq!(write(&first, refused, 11), Write::Now);
        let details = |it: &mut Observation| it.observed_min_nodes = Some(3);
        assert_eq!(write(&first, details, 12), Write::Later(Duration::from_secs(3)));
        assert_eq!(write(&first, details, 15), Write::Now);
    }

    #[test]
    fn a_bid_above_the_maximum_is_said_with_the_end_of_its_protection() {
        let said_of = |ceiling_micros, protected_until: Option<i64>| {
            let protected_until = protected_until.map(|second| Time(at(second)));
            let report = BidSlotStatus {
                ceiling_micros: Some(ceiling_micros),
                protected_until,
                ..slot(SlotPhase::Ready)
            };
            let slots = vec![SlotReport {
                name: "gpu-0".into(),
                status: report,
                leaving: false,
                node_ready: true,
                price_micros: None,
                gang_nodes: None,
            }];
            let (holds, reason) = said(&status(&Observation { slots, ..observation(5) }), "MaxBidApplied");
            format!("{holds}:{reason}")
        };
        assert_eq!(said_of(4_500_000, None), "True:Applied");
        assert_eq!(said_of(4_600_000, None), "False:Amending");
        assert_eq!(said_of(4_600_000, Some(5)), "False:Amending");
        assert_eq!(said_of(4_600_000, Some(6)), "False:Protected");
    }
}
