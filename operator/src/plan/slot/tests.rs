//! Tables of the slot's steps.

use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubebid_strategy::Quote;

const BID: u64 = 7;
const ALLOCATION: u64 = 9;
/// 90 % of the reference price of the markets below.
const CEILING: u64 = 3_600_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn status(phase: SlotPhase) -> BidSlotStatus {
    let held = phase > SlotPhase::Bidding;
    let came = phase >= SlotPhase::Provisioning;
    let ready = phase >= SlotPhase::Ready;
    BidSlotStatus {
        phase,
        attempt: u32::from(phase > SlotPhase::Pending),
        bid: (phase > SlotPhase::Pending).then_some(BID),
        allocation: held.then_some(ALLOCATION),
        node: came.then(|| "gpu-0".to_owned()),
        ready_time: ready.then(|| Time(at(1))),
        ..BidSlotStatus::default()
    }
}

fn bid(allocation: Option<AllocationView>) -> BidState {
    BidState::Known(BidView { open: true, ceiling_micros: CEILING, allocation })
}

fn held(deadline: Option<i64>) -> Option<AllocationView> {
    let notice = deadline.map(|deadline| Notice { started: at(0), deadline: at(deadline) });
    Some(AllocationView { allocation: ALLOCATION, ready: true, notice, ended: None })
}

fn bidnode() -> Arc<BidNode> {
    let spec = serde_json::json!({"instanceType": "h100-8x", "maxBid": 4.5});
    Arc::new(BidNode::new("gpu", serde_json::from_value(spec).unwrap()))
}

fn markets() -> Arc<Markets> {
    let quote = Quote { reference_micros: Some(4_000_000), floor_micros: Some(2_000_000), tick_micros: 100 };
    let open = ["h100-8x/eu-west", "h100-8x/us-east"].map(str::to_owned).to_vec();
    let ceiling_max_micros = 1_000_000_000_000;
    Arc::new(Markets { quote, increment_bps: 500, ceiling_max_micros, open, left_out: 0 })
}

fn pricing(bid: Option<StandingBid>) -> Option<Pricing> {
    Some(Pricing { markets: markets(), bid, others: Vec::new() })
}

fn pod() -> PodView {
    PodView {
        namespace: "default".into(),
        name: "work".into(),
        uid: "work".into(),
        tier: Tier::Ordinary,
        grace: SignedDuration::from_secs(30),
        ending: false,
    }
}

fn node() -> Option<NodeView> {
    Some(NodeView { ready: true, registered: true, leaving: false, ending_since: None })
}

