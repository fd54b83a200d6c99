//! Tables of the steps of a gang slot.

use super::*;
use crate::api::{BidNode, BidSlotStatus};
use crate::plan::bidnode::ObservedSlot;
use crate::plan::demand::Demand;
use crate::plan::scope::Scope;
use crate::plan::slot::{AllocationView, BidWithoutStatus, Limits, Notice, PriceToStay, plan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;
use std::time::Duration;

/// The number of nodes of the gang.
const NODES: u32 = 3;
/// The deadline of a notice.
const DEADLINE: i64 = 300;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Returns what the bid has: live nodes, nodes under notice, and claims.
fn has(held: u32, under_notice: u32, claimed: u32) -> GangBid {
    GangBid { open: true, max_nodes: NODES, held, under_notice, claimed }
}

fn member(name: &str, loss: Option<i64>) -> Member {
    let loss = loss.map(|deadline| Loss {
        node: format!("node-{name}"),
        deadline: at(deadline),
        price_to_stay_micros: Some(Some(5_000_000)),
    });
    Member { name: name.to_owned(), leaving: false, machine_ended: false, loss }
}

fn three() -> Vec<Member> {
    ["a", "b", "c"].map(|name| member(name, None)).into()
}

fn status(reason: &str) -> BidSlotStatus {
    BidSlotStatus {
        phase: SlotPhase::Bidding,
        bid: Some(12),
        reason: Some(reason.to_owned()),
        ..BidSlotStatus::default()
    }
}

/// Returns a gang slot at this second.
fn observation(second: i64, status: BidSlotStatus, has: GangBid, members: Vec<Member>) -> Observation {
    let spec = serde_json::json!({
        "instanceType": "h100-8x", "maxBid": 4.5, "minNodes": NODES, "maxNodes": NODES, "gang": true,
    });
    let gang = GangView { nodes: NODES, bid: Some(has), members, without_member: Vec::new(), paused: false };
    Observation {
        now: at(second),
        spec: serde_json::from_value(serde_json::json!({"instanceType": "h100-8x", "gangNodes": NODES}))
            .unwrap(),
        status,
        bidnode: Some(Arc::new(BidNode::new("gpu", serde_json::from_value(spec).unwrap()))),
        unwanted: None,
        bid: BidState::Known(BidView { open: has.open, ceiling_micros: 3_600_000, allocation: None }),
        node: None,
        pricing: None,
        price_to_stay: PriceToStay::NotAsked,
        peers: None,
        pods: Vec::new(),
        bid_without_status: BidWithoutStatus::None,
        other_drains: 0,
        machine_gone: false,
        is_turn_of_unknown: true,
        gang: Some(gang),
        regroups: false,
        limits: Limits { unknown: SignedDuration::from_mins(1), ..Limits::default() },
    }
}

fn gang_of(observation: &mut Observation) -> &mut GangView {
    observation.gang.as_mut().unwrap()
}

fn records(reason: &'static str, deadline: Option<i64>) -> Step {
    Step::Gang(GangStep::Record { reason, deadline: deadline.map(at), message: None })
}

#[track_caller]
fn message_of(step: &Step) -> String {
    let Step::Gang(GangStep::Record { message: Some(message), .. } | GangStep::BeginRegroup { message }) =
        step
    else {
        panic!("it records nothing: {step:?}")
    };
    message.clone()
}

#[test]
fn it_waits_for_all_nodes_and_then_makes_a_member_for_each() {
    let waits = observation(1, status(""), has(0, 0, 0), Vec::new());
    assert_eq!(plan(&waits).step, records(WAITS, None));
    let waits = observation(1, status(WAITS), has(0, 0, 0), Vec::new());
    assert_eq!(plan(&waits).step, Step::Wait(LONG_WAIT / 2));
    let mut won = observation(1, status(WAITS), has(3, 0, 0), Vec::new());
    gang_of(&mut won).without_member = vec![20, 21, 22];
    assert_eq!(plan(&won).step, Step::Gang(GangStep::AddMembers(vec![20, 21, 22])));
    let whole = observation(1, status(COMPLETE), has(3, 0, 0), three());
    assert_eq!(plan(&whole).step, Step::Wait(LONG_WAIT / 2));
    let mut claims = observation(1, status(WAITS), has(1, 0, 2), three());
    gang_of(&mut claims).members.truncate(1);
    let step = plan(&claims).step;
    assert!(
        matches!(step, Step::Gang(GangStep::Record { reason: COMPLETE, .. })),
        "a claim counts: {step:?}"
    );
}

#[test]
fn a_notice_that_is_being_answered_changes_nothing() {
    let noticed = observation(1, status(COMPLETE), has(2, 1, 0), three());
    assert_eq!(plan(&noticed).step, Step::Wait(SOON));
}

#[test]
fn a_node_that_is_let_go_is_replaced_until_its_deadline() {
    let members = vec![member("a", Some(DEADLINE)), member("b", None), member("c", None)];
    let lost = observation(1, status(COMPLETE), has(2, 1, 0), members.clone());
    let step = plan(&lost).step;
    assert!(
        matches!(&step, Step::Gang(GangStep::Record { reason: REPLACING, deadline: Some(it), .. }) if *it == at(DEADLINE))
    );
    assert_eq!(
        message_of(&step),
        "node node-a is taken away at 1970-01-01T00:05:00Z: 5 USD per hour would keep it, and maxBid is 4.5 USD"
    );
    let replacing = || BidSlotStatus {
        deadline: Some(Time(at(DEADLINE))),
        message: Some("node-a is taken away".to_owned()),
        ..status(REPLACING)
    };
    let waits = observation(2, replacing(), has(2, 1, 0), members);
    assert_eq!(plan(&waits).step, Step::Wait(LONG_WAIT / 2));
    // Also after its node was given back before the deadline.
    let empty = observation(2, replacing(), has(2, 0, 0), three());
    assert_eq!(plan(&empty).step, Step::Wait(LONG_WAIT / 2));
    for whole in [has(3, 1, 0), has(2, 0, 1), has(3, 0, 0)] {
        let found = observation(2, replacing(), whole, three());
        let step = plan(&found).step;
        assert!(
            matches!(step, Step::Gang(GangStep::Record { reason: COMPLETE, deadline: None, .. })),
            "{step:?}"
        );
    }
    let over = observation(DEADLINE, replacing(), has(2, 0, 0), three());
    assert_eq!(
        message_of(&plan(&over).step),
        "node-a is taken away; no replacement was found, and 2 of 3 nodes are worth nothing"
    );
}

#[test]
fn at_the_deadline_of_one_node_another_under_notice_still_counts() {
    let members = vec![member("b", Some(DEADLINE + 60)), member("c", None), member("d", None)];
    let replacing = BidSlotStatus { deadline: Some(Time(at(DEADLINE))), ..status(REPLACING) };
    let later = observation(DEADLINE, replacing, has(2, 1, 0), members);
    let step = plan(&later).step;
    assert!(
        matches!(step, Step::Gang(GangStep::Record { reason: REPLACING, deadline: Some(it), .. }) if it == at(DEADLINE + 60))
    );
}

#[test]
fn a_node_that_ends_without_a_notice_is_replaced_at_once_or_the_gang_is_regrouped() {
    let shrunk = GangBid { max_nodes: 2, ..has(2, 0, 0) };
    let mut given_back = observation(1, status(COMPLETE), shrunk, three());
    assert_eq!(plan(&given_back).step, Step::Gang(GangStep::Enlarge));
    gang_of(&mut given_back).paused = true;
    assert_eq!(plan(&given_back).step, Step::Wait(SHORT_WAIT), "machines failed a moment ago");
    let none = observation(1, status(COMPLETE), has(2, 0, 0), three());
    assert!(message_of(&plan(&none).step).starts_with("a node has ended without a notice"));
}

#[test]
fn all_members_are_drained_and_then_the_bid_is_regrouped_once() {
    let regrouping = || BidSlotStatus { regroup_time: Some(Time(at(1))), regroups: 1, ..status(REGROUPING) };
    let mut members = three();
    members[0].leaving = true;
    let step = plan(&observation(1, regrouping(), has(2, 0, 0), members.clone())).step;
    let names = vec!["b".to_owned(), "c".to_owned()];
    let reason = ReleaseReason::Regroup;
    assert_eq!(step, Step::Gang(GangStep::ReleaseMembers { names, reason }));
    for member in &mut members {
        member.leaving = true;
    }
    members[0].machine_ended = true;
    assert_eq!(
        plan(&observation(1, regrouping(), has(2, 0, 0), members.clone())).step,
        Step::Wait(SHORT_WAIT)
    );
    for member in &mut members {
        member.machine_ended = true;
    }
    let shrunk = GangBid { max_nodes: 2, ..has(2, 0, 0) };
    assert_eq!(
        plan(&observation(1, regrouping(), shrunk, members.clone())).step,
        Step::Gang(GangStep::Enlarge),
        "its minimum is never above the number that it wants"
    );
    let step = plan(&observation(1, regrouping(), has(2, 0, 0), members)).step;
    assert_eq!(step, Step::Gang(GangStep::Regroup));
    assert!(step.is_recorded_before());
    // What it wins while the others leave ends with them.
    let mut replaced = observation(1, regrouping(), has(1, 0, 0), Vec::new());
    gang_of(&mut replaced).without_member = vec![30];
    assert_eq!(plan(&replaced).step, Step::Gang(GangStep::Regroup));
}

#[test]
fn a_gang_that_is_not_wanted_buys_nothing_while_its_members_leave() {
    let unwanted = |has: GangBid, members: Vec<Member>| {
        let why = Some(UnwantedReason::Release(ReleaseReason::MaxBid));
        plan(&Observation { unwanted: why, ..observation(1, status(COMPLETE), has, members) }).step
    };
    assert_eq!(unwanted(has(3, 0, 0), three()), Step::Gang(GangStep::EndSearch));
    let closed = |held| GangBid { open: false, ..has(held, 0, 0) };
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    let reason = ReleaseReason::MaxBid;
    assert_eq!(unwanted(closed(3), three()), Step::Gang(GangStep::ReleaseMembers { names, reason }));
    let mut members = three();
    members.truncate(1);
    members[0].leaving = true;
    assert_eq!(unwanted(closed(1), members), Step::Wait(SHORT_WAIT));
    assert_eq!(unwanted(closed(1), Vec::new()), Step::Cancel, "a node that has no member");
    assert_eq!(unwanted(has(0, 0, 0), Vec::new()), Step::Cancel);
    let gone = Step::Move { phase: SlotPhase::Released, reason: "MaxBid" };
    assert_eq!(unwanted(closed(0), Vec::new()), gone);
}

#[test]
fn a_bid_that_was_closed_by_hand_keeps_its_nodes_for_as_long_as_it_has_all() {
    let closed = |held, members| {
        let has = GangBid { open: false, ..has(held, 0, 0) };
        plan(&observation(1, status(COMPLETE), has, members)).step
    };
    assert_eq!(closed(3, three()), Step::Wait(LONG_WAIT / 2));
    let step = closed(2, three());
    assert!(matches!(step, Step::Gang(GangStep::ReleaseMembers { reason: ReleaseReason::Regroup, .. })));
    assert_eq!(closed(0, Vec::new()), Step::Move { phase: SlotPhase::Failed, reason: "BidClosed" });
}

#[test]
fn a_bid_that_the_engine_does_not_know_is_placed_again_after_the_members_are_gone() {
    let lost = |second, members| {
        let status = BidSlotStatus { lost_time: Some(Time(at(0))), ..status(COMPLETE) };
        let known = observation(second, status, has(3, 0, 0), members);
        plan(&Observation { bid: BidState::Unknown, ..known }).step
    };
    assert_eq!(lost(1, three()), Step::Wait(SignedDuration::from_secs(59)));
    assert!(matches!(lost(61, three()), Step::Gang(GangStep::ReleaseMembers { .. })));
    assert_eq!(lost(61, Vec::new()), Step::Move { phase: SlotPhase::Failed, reason: "BidUnknown" });
}

/// Returns a member whose node is ready, with this notice.
fn of_member(status: BidSlotStatus, notice: Option<i64>) -> Observation {
    let notice = notice.map(|deadline| Notice { started: at(0), deadline: at(deadline) });
    let allocation = AllocationView { allocation: 20, ready: true, notice, ended: None };
    let spec = serde_json::json!({"instanceType": "h100-8x", "member": {"bid": 12, "allocation": 20}});
    Observation {
        spec: serde_json::from_value(spec).unwrap(),
        bid: BidState::Known(BidView { open: true, ceiling_micros: 3_600_000, allocation: Some(allocation) }),
        gang: None,
        ..observation(1, status, has(3, 0, 0), Vec::new())
    }
}

#[test]
fn a_member_has_the_bid_of_its_gang_and_never_cancels_it() {
    assert_eq!(plan(&of_member(BidSlotStatus::default(), None)).step, Step::Join);
    let joined = BidSlotStatus { phase: SlotPhase::Bidding, bid: Some(12), ..BidSlotStatus::default() };
    let won = Step::Move { phase: SlotPhase::Awarded, reason: "Allocated" };
    assert_eq!(plan(&of_member(joined, None)).step, won);
    let released = BidSlotStatus {
        phase: SlotPhase::Releasing,
        bid: Some(12),
        allocation: Some(20),
        machine_ended: true,
        ..BidSlotStatus::default()
    };
    assert_eq!(plan(&of_member(released.clone(), None)).step, Step::GiveBack);
    let waits = Observation { regroups: true, ..of_member(released.clone(), None) };
    assert_eq!(plan(&waits).step, Step::Wait(SHORT_WAIT), "its allocation ends with the others");
    let mut ended = of_member(released, None);
    if let BidState::Known(BidView { allocation: Some(allocation), .. }) = &mut ended.bid {
        allocation.ended = Some("REGROUPED".to_owned());
    }
    assert_eq!(plan(&ended).step, Step::End { reason: "REGROUPED".to_owned() });
}

#[test]
fn a_gang_has_one_gang_slot_and_gives_up_a_member_that_is_not_ready_for_long() {
    let slot = |ordinal, is_gang_slot| {
        let phase = if is_gang_slot { SlotPhase::Bidding } else { SlotPhase::Ready };
        let scope = Scope { instance_types: vec!["h100-8x".to_owned()], regions: Vec::new() };
        ObservedSlot {
            view: SlotView::sample(ordinal, phase),
            scope,
            pods: Vec::new(),
            node: None,
            overdue: None,
            is_gang_slot,
        }
    };
    let changes = |slots: Vec<ObservedSlot>, pause| {
        let observed = bidnode::Observation {
            now: Timestamp::UNIX_EPOCH,
            uid: "u".to_owned(),
            scope: slot(0, true).scope,
            gang: true,
            min_nodes: NODES,
            most_nodes: NODES as usize,
            observed_min_nodes: Some(NODES),
            is_new_generation: false,
            disruption: None,
            empty_after: SignedDuration::from_mins(10),
            unhealthy_after: SignedDuration::from_mins(5),
            slots,
            demand: Demand::default(),
            pools: Some(Vec::new()),
            pause,
            registration_refused: false,
            resync: Duration::from_secs(60),
        };
        bidnode::plan(&observed).expect("it depends on no pods").changes
    };
    let second = Duration::from_secs(1);
    assert_eq!(changes(Vec::new(), None).create.len(), 1);
    assert_eq!(changes(Vec::new(), Some(second)), Changes::default(), "machines failed a moment ago");
    assert_eq!(changes(vec![slot(0, true), slot(20, false)], None), Changes::default());
    let mut sick = slot(21, false);
    sick.view.not_ready_for = Some(SignedDuration::from_mins(6));
    let changes = changes(vec![slot(0, true), slot(20, false), sick], None);
    assert_eq!(changes.release, [("gpu-21".to_owned(), ReleaseReason::NotReady)]);
    assert_eq!(changes.create, []);
}
