//! Limits of accounts, and a full intake. None of them uses up a key.

use crate::world::{World, assert_refused, bid};
use futures_util::FutureExt;
use kubebid_engine::NotDone;
use kubebid_engine::api::ApiOptions;
use kubebid_proto::v1;
use tonic::Code;
use v1::place_bids_response::result::Outcome;
use v1::token::Role;

fn keyed(key: &str, ceiling: u64, max_nodes: u32) -> v1::PlaceBidRequest {
    v1::PlaceBidRequest { client_key: key.to_owned(), max_nodes, ..bid(ceiling) }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_bids_nodes_and_ceilings_have_limits() {
    let world = World::start().await;
    let limits = v1::AccountLimits {
        open_bids: Some(2),
        nodes_wanted: Some(10),
        ceiling_micros: Some(5_000_000),
        requests_per_second: None,
    };
    let t1 = world.limited("t1", &[Role::Tenant], limits).await;
    let limit = |answer, name: &str| {
        let refusal = assert_refused(answer, Code::ResourceExhausted, "LIMIT");
        assert_eq!((refusal.limit.as_deref(), refusal.seq), (Some(name), None), "{refusal:?}");
    };
    limit(t1.place(keyed("dear", 5_000_100, 1)).await, "ceiling_micros");
    let first = t1.place(keyed("a", 100, 4)).await.unwrap();
    limit(t1.place(keyed("b", 100, 7)).await, "nodes_wanted");
    assert_refused(t1.place(keyed("c", 100, 2000)).await, Code::InvalidArgument, "TOO_MANY_NODES");
    t1.place(keyed("b", 100, 5)).await.unwrap();
    limit(t1.place(keyed("d", 100, 1)).await, "open_bids");
    let again = t1.place(keyed("a", 100, 4)).await.unwrap();
    assert_eq!((again.bid, again.repeated), (first.bid, true), "a repeat asks for nothing more");
    let amend = |ceiling_micros, max_nodes| v1::AmendBidRequest {
        client_key: String::new(),
        bid: first.bid,
        ceiling_micros,
        max_nodes,
    };
    t1.bids().amend_bid(amend(None, Some(5))).await.unwrap();
    for (request, name) in
        [(amend(None, Some(6)), "nodes_wanted"), (amend(Some(5_000_100), None), "ceiling_micros")]
    {
        let refusal = assert_refused(t1.bids().amend_bid(request).await, Code::ResourceExhausted, "LIMIT");
        assert_eq!(refusal.limit.as_deref(), Some(name));
    }
    t1.bids().amend_bid(amend(None, Some(3))).await.unwrap();

    let cancel = v1::CancelBidRequest { client_key: String::new(), bid: first.bid, mode: 1 };
    let seq = t1.bids().cancel_bid(cancel).await.unwrap().into_inner().seq;
    t1.bid(first.bid, seq).await;
    let placed = t1.place(keyed("d", 100, 1)).await.unwrap();
    assert!(!placed.repeated, "the refusals used up no key");
    world.limit("t1", v1::AccountLimits::default()).await;
    t1.place(keyed("dear", 5_000_100, 100)).await.unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_take_no_more_than_one_after_the_other() {
    let world = World::start().await;
    let limits = v1::AccountLimits { open_bids: Some(10), ..v1::AccountLimits::default() };
    let t1 = world.limited("t1", &[Role::Tenant], limits).await;
    let frame = v1::PlaceBidsRequest { bids: vec![bid(100); 50] };
    let frames = tokio_stream::iter([frame.clone(), frame]);
    let mut answers = t1.bids().place_bids(frames).await.unwrap().into_inner();
    let mut placed = 0;
    while let Some(answer) = answers.message().await.unwrap() {
        for result in answer.results {
            match result.outcome.unwrap() {
                Outcome::Placed(_) => placed += 1,
                Outcome::Refused(refusal) => {
                    assert_eq!((&refusal.reason[..], refusal.seq), ("LIMIT", None));
                }
            }
        }
    }
    assert_eq!(placed, 10);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_requests_a_second_are_told_when_to_come_again() {
    let world = World::start().await;
    let limits = v1::AccountLimits { requests_per_second: Some(3), ..v1::AccountLimits::default() };
    let t1 = world.limited("t1", &[Role::Tenant], limits).await;
    let frame = v1::PlaceBidsRequest { bids: (0..10).map(|n| keyed(&n.to_string(), 100, 1)).collect() };
    let mut answers = t1.bids().place_bids(tokio_stream::iter([frame])).await.unwrap().into_inner();
    let results = answers.message().await.unwrap().unwrap().results;
    let refused = results.iter().filter_map(|result| match result.outcome.as_ref().unwrap() {
        Outcome::Refused(refusal) => Some(refusal),
        Outcome::Placed(_) => None,
    });
    let refused: Vec<_> = refused.collect();
    assert!(refused.len() >= 7, "{refused:?}");
    for refusal in refused {
        assert_eq!((&refusal.reason[..], refusal.code), ("LIMIT", Code::ResourceExhausted as u32));
        assert!(refusal.retry_after_us.is_some_and(|wait| wait > 0));
    }
    let refusal = assert_refused(t1.place(bid(100)).await, Code::ResourceExhausted, "LIMIT");
    assert_eq!((refusal.limit.as_deref(), refusal.retries), (Some("requests_per_second"), true));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_request_counts_against_the_rate() {
    let world = World::start().await;
    let limits = v1::AccountLimits { requests_per_second: Some(3), ..v1::AccountLimits::default() };
    let t1 = world.limited("t1", &[Role::Tenant], limits).await;
    let mut forbidden = 0;
    let limited = loop {
        let answer = t1.admin().list_accounts(v1::ListAccountsRequest::default()).await.unwrap_err();
        match answer.code() {
            Code::PermissionDenied => forbidden += 1,
            _ => break answer,
        }
    };
    assert!(forbidden >= 3, "a second's worth is to be had at once");
    let refusal = assert_refused(Err::<(), _>(limited), Code::ResourceExhausted, "LIMIT");
    assert_eq!(refusal.limit.as_deref(), Some("requests_per_second"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_intake_is_busy_and_the_key_stays_free() {
    let world = World::with(ApiOptions::default(), 4).await;
    let t1 = world.tenant("t1").await;
    let held = world.hold_the_exchange().await;
    let questions: Vec<_> = (0..4)
        .map(|_| {
            let engine = world.engine.clone();
            tokio::spawn(async move { engine.ask(|_| ()).await })
        })
        .collect();
    // As soon as they are all in the intake.
    while world.engine.ask(|_| ()).now_or_never() != Some(Err(NotDone::Full)) {
        tokio::task::yield_now().await;
    }
    let refusal = assert_refused(t1.place(keyed("busy", 100, 1)).await, Code::ResourceExhausted, "BUSY");
    assert!(refusal.retries && refusal.seq.is_none());
    let frame = v1::PlaceBidsRequest { bids: vec![keyed("busy", 100, 1); 3] };
    let mut answers = t1.bids().place_bids(tokio_stream::iter([frame])).await.unwrap().into_inner();
    for result in answers.message().await.unwrap().unwrap().results {
        let Outcome::Refused(refusal) = result.outcome.unwrap() else { panic!("the exchange is held") };
        assert_eq!((&refusal.reason[..], refusal.seq), ("BUSY", None));
        assert!(refusal.retry_after_us.is_some());
    }
    drop(held);
    for question in questions {
        let _ = question.await;
    }
    // What is answered was taken out of the intake, and all before it.
    while world.engine.ask(|_| ()).await == Err(NotDone::Full) {
        tokio::task::yield_now().await;
    }
    assert!(!t1.place(keyed("busy", 100, 1)).await.unwrap().repeated);
    world.stop().await;
}
