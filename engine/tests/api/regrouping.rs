//! Bids that are regrouped, and ceilings that are locked after a raise under notice.

use crate::world::{World, assert_refused, bid};
use kubebid_proto::v1;
use tonic::Code;
use v1::allocation::EndReason;
use v1::bid::State;
use v1::cancel_bid_request::Mode;
use v1::charge::Reason;

const HOUR: u64 = 3_600_000_000;

fn cancel(bid: u64, mode: Mode) -> v1::CancelBidRequest {
    v1::CancelBidRequest { bid, mode: mode.into(), ..v1::CancelBidRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_regrouped_bid_gives_back_its_nodes_and_waits_for_its_minimum_again() {
    let world = World::start().await;
    let (t1, p1) = (world.tenant("t1").await, world.provider("p1").await);
    p1.offer(3, 1_000_000).await;
    let gang = v1::PlaceBidRequest { min_nodes: Some(3), max_nodes: 3, ..bid(2_000_000) };
    let placed = t1.place(gang).await.unwrap();
    for allocation in 1..=3 {
        let ready = v1::ReportReadyRequest { allocation, ..v1::ReportReadyRequest::default() };
        t1.allocations().report_ready(ready).await.unwrap();
    }
    p1.offer(2, 1_000_000).await;
    let before = t1.bid(placed.bid, 0).await;
    let seq = t1.bids().cancel_bid(cancel(placed.bid, Mode::Regroup)).await.unwrap().into_inner().seq;
    let after = t1.bid(placed.bid, seq).await;
    assert_eq!((after.state(), after.held, after.under_notice, after.unmet), (State::Open, 0, 0, 3));
    assert_eq!((after.bid_seq, after.max_nodes), (before.bid_seq, 3));

    let get = v1::GetAllocationRequest { allocation: 1, min_seq: seq };
    let node = t1.allocations().get_allocation(get).await.unwrap().into_inner().allocation.unwrap();
    assert_eq!(node.end_reason(), EndReason::Regrouped);
    p1.offer(3, 1_000_000).await;
    let again = p1.offer(3, 1_000_000).await;
    assert_eq!(t1.bid(placed.bid, again).await.held, 3);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bid_without_a_minimum_and_a_closed_one_are_not_regrouped() {
    let world = World::start().await;
    let (t1, t2) = (world.tenant("t1").await, world.tenant("t2").await);
    let plain = t1.place(v1::PlaceBidRequest { max_nodes: 3, ..bid(2_000_000) }).await.unwrap().bid;
    let refused = t1.bids().cancel_bid(cancel(plain, Mode::Regroup)).await;
    assert!(
        refused.as_ref().is_err_and(|status| status.message().contains("a minimum above 1")),
        "{refused:?}"
    );
    assert_refused(refused, Code::FailedPrecondition, "NOT_A_GANG");
    let gang = v1::PlaceBidRequest { min_nodes: Some(2), max_nodes: 2, ..bid(2_000_000) };
    let gang = t1.place(gang).await.unwrap().bid;
    assert_refused(t2.bids().cancel_bid(cancel(gang, Mode::Regroup)).await, Code::NotFound, "UNKNOWN_BID");
    t1.bids().cancel_bid(cancel(gang, Mode::Release)).await.unwrap();
    let closed = t1.bids().cancel_bid(cancel(gang, Mode::Regroup)).await;
    assert_refused(closed, Code::FailedPrecondition, "CLOSED");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_regrouped_node_is_charged_like_a_released_one() {
    let world = World::start().await;
    let (t1, p1) = (world.tenant("t1").await, world.provider("p1").await);
    p1.offer(2, 1_000_000).await;
    let gang = v1::PlaceBidRequest { min_nodes: Some(2), max_nodes: 2, ..bid(2_000_000) };
    let placed = t1.place(gang).await.unwrap();
    p1.offer(1, 1_000_000).await;
    let seq = t1.bids().cancel_bid(cancel(placed.bid, Mode::Regroup)).await.unwrap().into_inner().seq;
    let list = v1::ListChargesRequest { min_seq: seq, ..v1::ListChargesRequest::default() };
    let mut billing = v1::billing_service_client::BillingServiceClient::new(t1.called());
    let charges = billing.list_charges(list).await.unwrap().into_inner().charges;
    // The node without a notice costs the minimum charge, although it was never ready.
    let seen: Vec<_> =
        charges.iter().map(|charge| (charge.allocation(), charge.reason(), charge.debit_micros)).collect();
    assert_eq!(seen, [(1, Reason::Regrouped, 83_333)]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ceiling_that_was_raised_under_notice_is_locked_for_the_minimum_runtime() {
    let world = World::start().await;
    let (t1, t2, p1) = (world.tenant("t1").await, world.tenant("t2").await, world.provider("p1").await);
    p1.offer(1, 1_000_000).await;
    let placed = t1.place(bid(2_000_000)).await.unwrap();
    let ready = v1::ReportReadyRequest { allocation: 1, ..v1::ReportReadyRequest::default() };
    t1.allocations().report_ready(ready).await.unwrap();
    world.advance(HOUR).await;
    t2.place(bid(3_000_000)).await.unwrap();
    let amend = async |ceiling_micros| {
        let amend = v1::AmendBidRequest {
            bid: placed.bid,
            ceiling_micros: Some(ceiling_micros),
            ..v1::AmendBidRequest::default()
        };
        t1.bids().amend_bid(amend).await.map(|answer| answer.into_inner().seq)
    };
    let seq = amend(4_000_000).await.unwrap();
    let until = HOUR + 900_000_000;
    assert_eq!(t1.bid(placed.bid, seq).await.ceiling_locked_until_us, Some(until));
    let refused = amend(3_000_000).await;
    let words = format!("not lowered from 4000000 before the time {until}");
    assert!(refused.as_ref().is_err_and(|status| status.message().contains(&words)), "{refused:?}");
    assert_refused(refused, Code::FailedPrecondition, "PROTECTED");
    amend(5_000_000).await.expect("it may be raised");
    world.advance(until).await;
    assert_eq!(t1.bid(placed.bid, 0).await.ceiling_locked_until_us, None);
    amend(3_000_000).await.expect("the lock is over");
    world.stop().await;
}
