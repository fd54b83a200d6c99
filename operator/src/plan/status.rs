//! What a BidNode says of itself, from what its slots say.

use crate::api::{BidNodeStatus, BidSlotStatus, LABEL_UID, NodePhase, NodeStatus, SlotPhase, usd};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

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
    /// What a ceiling would have to be at least, in micro-dollars, where ours is lower.
    pub below_floor_micros: Option<(u64, u64)>,
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
    let counting: Vec<_> = slots
        .iter()
        .filter(|slot| slot.status.phase.counts() && !slot.leaving)
        .map(|slot| slot.status.phase)
        .collect();
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
    BidNodeStatus {
        phase,
        active_nodes: count(active.len()),
        pending_bids: count(pending),
        average_price,
        last_bid_time: slots
            .iter()
            .filter_map(|slot| slot.status.bid_time.clone())
            .max()
            .or(was.last_bid_time.clone()),
        nodes,
        conditions: conditions(was, facts, active.len(), enough),
        observed_generation: facts.generation,
        selector: Some(format!("{LABEL_UID}={}", facts.uid)),
    }
}

/// What is waited for first, where nodes are wanted that are not ready.
fn short_of_nodes(slots: &[SlotPhase]) -> NodePhase {
    let comes = |phase: &SlotPhase| *phase > SlotPhase::Bidding && *phase < SlotPhase::Ready;
    if slots.contains(&SlotPhase::Bidding) {
        NodePhase::Bidding
    } else if slots.iter().any(comes) {
        NodePhase::Starting
    } else if slots.contains(&SlotPhase::Ready) {
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

fn conditions(was: &BidNodeStatus, facts: &Facts<'_>, active: usize, enough: bool) -> Vec<Condition> {
    let (ready, reason) = if enough { (true, "EnoughNodes") } else { (false, "TooFewNodes") };
    let mut wanted = vec![(
        "Ready",
        ready,
        reason,
        format!("{active} nodes are ready, and at least {} are wanted", facts.min_nodes),
    )];
    wanted.push(match &facts.auction_fault {
        None => ("AuctionAvailable", true, "Answers", "the engine answers".to_owned()),
        Some(fault) => ("AuctionAvailable", false, "AuctionUnavailable", fault.clone()),
    });
    wanted.push(match facts.below_floor_micros {
        None => (
            "CeilingSuffices",
            true,
            "AtOrAboveFloor",
            "the ceiling is not below the lowest reserve".to_owned(),
        ),
        Some((ceiling, floor)) => (
            "CeilingSuffices",
            false,
            "BelowFloor",
            format!(
                "the ceiling of {} USD is below the lowest reserve: {} USD or more would win",
                usd(ceiling),
                usd(floor)
            ),
        ),
    });
    let (reason, message) = match (facts.above_max_bid, facts.max_bid_waits_until) {
        (false, _) => ("Applied", "no bid is above maxBid".to_owned()),
        (true, None) => ("Amending", "bids above maxBid are lowered".to_owned()),
        (true, Some(until)) => {
            ("Protected", format!("a node is protected until {until}, and its ceiling is lowered then"))
        }
    };
    wanted.push(("MaxBidApplied", !facts.above_max_bid, reason, message));
    if facts.deleting {
        wanted.push(match &facts.auction_fault {
            None => ("Releasing", true, "Releasing", "bids are cancelled and nodes given back".to_owned()),
            Some(fault) => ("Releasing", false, "AuctionUnavailable", fault.clone()),
        });
    }
    wanted
        .into_iter()
        .map(|(type_, holds, reason, message)| {
            let status = if holds { "True" } else { "False" };
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
            below_floor_micros: None,
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

    #[test]
    fn conditions_keep_the_time_of_their_last_change() {
        let first = report(&[(slot(SlotPhase::Bidding), 0)], 1, &BidNodeStatus::default(), None);
        let second = report(&[(slot(SlotPhase::Bidding), 0)], 50, &first, None);
        assert_eq!(second, first);
    }
}
