//! The status of a BidNode, from the status of its slots.

use crate::api::{BidNodeStatus, BidSlotStatus, LABEL_UID, NodePhase, NodeStatus, SlotPhase, usd};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// What the markets of a BidNode have to say to its ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// They were not asked, or did not answer.
    Unknown,
    /// No market of the type is open.
    NoMarket,
    /// No provider offers a node.
    NoUnit,
    /// The ceiling, and what it would have to be at least where it is lower, in micro-dollars.
    Offered { ceiling_micros: u64, below_floor_micros: Option<u64> },
}

/// A slot and what its node costs.
#[derive(Clone, Debug)]
pub struct SlotReport<'a> {
    pub name: &'a str,
    pub status: &'a BidSlotStatus,
    /// It is being given up.
    pub leaving: bool,
    /// Its node is there and ready.
    pub node_ready: bool,
    pub price_micros: Option<u64>,
}

/// What else there is to say.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    pub uid: &'a str,
    pub generation: Option<i64>,
    pub min_nodes: usize,
    pub deleting: bool,
    pub now: Timestamp,
    /// Why the engine cannot be asked; `None` while it can.
    pub auction_fault: Option<String>,
    pub supply: Supply,
    /// The API server refuses the labels or taints of its nodes, with its words.
    pub registration_refused: Option<String>,
    /// What its nodes have cost so far, in micro-dollars; `None` where it is not known.
    pub cost_micros: Option<u64>,
    /// The cost may be written although nothing else has changed.
    pub cost_due: bool,
    /// The `minNodes` that nodes were given up for.
    pub observed_min_nodes: Option<u32>,
    /// A bid is above `maxBid` still.
    pub above_max_bid: bool,
    /// Until when a node is protected whose bid is.
    pub max_bid_waits_until: Option<Timestamp>,
}

/// The mean price of the same nodes moves at most as often as this, and by at least a hundredth.
const PRICE_BEAT: SignedDuration = SignedDuration::from_secs(60);

/// The new status. `priced` is when the mean price was last changed.
pub fn status(
    was: &BidNodeStatus,
    facts: &Facts<'_>,
    slots: &[SlotReport<'_>],
    priced: Option<Timestamp>,
) -> BidNodeStatus {
    let active: Vec<_> =
        slots.iter().filter(|slot| state(slot) == SlotPhase::Ready && !slot.leaving).collect();
    let pending =
        slots.iter().filter(|slot| slot.status.phase <= SlotPhase::Bidding && !slot.leaving).count();
    let counting: Vec<_> = slots.iter().filter(|slot| slot.status.phase.counts() && !slot.leaving).collect();
    let enough = active.len() >= facts.min_nodes;
    let phase = if facts.deleting {
        NodePhase::Releasing
    } else if enough && counting.is_empty() {
        NodePhase::Idle
    } else if enough && !active.is_empty() {
        NodePhase::Running
    } else {
        short_of_nodes(&counting)
    };
    let mut nodes: Vec<_> = slots.iter().filter_map(node).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    // The nodes' own prices move with their mean.
    let mean = mean(active.iter().filter_map(|slot| slot.price_micros));
    let names = |nodes: &[NodeStatus]| -> Vec<String> {
        let ready = nodes.iter().filter(|node| node.state == SlotPhase::Ready);
        ready.map(|node| node.name.clone()).collect()
    };
    let average_price = if names(&nodes) == names(&was.nodes) {
        settled_price(was.average_price, mean, priced, facts.now)
    } else {
        mean
    };
    for node in &mut nodes {
        let before = was.nodes.iter().find(|old| old.name == node.name).and_then(|old| old.price);
        if average_price == was.average_price && before.is_some() {
            node.price = before;
        }
    }
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
        conditions: conditions(was, facts, slots, active.len(), enough),
        observed_generation: facts.generation,
        observed_min_nodes: facts.observed_min_nodes,
        selector: Some(format!("{LABEL_UID}={}", facts.uid)),
    };
    // It grows all the time: that alone is worth a write now and then.
    if status != *was || facts.cost_due || was.cost.is_none() {
        status.cost = facts.cost_micros.map(whole_cents).or(was.cost);
    }
    status
}

