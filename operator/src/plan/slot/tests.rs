//! Tables of the slot's steps.

use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const BID: u64 = 7;
const ALLOCATION: u64 = 9;

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

fn bid(allocation: Option<AllocationView>) -> Auction {
    Auction::Bid(BidView { open: true, allocation })
}

fn held(deadline: Option<i64>) -> Option<AllocationView> {
    Some(AllocationView { allocation: ALLOCATION, ready: true, deadline: deadline.map(at), ended: None })
}

fn node() -> Option<NodeView> {
    Some(NodeView { ready: true, registered: true, leaving: false, ending_since: None })
}

fn observation(status: &BidSlotStatus, auction: Auction, node: Option<NodeView>) -> Observation<'_> {
    Observation {
        now: at(100),
        status,
        unwanted: None,
        auction,
        node,
        ceiling_micros: Some(3_600_000),
        amend_micros: None,
        pods_left: false,
        may_drain: true,
        machine_gone: false,
        limits: Limits::default(),
    }
}

fn moves(phase: SlotPhase, reason: &'static str) -> Step {
    Step::Move { phase, reason }
}

#[test]
fn the_ceiling_is_written_down_before_the_bid_is_placed() {
    let mut status = status(SlotPhase::Pending);
    assert_eq!(
        next(&observation(&status, Auction::Unknown, None)),
        Step::Begin { ceiling_micros: 3_600_000 }
    );
    status.ceiling_micros = Some(3_600_000);
    assert_eq!(next(&observation(&status, Auction::Unknown, None)), Step::Place);
}

#[test]
fn without_a_price_it_says_so_and_waits() {
    let mut status = status(SlotPhase::Pending);
    fn unknown(status: &BidSlotStatus) -> Observation<'_> {
        Observation { ceiling_micros: None, ..observation(status, Auction::Unknown, None) }
    }
    assert_eq!(next(&unknown(&status)), moves(SlotPhase::Pending, "NoPrice"));
    status.reason = Some("NoPrice".into());
    assert_eq!(next(&unknown(&status)), Step::Wait(SOON));
}

#[test]
fn a_bid_that_may_have_been_placed_is_found_before_it_is_given_up() {
    let status = BidSlotStatus { ceiling_micros: Some(1), ..status(SlotPhase::Pending) };
    let unwanted =
        Observation { unwanted: Some(Unwanted::Deleted), ..observation(&status, Auction::Unknown, None) };
    assert_eq!(next(&unwanted), Step::Place);
}

#[test]
fn from_the_allocation_to_a_ready_node() {
    let fresh = Some(AllocationView { allocation: ALLOCATION, ready: false, deadline: None, ended: None });
    let auction = bid(fresh);
    let mut s = status(SlotPhase::Bidding);
    assert_eq!(next(&observation(&s, auction.clone(), None)), moves(SlotPhase::Awarded, "Allocated"));
    s = status(SlotPhase::Awarded);
    assert_eq!(
        next(&observation(&s, auction.clone(), None)),
        moves(SlotPhase::Provisioning, "MachineOrdered")
    );
    s = status(SlotPhase::Provisioning);
    assert_eq!(next(&observation(&s, auction.clone(), None)), Step::Provision);
    let bare = NodeView { registered: false, ready: false, ..node().unwrap() };
    assert_eq!(next(&observation(&s, auction.clone(), Some(bare.clone()))), Step::Register);
    let labelled = NodeView { registered: true, ..bare };
    assert_eq!(
        next(&observation(&s, auction.clone(), Some(labelled))),
        moves(SlotPhase::Registered, "NodeNotReady")
    );
    assert_eq!(next(&observation(&s, auction, node())), Step::ReportReady);
    assert_eq!(next(&observation(&s, bid(held(None)), node())), moves(SlotPhase::Ready, "NodeReady"));
}