fn observation(status: &BidSlotStatus, bid: BidState, node: Option<NodeView>) -> Observation {
    Observation {
        now: at(100),
        spec: serde_json::from_str(r#"{"instanceType": "h100-8x"}"#).unwrap(),
        status: status.clone(),
        bidnode: Some(bidnode()),
        unwanted: None,
        bid,
        node,
        pricing: pricing(None),
        price_to_stay: PriceToStay::NotAsked,
        peers: None,
        pods: Vec::new(),
        bid_without_status: BidWithoutStatus::None,
        other_drains: 0,
        machine_gone: false,
        gang: None,
        regroups: false,
        is_turn_of_unknown: true,
        limits: Limits { unknown: SignedDuration::from_mins(1), ..Limits::default() },
    }
}

fn next(observation: &Observation) -> Step {
    plan(observation).step
}

#[track_caller]
fn drains(observation: &Observation) {
    let step = next(observation);
    assert!(matches!(step, Step::Drain { .. }), "{step:?}");
}

fn moves(phase: SlotPhase, reason: &'static str) -> Step {
    Step::Move { phase, reason }
}

#[test]
fn the_ceiling_is_written_down_before_the_bid_is_placed() {
    let mut status = status(SlotPhase::Pending);
    assert_eq!(
        next(&observation(&status, BidState::NotListed, None)),
        Step::Begin { ceiling_micros: CEILING, markets: vec!["h100-8x".to_owned()] }
    );
    status.ceiling_micros = Some(CEILING);
    assert_eq!(next(&observation(&status, BidState::NotListed, None)), Step::Place(Placement::New));
}

#[test]
fn without_a_price_it_says_so_and_waits() {
    let mut status = status(SlotPhase::Pending);
    fn unknown(status: &BidSlotStatus) -> Observation {
        Observation { pricing: None, ..observation(status, BidState::NotListed, None) }
    }
    assert_eq!(next(&unknown(&status)), moves(SlotPhase::Pending, "NoPrice"));
    status.reason = Some("NoPrice".into());
    assert_eq!(next(&unknown(&status)), Step::Wait(SHORT_WAIT));
}

#[test]
fn a_bid_that_may_have_been_placed_is_found_before_it_is_given_up() {
    let status = BidSlotStatus { ceiling_micros: Some(1), ..status(SlotPhase::Pending) };
    let unwanted = Observation {
        unwanted: Some(UnwantedReason::Deleted),
        ..observation(&status, BidState::NotListed, None)
    };
    assert_eq!(next(&unwanted), Step::Place(Placement::New));
    let orphan = Observation { bidnode: None, ..unwanted };
    assert_eq!(next(&orphan), Step::Place(Placement::SearchOnly));
    let bid_time = Some(Time(at(80)));
    let old = BidSlotStatus { bid_time, ..status };
    let old = observation(&old, BidState::NotListed, None);
    assert_eq!(next(&old), Step::Place(Placement::SearchFirst));
}

#[test]
fn from_the_allocation_to_a_ready_node() {
    let fresh = Some(AllocationView { allocation: ALLOCATION, ready: false, notice: None, ended: None });
    let won = bid(fresh);
    let mut s = status(SlotPhase::Bidding);
    assert_eq!(next(&observation(&s, won.clone(), None)), moves(SlotPhase::Awarded, "Allocated"));
    s = status(SlotPhase::Awarded);
    assert_eq!(next(&observation(&s, won.clone(), None)), moves(SlotPhase::Provisioning, "MachineOrdered"));
    s = status(SlotPhase::Provisioning);
    assert_eq!(next(&observation(&s, won.clone(), None)), Step::Provision);
    let bare = NodeView { registered: false, ready: false, ..node().unwrap() };
    assert_eq!(next(&observation(&s, won.clone(), Some(bare.clone()))), Step::Register);
    let labelled = NodeView { registered: true, ..bare };
    assert_eq!(
        next(&observation(&s, won.clone(), Some(labelled))),
        moves(SlotPhase::Registered, "NodeNotReady")
    );
    assert_eq!(next(&observation(&s, won, node())), Step::ReportReady);
    assert_eq!(next(&observation(&s, bid(held(None)), node())), moves(SlotPhase::Ready, "NodeReady"));
}

#[test]
fn the_way_to_reach_a_node_that_runs_is_reported_later_if_it_is_due() {
    let mut s = status(SlotPhase::Ready);
    assert!(matches!(next(&observation(&s, bid(held(None)), node())), Step::Wait(_)));
    s.access_due = true;
    assert_eq!(next(&observation(&s, bid(held(None)), node())), Step::ReportAccess);
    assert!(!matches!(next(&observation(&s, bid(held(Some(400))), node())), Step::ReportAccess));
    let poll = |second| access_poll(&s, at(second)).as_secs();
    assert_eq!((poll(1), poll(101), poll(1_000)), (2, 25, 60));
}

#[test]
fn under_notice_it_asks_taints_waits_for_the_others_and_drains() {
    let mut s = status(SlotPhase::Ready);
    let won = bid(held(Some(400)));
    assert_eq!(
        next(&observation(&s, won.clone(), node())),
        Step::AnswerNotice { deadline: at(400), raise_to_micros: None }
    );
    s.phase = SlotPhase::Notice;
    s.reason = Some("Preempted".into());
    s.deadline = Some(Time(at(400)));
    assert_eq!(next(&observation(&s, won.clone(), node())), Step::Taint);
    let tainted = Some(NodeView { leaving: true, ..node().unwrap() });
    let early =
        Observation { peers: Some(PeerState::Untainted), ..observation(&s, won.clone(), tainted.clone()) };
    assert_eq!(next(&early), Step::Wait(SignedDuration::from_millis(500)));
    assert_eq!(next(&observation(&s, won.clone(), tainted.clone())), moves(SlotPhase::Draining, "Preempted"));
    s.phase = SlotPhase::Draining;
    let full = Observation { pods: vec![pod()], ..observation(&s, won.clone(), tainted.clone()) };
    drains(&full);
    assert_eq!(
        next(&observation(&s, won.clone(), tainted.clone())),
        moves(SlotPhase::Releasing, "Preempted")
    );
    s.phase = SlotPhase::Releasing;
    assert_eq!(next(&observation(&s, won.clone(), tainted)), Step::DeleteNode);
    assert_eq!(next(&observation(&s, won.clone(), None)), Step::Deprovision);
    s.machine_ended = true;
    assert_eq!(next(&observation(&s, won, None)), Step::Cancel);
}

#[test]
fn a_notice_taken_back_unties_the_node() {
    let mut s = status(SlotPhase::Notice);
    s.deadline = Some(Time(at(400)));
    let tainted = Some(NodeView { leaving: true, ..node().unwrap() });
    assert_eq!(next(&observation(&s, bid(held(None)), tainted)), Step::Untaint);
    assert_eq!(next(&observation(&s, bid(held(None)), node())), moves(SlotPhase::Ready, "NoticeRescinded"));
}

#[test]
fn when_the_market_has_taken_the_node_its_pods_move_at_once() {
    let over = Some(AllocationView { ended: Some("OUTBID".into()), ..held(None).unwrap() });
    let mut s = status(SlotPhase::Draining);
    assert_eq!(next(&observation(&s, bid(over.clone()), node())), Step::DeleteNode);
    assert_eq!(next(&observation(&s, bid(over.clone()), None)), Step::Deprovision);
    s.machine_ended = true;
    assert_eq!(next(&observation(&s, bid(over.clone()), None)), Step::Cancel);
    let closed = BidState::Known(BidView { open: false, ceiling_micros: CEILING, allocation: over });
    assert_eq!(next(&observation(&s, closed, None)), Step::End { reason: "OUTBID".into() });
}

#[test]
fn a_vanished_node_is_given_back_after_a_while() {
    let mut s = status(SlotPhase::Ready);
    assert_eq!(next(&observation(&s, bid(held(None)), None)), moves(SlotPhase::Releasing, "NodeVanished"));
    s.phase = SlotPhase::Releasing;
    s.missing_time = Some(Time(at(90)));
    assert_eq!(next(&observation(&s, bid(held(None)), None)), Step::Wait(SignedDuration::from_secs(110)));
    let later = Observation { now: at(210), ..observation(&s, bid(held(None)), None) };
    assert_eq!(next(&later), Step::Deprovision);
}

#[test]
fn what_is_not_wanted_is_cancelled_or_drained() {
    fn unwanted(s: &BidSlotStatus, bid: BidState, node: Option<NodeView>) -> Observation {
        let unwanted = Some(UnwantedReason::Release(ReleaseReason::ScaleDown));
        Observation { unwanted, pods: vec![pod()], ..observation(s, bid, node) }
    }
    let s = status(SlotPhase::Bidding);
    assert_eq!(next(&unwanted(&s, bid(None), None)), Step::Cancel);
    let s = status(SlotPhase::Ready);
    assert_eq!(next(&unwanted(&s, bid(held(None)), node())), Step::Taint);
    let mut s = status(SlotPhase::Provisioning);
    assert_eq!(next(&unwanted(&s, bid(held(None)), None)), moves(SlotPhase::Releasing, "ScaleDown"));
    s.phase = SlotPhase::Releasing;
    assert_eq!(next(&unwanted(&s, bid(held(None)), None)), Step::Deprovision);
}

#[test]
fn a_bid_that_waits_is_replaced_if_it_does_not_name_all_markets() {
    let mut s = status(SlotPhase::Bidding);
    let spec: BidSlotSpec = serde_json::from_str(
        r#"{"instanceType": "h100-8x", "region": "eu-west", "instanceTypes": ["h100-8x"]}"#,
    )
    .unwrap();
    let wider =
        |s: &BidSlotStatus, bid, node| Observation { spec: spec.clone(), ..observation(s, bid, node) };
    // An older operator has placed it by the single fields.
    assert_eq!(next(&wider(&s, bid(None), None)), Step::Replace);
    let closed = || BidState::Known(BidView { open: false, ceiling_micros: CEILING, allocation: None });
    assert_eq!(
        next(&wider(&s, closed(), None)),
        Step::Replace,
        "the operator crashed after it had cancelled it"
    );
    s.bid_markets = vec!["h100-8x".to_owned()];
    assert_eq!(next(&wider(&s, bid(None), None)), moves(SlotPhase::Bidding, "BidWaits"));
    let spec = BidSlotSpec { regions: vec!["us-east".into(), "eu-west".into()], ..spec.clone() };
    let two = |s: &BidSlotStatus| Observation { spec: spec.clone(), ..observation(s, bid(None), None) };
    s.bid_markets = vec!["h100-8x/eu-west".to_owned()];
    assert_eq!(next(&two(&s)), Step::Replace);
    let unwanted = Observation { unwanted: Some(UnwantedReason::Deleted), ..two(&s) };
    assert_eq!(next(&unwanted), Step::Cancel);
    // The prices are not known, so no market is known to be missing.
    let unpriced = Observation { pricing: None, ..two(&s) };
    assert_eq!(next(&unpriced), moves(SlotPhase::Bidding, "BidWaits"));
    // A node that is held is not touched.
    let held =
        Observation { spec: spec.clone(), ..observation(&status(SlotPhase::Ready), bid(held(None)), node()) };
    assert!(matches!(next(&held), Step::Wait(_)));
}

#[test]
fn a_bid_that_another_client_closed_is_replaced() {
    let s = status(SlotPhase::Bidding);
    let closed = BidState::Known(BidView { open: false, ceiling_micros: CEILING, allocation: None });
    assert_eq!(next(&observation(&s, closed, None)), moves(SlotPhase::Failed, "BidClosed"));
}

#[test]
fn a_bid_that_the_engine_forgot_leaves_the_pods_time_to_move() {
    let mut s = status(SlotPhase::Ready);
    s.lost_time = Some(Time(at(0)));
    assert_eq!(next(&observation(&s, BidState::Unknown, node())), Step::Taint);
    let tainted = Some(NodeView { leaving: true, ..node().unwrap() });
    assert_eq!(
        next(&observation(&s, BidState::Unknown, tainted.clone())),
        moves(SlotPhase::Draining, "BidUnknown")
    );
    s.phase = SlotPhase::Draining;
    let full = Observation { pods: vec![pod()], ..observation(&s, BidState::Unknown, tainted.clone()) };
    drains(&full);
    assert_eq!(
        next(&observation(&s, BidState::Unknown, tainted.clone())),
        moves(SlotPhase::Releasing, "BidUnknown")
    );
    s.phase = SlotPhase::Releasing;
    assert_eq!(next(&observation(&s, BidState::Unknown, tainted)), Step::DeleteNode);
    assert_eq!(next(&observation(&s, BidState::Unknown, None)), Step::Deprovision);
    s.machine_ended = true;
    assert_eq!(next(&observation(&s, BidState::Unknown, None)), Step::End { reason: "BidUnknown".into() });
}

#[test]
fn nodes_whose_bids_the_engine_does_not_know_go_a_fifth_at_a_time() {
    let key = |number: usize| SlotKey { name: format!("gpu-{number}"), ..SlotKey::default() };
    let is_turn =
        |number, slots: &[UnknownSlot]| is_turn_of_unknown(&key(number), slots, most_unknown(slots.len()));
    let turns = |slots: &[UnknownSlot]| (0..9).filter(|number| is_turn(*number, slots)).count();
    let all: Vec<_> = (0..9).map(|number| UnknownSlot::Waits(key(number))).collect();
    assert_eq!(turns(&all), 1);
    let of_eleven: Vec<_> = all.iter().cloned().chain([UnknownSlot::Known, UnknownSlot::Known]).collect();
    assert_eq!(turns(&of_eleven), 2);
    let one_leaves: Vec<_> = of_eleven.iter().skip(1).cloned().chain([UnknownSlot::Leaves]).collect();
    assert_eq!((turns(&one_leaves), is_turn(1, &one_leaves)), (2, true), "slot 0 is gone from the list");
    let mut s = status(SlotPhase::Ready);
    s.lost_time = Some(Time(at(0)));
    let later = Observation { is_turn_of_unknown: false, ..observation(&s, BidState::Unknown, node()) };
    assert!(matches!(next(&later), Step::Wait(_)));
}

#[test]
fn an_engine_that_does_not_know_a_bid_is_given_time_to_know_it_again() {
    let mut s = status(SlotPhase::Ready);
    assert_eq!(next(&observation(&s, BidState::Unknown, node())), Step::MissBid);
    s.lost_time = Some(Time(at(90)));
    assert_eq!(next(&observation(&s, BidState::Unknown, node())), Step::Wait(SignedDuration::from_secs(50)));
    assert_eq!(next(&observation(&s, bid(held(None)), node())), Step::FindBid);
    // A slot that is not wanted does not wait for the engine.
    let unwanted =
        Observation { unwanted: Some(UnwantedReason::Deleted), ..observation(&s, BidState::Unknown, node()) };
    assert_eq!(next(&unwanted), Step::Taint);
    s = BidSlotStatus { lost_time: Some(Time(at(0))), ..status(SlotPhase::Bidding) };
    assert_eq!(next(&observation(&s, BidState::Unknown, None)), Step::Deprovision);
}

#[test]
fn machines_and_nodes_that_do_not_come_are_given_back() {
    fn after(s: &BidSlotStatus, node: Option<NodeView>, now: i64) -> Observation {
        Observation { now: at(now), ..observation(s, bid(held(None)), node) }
    }
    let waiting = |phase| BidSlotStatus { since: Some(Time(at(100))), ready_time: None, ..status(phase) };
    let s = waiting(SlotPhase::Provisioning);
    assert_eq!(next(&after(&s, None, 999)), Step::Provision);
    assert_eq!(next(&after(&s, None, 1000)), moves(SlotPhase::Releasing, "MachineLate"));
    let mut s = waiting(SlotPhase::Registered);
    s.reason = Some("NodeNotReady".into());
    let starting = Some(NodeView { ready: false, ..node().unwrap() });
    assert_eq!(next(&after(&s, starting.clone(), 999)), Step::Wait(SHORT_WAIT));
    assert_eq!(next(&after(&s, starting, 1000)), moves(SlotPhase::Releasing, "NodeLate"));
}

#[test]
fn pods_that_stay_hold_nothing_up_for_ever() {
    let mut s = status(SlotPhase::Draining);
    s.drain_time = Some(Time(at(100)));
    let tainted = Some(NodeView { leaving: true, ..node().unwrap() });
    let scaled_down = |s, now, bid| Observation {
        now: at(now),
        pods: vec![pod()],
        unwanted: Some(UnwantedReason::Release(ReleaseReason::ScaleDown)),
        ..observation(s, bid, tainted.clone())
    };
    drains(&scaled_down(&s, 999, bid(held(None))));
    assert_eq!(next(&scaled_down(&s, 1000, bid(held(None)))), moves(SlotPhase::Releasing, "ScaleDown"));
    // Under notice until just before the deadline.
    drains(&scaled_down(&s, 397, bid(held(Some(400)))));
    assert_eq!(next(&scaled_down(&s, 398, bid(held(Some(400))))), moves(SlotPhase::Releasing, "ScaleDown"));
}

#[test]
fn a_node_object_that_others_hold_is_not_waited_for_for_ever() {
    let s = status(SlotPhase::Releasing);
    let ending = |since| Some(NodeView { ending_since: Some(at(since)), ..node().unwrap() });
    assert_eq!(next(&observation(&s, bid(held(None)), ending(0))), Step::Wait(SHORT_WAIT));
    let later = Observation { now: at(120), ..observation(&s, bid(held(None)), ending(0)) };
    assert_eq!(next(&later), Step::Deprovision);
}

#[test]
fn a_notice_is_answered_by_the_strategy() {
    let s = status(SlotPhase::Ready);
    let noticed = observation(&s, bid(held(Some(400))), node());
    assert_eq!(noticed.unanswered_notice(), Some(Notice { started: at(0), deadline: at(400) }));
    let answered = |price_to_stay| next(&Observation { price_to_stay, ..noticed.clone() });
    let at_price =
        |micros| answered(PriceToStay::Known { price_micros: Some(micros), markets: Some(markets()) });
    let raise = |raise_to_micros| Step::AnswerNotice { deadline: at(400), raise_to_micros };
    assert_eq!(at_price(3_700_000), raise(Some(3_700_000)));
    assert_eq!(at_price(9_000_000), raise(None));
    assert_eq!(answered(PriceToStay::NoAnswer), raise(None));
    assert_eq!(answered(PriceToStay::Rescinded), Step::Wait(SignedDuration::from_millis(250)));
    let answered = BidSlotStatus { deadline: Some(Time(at(400))), ..s.clone() };
    assert_eq!(observation(&answered, bid(held(Some(400))), node()).unanswered_notice(), None);
    let unwanted = Observation { unwanted: Some(UnwantedReason::Deleted), ..noticed };
    assert_eq!(unwanted.unanswered_notice(), None);
}

#[test]
fn the_drain_waits_for_taints_and_new_bids_and_not_for_long() {
    let mut s = status(SlotPhase::Notice);
    s.reason = Some("Preempted".into());
    s.deadline = Some(Time(at(400)));
    let tainted = Some(NodeView { leaving: true, ..node().unwrap() });
    let step = |peers| next(&Observation { peers, ..observation(&s, bid(held(Some(400))), tainted.clone()) });
    let waits = Step::Wait(SignedDuration::from_millis(500));
    assert_eq!(step(Some(PeerState::Untainted)), waits);
    assert_eq!(step(Some(PeerState::Tainted { bids: 1, wanted: 2 })), waits);
    assert_eq!(
        step(Some(PeerState::Tainted { bids: 2, wanted: 2 })),
        moves(SlotPhase::Draining, "Preempted")
    );
    assert_eq!(step(None), moves(SlotPhase::Draining, "Preempted"));
    let notice = |deadline| Notice { started: at(100), deadline: at(deadline) };
    assert!(notice(140).waits_for_peers(at(110)) && !notice(140).waits_for_peers(at(111)));
    assert!(notice(900).waits_for_peers(at(130)) && !notice(900).waits_for_peers(at(131)));
}

#[test]
fn a_bid_waits_until_others_are_amended() {
    let s = status(SlotPhase::Bidding);
    let low = |waits| StandingBid { ceiling_micros: 3_000_000, waits, protected_until: None };
    let others = |others| {
        let pricing = Pricing { markets: markets(), bid: Some(low(true)), others };
        plan(&Observation { pricing: Some(pricing), ..observation(&s, bid(None), None) })
    };
    let alone = others(Vec::new());
    assert_eq!(alone, Plan { step: Step::Amend { ceiling_micros: CEILING }, reconcile: Vec::new() });
    let second = others(vec![("gpu-1".into(), low(false))]);
    assert_eq!(second.reconcile, ["gpu-1"]);
    assert_eq!(second.step, moves(SlotPhase::Bidding, "BidWaits"));
    let waiting = BidSlotStatus { reason: Some("BidWaits".into()), ..s.clone() };
    let pricing =
        Pricing { markets: markets(), bid: Some(low(true)), others: vec![("gpu-1".into(), low(false))] };
    let again = Observation { pricing: Some(pricing), ..observation(&waiting, bid(None), None) };
    assert_eq!(next(&again), Step::Wait(AMEND_WAIT));
}

#[test]
fn an_ending_pod_is_waited_for_while_its_node_is_ready() {
    let s = status(SlotPhase::Draining);
    let with = |pod: PodView, ready| {
        let node = Some(NodeView { leaving: true, ready, ..node().unwrap() });
        let pods = vec![pod];
        let unwanted = Some(UnwantedReason::Deleted);
        next(&Observation { pods, unwanted, ..observation(&s, bid(held(None)), node) })
    };
    let ending = PodView { ending: true, ..pod() };
    let wait = Step::Drain { removals: Vec::new(), requeue_after: SignedDuration::from_secs(2) };
    assert_eq!(with(ending.clone(), true), wait);
    assert_eq!(with(ending.clone(), false), moves(SlotPhase::Releasing, "Deleted"));
    let daemon = PodView { tier: Tier::Daemon, ..ending };
    assert_eq!(with(daemon, true), moves(SlotPhase::Releasing, "Deleted"));
}

#[test]
fn the_engine_says_why_an_allocation_ended_unless_the_slot_gave_it_back() {
    assert_eq!(end("OUTBID", Some("Preempted")), (SlotPhase::Failed, "OUTBID".into()));
    assert_eq!(end(RELEASED, Some("ScaleDown")), (SlotPhase::Released, "ScaleDown".into()));
    assert_eq!(end(RELEASED, Some("MachineLate")), (SlotPhase::Failed, "MachineLate".into()));
    assert_eq!(end(RELEASED, None), (SlotPhase::Released, RELEASED.into()));
}

#[test]
fn a_slot_whose_status_is_lost_goes_on_with_its_live_bid() {
    let lost = |bid_without_status| {
        let fresh = observation(&status(SlotPhase::Pending), BidState::NotListed, None);
        next(&Observation { bid_without_status, ..fresh })
    };
    assert!(matches!(lost(BidWithoutStatus::None), Step::Begin { .. }));
    assert_eq!(lost(BidWithoutStatus::NotListed), Step::Wait(SHORT_WAIT));
    let (bid, ceiling_micros) = (BID, CEILING);
    assert_eq!(lost(BidWithoutStatus::Bid { bid, ceiling_micros }), Step::Adopt { bid, ceiling_micros });
}