/// Dollars of micro-dollars, to the nearest cent.
fn whole_cents(micros: u64) -> f64 {
    usd((micros + 5_000) / 10_000 * 10_000)
}

/// The generation is refused whose labels or taints the API server does not take: as a slot has found, or as was written
/// down before.
pub fn registration_refused(
    was: &BidNodeStatus,
    generation: Option<i64>,
    slots: &[BidSlotStatus],
) -> Option<String> {
    let found =
        slots.iter().find(|slot| slot.refused_generation.is_some() && slot.refused_generation == generation);
    if let Some(slot) = found {
        return slot.message.clone().or(Some("the API server refuses the labels or taints".to_owned()));
    }
    let before = was.conditions.iter().find(|it| it.type_ == NODES_REGISTER && it.status == "False")?;
    (before.observed_generation == generation).then(|| before.message.clone())
}

/// Returns what is waited for first, where nodes are wanted that are not ready.
fn short_of_nodes(slots: &[&SlotReport<'_>]) -> NodePhase {
    let any = |is_so: fn(&SlotReport<'_>) -> bool| slots.iter().any(|slot| is_so(slot));
    if any(|slot| slot.status.phase == SlotPhase::Bidding) {
        NodePhase::Bidding
    } else if any(|slot| (SlotPhase::Awarded..SlotPhase::Ready).contains(&slot.status.phase)) {
        NodePhase::Starting
    } else if any(|slot| slot.status.phase == SlotPhase::Ready && !slot.node_ready) {
        NodePhase::NotReady
    } else {
        NodePhase::Pending
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn node(slot: &SlotReport<'_>) -> Option<NodeStatus> {
    slot.status.allocation?;
    Some(NodeStatus {
        name: slot.status.node.clone().unwrap_or_else(|| slot.name.to_owned()),
        region: slot.status.region().map(str::to_owned),
        price: slot.price_micros.map(usd),
        state: state(slot),
        deadline: slot.status.deadline.clone(),
    })
}

/// A node that was ready and is not is where it was before.
fn state(slot: &SlotReport<'_>) -> SlotPhase {
    let phase = slot.status.phase;
    if phase == SlotPhase::Ready && !slot.node_ready { SlotPhase::Registered } else { phase }
}

fn mean(prices: impl Iterator<Item = u64>) -> Option<f64> {
    let prices: Vec<_> = prices.collect();
    let count = u64::try_from(prices.len()).ok().filter(|count| *count > 0)?;
    Some(usd(prices.iter().sum::<u64>() / count))
}

fn settled_price(
    was: Option<f64>,
    is: Option<f64>,
    priced: Option<Timestamp>,
    now: Timestamp,
) -> Option<f64> {
    let (Some(old), Some(new)) = (was, is) else { return is };
    let early = priced.is_some_and(|priced| now.duration_since(priced) < PRICE_BEAT);
    let small = (new - old).abs() < 0.01 * old;
    if early || small { was } else { is }
}

const NODES_REGISTER: &str = "NodesRegister";

/// The currency of the market.
const CURRENCY: &str = "USD";

const TRUE: &str = "True";
const FALSE: &str = "False";
const UNKNOWN: &str = "Unknown";

/// Type, status, reason and message.
type Said = (&'static str, &'static str, &'static str, String);

fn ceiling_suffices(facts: &Facts<'_>) -> Said {
    let (status, reason, message) = match (&facts.auction_fault, facts.supply) {
        (Some(_), _) => (UNKNOWN, "AuctionUnavailable", "the engine does not answer".to_owned()),
        (None, Supply::Unknown) => (UNKNOWN, "NotAsked", "the prices are not known".to_owned()),
        (None, Supply::NoMarket) => {
            (UNKNOWN, "NoMarket", "NO_MARKET: no market of the type is open, here or anywhere".to_owned())
        }
        (None, Supply::NoUnit) => {
            (UNKNOWN, "NoSupply", "NO_SUPPLY: no provider offers a node in its markets".to_owned())
        }
        (None, Supply::Offered { below_floor_micros: None, .. }) => {
            (TRUE, "AtOrAboveFloor", "the ceiling is not below the lowest reserve".to_owned())
        }
        (None, Supply::Offered { ceiling_micros, below_floor_micros: Some(floor) }) => (
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

fn bids_accepted(slots: &[SlotReport<'_>]) -> Said {
    let refused = |slot: &&SlotReport<'_>| {
        !slot.leaving && slot.status.bid.is_none() && slot.status.reason.as_deref() == Some("BidRefused")
    };
    match slots.iter().find(refused) {
        None => ("BidsAccepted", TRUE, "Accepted", "no bid is refused".to_owned()),
        Some(slot) => {
            let why = slot.status.message.as_deref().unwrap_or_default();
            let message = format!("the bid of slot {} is tried again within a minute: {why}", slot.name);
            ("BidsAccepted", FALSE, "BidRefused", message)
        }
    }
}

fn bids_known(slots: &[SlotReport<'_>]) -> Said {
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

fn nodes_register(facts: &Facts<'_>) -> Said {
    match &facts.registration_refused {
        None => (NODES_REGISTER, TRUE, "Registered", "labels and taints are taken".to_owned()),
        Some(why) => {
            let end = "; no node is bid for until the specification changes";
            let why = format!("{}{end}", why.trim_end_matches(end));
            (NODES_REGISTER, FALSE, "RegistrationRefused", why)
        }
    }
}

fn conditions(
    was: &BidNodeStatus,
    facts: &Facts<'_>,
    slots: &[SlotReport<'_>],
    active: usize,
    enough: bool,
) -> Vec<Condition> {
    let (ready, reason) = if enough { (TRUE, "EnoughNodes") } else { (FALSE, "TooFewNodes") };
    let mut wanted = vec![(
        "Ready",
        ready,
        reason,
        format!("{active} nodes are ready, and at least {} are wanted", facts.min_nodes),
    )];
    wanted.push(match &facts.auction_fault {
        None => ("AuctionAvailable", TRUE, "Answers", "the engine answers".to_owned()),
        Some(fault) => ("AuctionAvailable", FALSE, "AuctionUnavailable", fault.clone()),
    });
    wanted.extend([ceiling_suffices(facts), bids_accepted(slots), bids_known(slots), nodes_register(facts)]);
    let (reason, message) = match (facts.above_max_bid, facts.max_bid_waits_until) {
        (false, _) => ("Applied", "no bid is above maxBid".to_owned()),
        (true, None) => ("Amending", "bids above maxBid are lowered".to_owned()),
        (true, Some(until)) => {
            ("Protected", format!("a node is protected until {until}, and its ceiling is lowered then"))
        }
    };
    wanted.push(("MaxBidApplied", if facts.above_max_bid { FALSE } else { TRUE }, reason, message));
    if facts.deleting {
        wanted.push(match &facts.auction_fault {
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
                last_transition_time: before.map_or(Time(facts.now), |old| old.last_transition_time.clone()),
                observed_generation: facts.generation,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn facts(second: i64) -> Facts<'static> {
        Facts {
            uid: "u",
            generation: Some(1),
            min_nodes: 2,
            deleting: false,
            now: at(second),
            auction_fault: None,
            supply: Supply::Offered { ceiling_micros: 3_000_000, below_floor_micros: None },
            registration_refused: None,
            cost_micros: None,
            cost_due: false,
            observed_min_nodes: Some(2),
            above_max_bid: false,
            max_bid_waits_until: None,
        }
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

    /// In the place of a price, for a node that is not ready.
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
                name: "gpu-0",
                status,
                leaving: false,
                node_ready: *price != NOT_READY,
                price_micros: (*price > 0).then_some(*price),
            })
            .collect();
        status(was, &facts(second), &slots, priced.map(at))
    }

    #[test]
    fn it_counts_what_is_ready_and_what_is_still_bid_for() {
        let slots = [
            (slot(SlotPhase::Ready), 3_000_000),
            (slot(SlotPhase::Bidding), 0),
            (slot(SlotPhase::Notice), 9),
        ];
        let status = report(&slots, 1, &BidNodeStatus::default(), None);
        assert_eq!((status.active_nodes, status.pending_bids, status.phase), (1, 1, NodePhase::Bidding));
        assert_eq!(status.average_price, Some(3.0));
        assert_eq!(status.nodes[0].region.as_deref(), Some("eu-west"));
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
        use NodePhase as Is;
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
        // What has never been ready is no node that ceased to be.
        assert_eq!(phase(&[Ready], true), Is::Pending);
        assert_eq!(phase(&[Ready, Pending], true), Is::Pending);
    }

    #[test]
    fn the_mean_price_moves_seldom_and_not_for_little() {
        let priced = |price| [(slot(SlotPhase::Ready), price), (slot(SlotPhase::Ready), price)];
        let first = report(&priced(3_000_000), 1, &BidNodeStatus::default(), None);
        assert_eq!(first.phase, NodePhase::Running);
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
    fn nobody_is_told_that_a_ceiling_suffices_of_which_that_is_not_known() {
        let said_of = |supply, auction_fault: Option<&str>| {
            let facts = Facts { supply, auction_fault: auction_fault.map(str::to_owned), ..facts(1) };
            let status = status(&BidNodeStatus::default(), &facts, &[], None);
            let (holds, reason) = said(&status, "CeilingSuffices");
            format!("{holds}:{reason}")
        };
        let offered = |below_floor_micros| Supply::Offered { ceiling_micros: 1_000_000, below_floor_micros };
        assert_eq!(said_of(offered(None), None), "True:AtOrAboveFloor");
        assert_eq!(said_of(offered(Some(2_000_000)), None), "False:BelowFloor");
        assert_eq!(said_of(offered(None), Some("away")), "Unknown:AuctionUnavailable");
        assert_eq!(said_of(Supply::Unknown, None), "Unknown:NotAsked");
        assert_eq!(said_of(Supply::NoMarket, None), "Unknown:NoMarket");
        assert_eq!(said_of(Supply::NoUnit, None), "Unknown:NoSupply");
    }

    #[test]
    fn labels_that_were_refused_stay_refused_until_the_specification_changes() {
        let refused = BidSlotStatus {
            refused_generation: Some(1),
            message: Some("no".into()),
            ..slot(SlotPhase::Releasing)
        };
        let none = BidNodeStatus::default();
        assert_eq!(registration_refused(&none, Some(1), &[]), None);
        let found = registration_refused(&none, Some(1), std::slice::from_ref(&refused));
        assert_eq!(found.as_deref(), Some("no"));
        assert_eq!(registration_refused(&none, Some(2), &[refused]), None);
        // The slot is gone: the condition remembers.
        let first = status(&none, &Facts { registration_refused: found, ..facts(1) }, &[], None);
        assert_eq!(said(&first, NODES_REGISTER), ("False".into(), "RegistrationRefused".into()));
        let later = registration_refused(&first, Some(1), &[]);
        let second = status(&first, &Facts { registration_refused: later.clone(), ..facts(9) }, &[], None);
        assert_eq!(second, first);
        assert!(later.is_some());
        assert_eq!(registration_refused(&first, Some(2), &[]), None);
    }

    #[test]
    fn a_cost_that_grows_is_written_with_something_else_or_when_it_is_due() {
        let costs = |was: &BidNodeStatus, cents: u64, cost_due| {
            let facts = Facts { cost_micros: Some(cents * 10_000), cost_due, ..facts(1) };
            status(was, &facts, &[], None)
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
}