#[test]
fn under_notice_it_asks_taints_waits_for_the_others_and_drains() {
    let mut s = status(SlotPhase::Ready);
    let auction = bid(held(Some(400)));
    assert_eq!(next(&observation(&s, auction.clone(), node())), Step::AnswerNotice { deadline: at(400) });
    s.phase = SlotPhase::Notice;
    s.reason = Some("Preempted".into());
    s.deadline = Some(Time(at(400)));
    assert_eq!(next(&observation(&s, auction.clone(), node())), Step::Taint);
    let tainted = Some(NodeView { leaving: true, ..node().unwrap() });
    let early = Observation { may_drain: false, ..observation(&s, auction.clone(), tainted.clone()) };
    assert_eq!(next(&early), Step::Wait(SignedDuration::from_millis(500)));
    assert_eq!(
        next(&observation(&s, auction.clone(), tainted.clone())),
        moves(SlotPhase::Draining, "Preempted")
    );
    s.phase = SlotPhase::Draining;
    let full = Observation { pods_left: true, ..observation(&s, auction.clone(), tainted.clone()) };
    assert_eq!(next(&full), Step::Drain);
    assert_eq!(
        next(&observation(&s, auction.clone(), tainted.clone())),
        moves(SlotPhase::Releasing, "Preempted")
    );
    s.phase = SlotPhase::Releasing;
    assert_eq!(next(&observation(&s, auction.clone(), tainted)), Step::DeleteNode);
    assert_eq!(next(&observation(&s, auction.clone(), None)), Step::Deprovision);
    s.machine_ended = true;
    assert_eq!(next(&observation(&s, auction, None)), Step::Cancel);
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
    let closed = Auction::Bid(BidView { open: false, allocation: over });
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
    fn unwanted(s: &BidSlotStatus, auction: Auction, node: Option<NodeView>) -> Observation<'_> {
        let unwanted = Some(Unwanted::Release(ReleaseReason::ScaleDown));
        Observation { unwanted, pods_left: true, ..observation(s, auction, node) }
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
fn a_bid_that_somebody_else_closed_is_replaced() {
    let s = status(SlotPhase::Bidding);
    let closed = Auction::Bid(BidView { open: false, allocation: None });
    assert_eq!(next(&observation(&s, closed, None)), moves(SlotPhase::Failed, "BidClosed"));
}

#[test]
fn a_bid_that_the_engine_forgot_leaves_the_pods_time_to_move() {
    let mut s = status(SlotPhase::Ready);
    s.lost_time = Some(Time(at(0)));
    assert_eq!(next(&observation(&s, Auction::NoBid, node())), Step::Taint);
    let tainted = Some(NodeView { leaving: true, ..node().unwrap() });
    assert_eq!(
        next(&observation(&s, Auction::NoBid, tainted.clone())),
        moves(SlotPhase::Draining, "BidUnknown")
    );
    s.phase = SlotPhase::Draining;
    let full = Observation { pods_left: true, ..observation(&s, Auction::NoBid, tainted.clone()) };
    assert_eq!(next(&full), Step::Drain);
    assert_eq!(
        next(&observation(&s, Auction::NoBid, tainted.clone())),
        moves(SlotPhase::Releasing, "BidUnknown")
    );
    s.phase = SlotPhase::Releasing;
    assert_eq!(next(&observation(&s, Auction::NoBid, tainted)), Step::DeleteNode);
    assert_eq!(next(&observation(&s, Auction::NoBid, None)), Step::Deprovision);
    s.machine_ended = true;
    assert_eq!(next(&observation(&s, Auction::NoBid, None)), Step::End { reason: "BidUnknown".into() });
}

#[test]
fn an_engine_that_does_not_know_a_bid_is_given_time_to_know_it_again() {
    let mut s = status(SlotPhase::Ready);
    assert_eq!(next(&observation(&s, Auction::NoBid, node())), Step::MissBid);
    s.lost_time = Some(Time(at(90)));
    assert_eq!(next(&observation(&s, Auction::NoBid, node())), Step::Wait(SignedDuration::from_secs(50)));
    assert_eq!(next(&observation(&s, bid(held(None)), node())), Step::FindBid);
    // What nobody wants any more waits for no engine.
    let unwanted =
        Observation { unwanted: Some(Unwanted::Deleted), ..observation(&s, Auction::NoBid, node()) };
    assert_eq!(next(&unwanted), Step::Taint);
    s = BidSlotStatus { lost_time: Some(Time(at(0))), ..status(SlotPhase::Bidding) };
    assert_eq!(next(&observation(&s, Auction::NoBid, None)), Step::Deprovision);
}

#[test]
fn machines_and_nodes_that_do_not_come_are_given_back() {
    fn after<'a>(s: &'a BidSlotStatus, node: Option<NodeView>, now: i64) -> Observation<'a> {
        Observation { now: at(now), ..observation(s, bid(held(None)), node) }
    }
    let waiting = |phase| BidSlotStatus { since: Some(Time(at(100))), ready_time: None, ..status(phase) };
    let s = waiting(SlotPhase::Provisioning);
    assert_eq!(next(&after(&s, None, 999)), Step::Provision);
    assert_eq!(next(&after(&s, None, 1000)), moves(SlotPhase::Releasing, "MachineLate"));
    let mut s = waiting(SlotPhase::Registered);
    s.reason = Some("NodeNotReady".into());
    let starting = Some(NodeView { ready: false, ..node().unwrap() });
    assert_eq!(next(&after(&s, starting.clone(), 999)), Step::Wait(SOON));
    assert_eq!(next(&after(&s, starting, 1000)), moves(SlotPhase::Releasing, "NodeLate"));
}

#[test]
fn pods_that_stay_hold_nothing_up_for_ever() {
    let mut s = status(SlotPhase::Draining);
    s.drain_time = Some(Time(at(100)));
    let tainted = Some(NodeView { leaving: true, ..node().unwrap() });
    let scaled_down = |s, now, auction| Observation {
        now: at(now),
        pods_left: true,
        unwanted: Some(Unwanted::Release(ReleaseReason::ScaleDown)),
        ..observation(s, auction, tainted.clone())
    };
    assert_eq!(next(&scaled_down(&s, 999, bid(held(None)))), Step::Drain);
    assert_eq!(next(&scaled_down(&s, 1000, bid(held(None)))), moves(SlotPhase::Releasing, "ScaleDown"));
    // Under notice until just before the deadline.
    assert_eq!(next(&scaled_down(&s, 397, bid(held(Some(400))))), Step::Drain);
    assert_eq!(next(&scaled_down(&s, 398, bid(held(Some(400))))), moves(SlotPhase::Releasing, "ScaleDown"));
}

#[test]
fn a_node_object_that_others_hold_is_not_waited_for_for_ever() {
    let s = status(SlotPhase::Releasing);
    let ending = |since| Some(NodeView { ending_since: Some(at(since)), ..node().unwrap() });
    assert_eq!(next(&observation(&s, bid(held(None)), ending(0))), Step::Wait(SOON));
    let later = Observation { now: at(120), ..observation(&s, bid(held(None)), ending(0)) };
    assert_eq!(next(&later), Step::Deprovision);
}
