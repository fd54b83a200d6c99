//! Tables of the status of a BidNode.

use super::*;
use crate::api::BidStrategy;
use crate::plan::gang::{COMPLETE, REGROUPING, REPLACING, WAITS};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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
        journal_difference: None,
        unused_nodes: None,
        invalid_annotation: None,
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
    let slots =
        [(slot(SlotPhase::Ready), 3_000_000), (slot(SlotPhase::Bidding), 0), (slot(SlotPhase::Notice), 9)];
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
        let report =
            BidSlotStatus { ceiling_micros: Some(ceiling_micros), protected_until, ..slot(SlotPhase::Ready) };
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
