//! Limits of accounts, and a full intake. None of them uses up a key.

use crate::world::{World, assert_refused, bid};
use futures_util::FutureExt;
use kubebid_core::Command;
use kubebid_engine::api::ApiOptions;
use kubebid_engine::{Submission, SubmitError};
use kubebid_proto::v1;
use std::time::{Duration, Instant};
use tonic::Code;
use v1::cancel_bid_request::Mode;
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
        ..v1::AccountLimits::default()
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
async fn concurrent_requests_get_no_more_than_sequential_ones() {
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
async fn too_many_requests_a_second_are_refused_with_the_time_to_retry() {
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
async fn a_flood_of_refused_requests_is_answered_at_a_bounded_rate() {
    let world = World::start().await;
    let limits = v1::AccountLimits { requests_per_second: Some(1), ..v1::AccountLimits::default() };
    let t1 = world.limited("t1", &[Role::Tenant], limits).await;
    let began = Instant::now();
    let flood = (0..750).map(|_| t1.place(bid(100)));
    let answers = futures_util::future::join_all(flood).await;
    let refused = answers.into_iter().filter(|answer| answer.is_err()).count();
    assert!(refused >= 700, "{refused}");
    // 500 are answered at once, and 500 more per second.
    assert!(began.elapsed() >= Duration::from_millis(350), "{:?}", began.elapsed());
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
        if answer.code() != Code::PermissionDenied {
            break answer;
        }
        forbidden += 1;
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
    let advance = || Submission::new(None, Command::AdvanceTime);
    let commands: Vec<_> = (0..4)
        .map(|_| {
            let engine = world.engine.clone();
            tokio::spawn(async move { engine.submit(advance(), |_| ()).await })
        })
        .collect();
    // Waits until all of them are in the intake.
    while world.engine.submit(advance(), |_| ()).now_or_never() != Some(Err(SubmitError::Full)) {
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
    for command in commands {
        let _ = command.await;
    }
    // An answered command was taken out of the intake, and so were all before it.
    while world.engine.submit(advance(), |_| ()).await == Err(SubmitError::Full) {
        tokio::task::yield_now().await;
    }
    assert!(!t1.place(keyed("busy", 100, 1)).await.unwrap().repeated);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_limited_to_ten_nodes_does_not_hold_forty_by_cancelling_with_keep() {
    let world = World::start().await;
    let limits = v1::AccountLimits { nodes_wanted: Some(10), ..v1::AccountLimits::default() };
    let (t1, p1) = (world.limited("t1", &[Role::Tenant], limits).await, world.provider("p1").await);
    p1.offer(40, 100).await;
    let placed = t1.place(keyed("", 1_000, 10)).await.unwrap();
    let cancel = |mode| v1::CancelBidRequest { client_key: String::new(), bid: placed.bid, mode };
    t1.bids().cancel_bid(cancel(Mode::Keep.into())).await.unwrap();
    let refusal = assert_refused(t1.place(keyed("", 1_000, 1)).await, Code::ResourceExhausted, "LIMIT");
    assert_eq!(refusal.limit.as_deref(), Some("nodes_wanted"), "ten nodes are held");
    let seq = t1.bids().cancel_bid(cancel(Mode::Release.into())).await.unwrap().into_inner().seq;
    t1.bid(placed.bid, seq).await;
    t1.place(keyed("", 1_000, 10)).await.unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_offer_does_not_make_a_hundred_thousand_events() {
    let world = World::start().await;
    let p1 = world.provider("p1").await;
    let limited = |answer, name: &str| {
        let refusal = assert_refused(answer, Code::ResourceExhausted, "LIMIT");
        assert_eq!((refusal.limit.as_deref(), refusal.seq), (Some(name), None), "{refusal:?}");
    };
    limited(p1.put(100_000, 100).await, "units_per_command");
    assert_refused(p1.put(100_001, 100).await, Code::InvalidArgument, "BAD_CAPACITY");
    let limits = v1::AccountLimits {
        requests_per_second: Some(1_000_000),
        units_offered: Some(30),
        units_per_command: Some(20),
        ..v1::AccountLimits::default()
    };
    world.limit("p1", limits).await;
    limited(p1.put(21, 100).await, "units_per_command");
    p1.put(20, 100).await.unwrap();
    limited(p1.put(31, 100).await, "units_offered");
    p1.put(30, 100).await.unwrap();
    limited(p1.put(9, 100).await, "units_per_command");
    p1.put(10, 100).await.unwrap();
    p1.put(0, 100).await.unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_counts_as_the_units_that_it_changes() {
    let world = World::start().await;
    let limits = v1::AccountLimits { commands_per_day: Some(100), ..v1::AccountLimits::default() };
    let p1 = world.limited("p1", &[Role::Provider], limits).await;
    p1.put(60, 100).await.unwrap();
    p1.put(0, 100).await.unwrap();
    let refusal = assert_refused(p1.put(1, 100).await, Code::ResourceExhausted, "LIMIT");
    assert_eq!(refusal.limit.as_deref(), Some("commands_per_day"));
    assert!(refusal.retries, "with the time until there is one more");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_commands_fill_the_journal_at_their_own_rate_only() {
    let world = World::start().await;
    let limits = v1::AccountLimits { refusals_per_second: Some(1), ..v1::AccountLimits::default() };
    let t1 = world.limited("t1", &[Role::Tenant], limits).await;
    let before = world.seq().await;
    let wrong = v1::PlaceBidsRequest { bids: vec![bid(101); 10] };
    let (mut refused, mut limited) = (0, 0);
    for _ in 0..50 {
        let frame = tokio_stream::iter([wrong.clone()]);
        let mut answers = t1.bids().place_bids(frame).await.unwrap().into_inner();
        for result in answers.message().await.unwrap().unwrap().results {
            let Outcome::Refused(refusal) = result.outcome.unwrap() else { panic!("101 is no tick") };
            match &refusal.reason[..] {
                "NOT_A_TICK" => refused += 1,
                "LIMIT" => {
                    assert!(refusal.message.contains("the market refused"), "{refusal:?}");
                    assert!(refusal.seq.is_none() && refusal.retry_after_us.is_some());
                    limited += 1;
                }
                other => panic!("{other}"),
            }
        }
    }
    assert_eq!(refused + limited, 500);
    assert!(limited > 0, "{refused} refused commands are journaled");
    assert_eq!(world.seq().await, before + refused);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_keys_and_labels_grow_with_the_commands_of_a_day_only() {
    let world = World::start().await;
    let limits = v1::AccountLimits { commands_per_day: Some(10), ..v1::AccountLimits::default() };
    let t1 = world.limited("t1", &[Role::Tenant], limits).await;
    let labels = [("k".to_owned(), "v".repeat(255)), ("l".to_owned(), "v".repeat(255))];
    let labelled = v1::PlaceBidRequest { labels: labels.into(), ..keyed("labelled", 100, 1) };
    t1.place(labelled.clone()).await.unwrap();
    let bids = (0..9).map(|n| keyed(&n.to_string(), 100, 1)).collect();
    let frame = v1::PlaceBidsRequest { bids };
    let mut answers = t1.bids().place_bids(tokio_stream::iter([frame])).await.unwrap().into_inner();
    let results = answers.message().await.unwrap().unwrap().results;
    let placed = results.iter().take_while(|result| matches!(result.outcome, Some(Outcome::Placed(_))));
    assert_eq!(placed.count(), 7, "the labels count as two commands more");
    let refusal = assert_refused(t1.place(labelled).await, Code::ResourceExhausted, "LIMIT");
    assert_eq!(refusal.limit.as_deref(), Some("commands_per_day"), "a repeat is journaled too");
    world.limit("t1", v1::AccountLimits::default()).await;
    t1.place(keyed("8", 100, 1)).await.unwrap();
    world.stop().await;
}
