//! PlaceBid, PlaceBids, AmendBid, CancelBid, QuoteBid, and reading bids back.

use crate::world::{MARKET, World, assert_refused, bid};
use kubebid_proto::v1;
use std::collections::BTreeMap;
use tonic::Code;
use v1::bid::{State, UnfilledReason};
use v1::place_bid_request::TimeInForce;
use v1::place_bids_response::result::Outcome;
use v1::token::Role;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn keyed(key: &str, bid: v1::PlaceBidRequest) -> v1::PlaceBidRequest {
    v1::PlaceBidRequest { client_key: key.to_owned(), ..bid }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bid_is_placed_and_read_back() {
    let world = World::start().await;
    let (t1, p1) = (world.tenant("t1").await, world.provider("p1").await);
    let request = v1::PlaceBidRequest {
        max_nodes: 3,
        time_in_force: TimeInForce::Gtt.into(),
        expire_at_us: Some(7_000_000),
        labels: labels(&[("team", "vision")]),
        ..keyed("k1", bid(2_000_000))
    };
    let placed = t1.place(request).await.unwrap();
    assert_eq!((placed.bid, placed.repeated), (placed.seq, false));
    let read = t1.bid(placed.bid, placed.seq).await;
    assert_eq!((&read.tenant[..], &read.markets[..]), ("t1", &[MARKET.to_owned()][..]));
    assert_eq!((read.ceiling_micros, read.min_nodes, read.max_nodes), (2_000_000, 1, 3));
    assert_eq!((read.time_in_force(), read.expire_at_us), (TimeInForce::Gtt, Some(7_000_000)));
    assert_eq!((read.client_key.as_deref(), read.state()), (Some("k1"), State::Open));
    assert_eq!(read.labels, labels(&[("team", "vision")]));
    assert_eq!((read.unmet, read.unfilled_reason()), (3, UnfilledReason::NoSupply));

    let seq = p1.offer(2, 1_000_000).await;
    let read = t1.bid(placed.bid, seq).await;
    assert_eq!((read.held, read.unmet, &read.allocations[..]), (2, 1, &[1, 2][..]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_gets_the_first_answer_and_other_content_is_a_conflict() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let request = v1::PlaceBidRequest { labels: labels(&[("a", "1")]), ..keyed("k", bid(1_000_000)) };
    let first = t1.place(request.clone()).await.unwrap();
    let again = t1.place(request.clone()).await.unwrap();
    assert_eq!((again.seq, again.bid, again.repeated), (first.seq, first.bid, true));

    let dearer = v1::PlaceBidRequest { ceiling_micros: 1_000_100, ..request.clone() };
    let conflict = assert_refused(t1.place(dearer).await, Code::AlreadyExists, "KEY_CONFLICT");
    assert_eq!(conflict.field.as_deref(), Some("client_key"));
    for other in [labels(&[]), labels(&[("a", "2")]), labels(&[("a", "1"), ("b", "1")])] {
        let relabelled = v1::PlaceBidRequest { labels: other, ..request.clone() };
        assert_refused(t1.place(relabelled).await, Code::AlreadyExists, "KEY_CONFLICT");
    }
    let plain = keyed("plain", bid(1_000_000));
    t1.place(plain.clone()).await.unwrap();
    let labelled = v1::PlaceBidRequest { labels: labels(&[("a", "1")]), ..plain };
    assert_refused(t1.place(labelled).await, Code::AlreadyExists, "KEY_CONFLICT");

    let t2 = world.tenant("t2").await;
    assert!(!t2.place(request).await.unwrap().repeated, "keys belong to an account");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_repeated_too() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let request = keyed("k", bid(150));
    let first = assert_refused(t1.place(request.clone()).await, Code::InvalidArgument, "NOT_A_TICK");
    assert_eq!(first.message, "ceiling_micros 150 is not a multiple of the tick 100 of h100/eu");
    assert_eq!(first.field.as_deref(), Some("ceiling_micros"));
    assert!(first.seq.is_some());
    let again = assert_refused(t1.place(request).await, Code::InvalidArgument, "NOT_A_TICK");
    assert_eq!(again, first);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_market_refuses_by_its_own_codes() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let nodes = |nodes| v1::PlaceBidRequest { max_nodes: nodes, ..bid(100) };
    let markets = |markets: &[&str]| v1::PlaceBidRequest {
        markets: markets.iter().map(|market| (*market).to_owned()).collect(),
        ..bid(100)
    };
    let until = |tif: TimeInForce, at| v1::PlaceBidRequest {
        time_in_force: tif.into(),
        expire_at_us: at,
        ..bid(100)
    };
    let typed = v1::PlaceBidRequest { instance_type: "h100".to_owned(), ..bid(100) };
    let cases = [
        (markets(&["nope/eu"]), Code::NotFound, "UNKNOWN_MARKET", "markets"),
        (markets(&[]), Code::InvalidArgument, "BAD_MARKETS", "instance_type"),
        (markets(&[MARKET, MARKET]), Code::InvalidArgument, "BAD_MARKETS", "markets"),
        (typed, Code::InvalidArgument, "BAD_MARKETS", "markets"),
        (nodes(0), Code::InvalidArgument, "BAD_NODES", "max_nodes"),
        (nodes(1001), Code::InvalidArgument, "TOO_MANY_NODES", "max_nodes"),
        (nodes(u32::MAX), Code::InvalidArgument, "TOO_MANY_NODES", "max_nodes"),
        (bid(0), Code::InvalidArgument, "NOT_A_TICK", "ceiling_micros"),
        (bid(u64::MAX), Code::InvalidArgument, "NOT_A_TICK", "ceiling_micros"),
        (bid(1_000_000_000_100), Code::InvalidArgument, "CEILING_TOO_HIGH", "ceiling_micros"),
        (until(TimeInForce::Gtt, None), Code::InvalidArgument, "BAD_TIF", "expire_at_us"),
        (until(TimeInForce::Ioc, Some(9)), Code::InvalidArgument, "BAD_TIF", "time_in_force"),
        (until(TimeInForce::Gtt, Some(0)), Code::InvalidArgument, "EXPIRED", "expire_at_us"),
        (
            v1::PlaceBidRequest { time_in_force: 77, ..bid(100) },
            Code::InvalidArgument,
            "BAD_TIF",
            "time_in_force",
        ),
        (
            v1::PlaceBidRequest { on_preemption: -5, ..bid(100) },
            Code::InvalidArgument,
            "BAD_ON_PREEMPTION",
            "on_preemption",
        ),
    ];
    for (request, code, reason, field) in cases {
        let before = world.seq().await;
        let refusal = assert_refused(t1.place(request).await, code, reason);
        assert_eq!(refusal.field.as_deref(), Some(field), "{refusal:?}");
        assert_eq!(refusal.seq, Some(before + 1), "numbered: {refusal:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_a_thousand_bids_are_answered_in_order() {
    let world = World::start().await;
    let limits = v1::AccountLimits { requests_per_second: Some(100_000), ..v1::AccountLimits::default() };
    let t1 = world.limited("t1", &[Role::Tenant], limits).await;
    let frame = |frame: u32| v1::PlaceBidsRequest {
        bids: (0..1000)
            .map(|n| {
                let ceiling = if n % 100 == 50 { 1_000_050 } else { 1_000_000 };
                let labels = labels(&[("n", &n.to_string())]);
                v1::PlaceBidRequest { labels, ..keyed(&format!("{frame}-{n}"), bid(ceiling)) }
            })
            .collect(),
    };
    let frames = tokio_stream::iter((0..3).map(frame));
    let mut answers = t1.bids().place_bids(frames).await.unwrap().into_inner();
    let (mut last, mut refused) = (0, 0);
    for expected in 0..3 {
        let results = answers.message().await.unwrap().unwrap().results;
        assert_eq!(results.len(), 1000);
        for (n, result) in results.into_iter().enumerate() {
            assert_eq!(result.client_key, format!("{expected}-{n}"));
            match result.outcome.unwrap() {
                Outcome::Placed(placed) => {
                    assert!(placed.seq > last);
                    last = placed.seq;
                }
                Outcome::Refused(refusal) => {
                    assert_eq!(
                        (&refusal.reason[..], refusal.code),
                        ("NOT_A_TICK", Code::InvalidArgument as u32)
                    );
                    assert_eq!(refusal.field.as_deref(), Some("ceiling_micros"));
                    assert!(refusal.seq.unwrap() > last);
                    refused += 1;
                }
            }
        }
    }
    assert_eq!(refused, 30);
    assert!(answers.message().await.unwrap().is_none());

    let mut request = v1::ListBidsRequest {
        labels: labels(&[("n", "7")]),
        unmet_only: true,
        market: MARKET.to_owned(),
        states: vec![State::Open.into()],
        min_seq: last,
        page_size: 2,
        ..v1::ListBidsRequest::default()
    };
    let page = t1.bids().list_bids(request.clone()).await.unwrap().into_inner();
    let keys: Vec<_> = page.bids.iter().map(|bid| bid.client_key.clone().unwrap()).collect();
    assert_eq!(keys, ["0-7", "1-7"]);
    assert!(page.cursor.len() > 10);
    request.page_token = page.next_page_token;
    let page = t1.bids().list_bids(request).await.unwrap().into_inner();
    assert_eq!((page.bids.len(), &page.next_page_token[..]), (1, ""));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_of_too_many_bids_ends_the_stream() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let frame = v1::PlaceBidsRequest { bids: vec![bid(100); 1001] };
    let before = world.engine.applied();
    let mut answers = t1.bids().place_bids(tokio_stream::iter([frame])).await.unwrap().into_inner();
    assert_refused(answers.message().await, Code::ResourceExhausted, "TOO_LARGE");
    assert_eq!(world.engine.applied(), before);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bid_is_amended_and_cancelled() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let placed = t1.place(bid(1_000_000)).await.unwrap();
    let amend = v1::AmendBidRequest {
        client_key: "raise".to_owned(),
        bid: placed.bid,
        ceiling_micros: Some(1_500_000),
        max_nodes: Some(4),
    };
    let amended = t1.bids().amend_bid(amend.clone()).await.unwrap().into_inner();
    assert!(t1.bids().amend_bid(amend).await.unwrap().into_inner().repeated);
    let read = t1.bid(placed.bid, amended.seq).await;
    assert_eq!((read.ceiling_micros, read.max_nodes, read.bid_seq), (1_500_000, 4, amended.seq));

    let cancel = |mode| v1::CancelBidRequest { client_key: String::new(), bid: placed.bid, mode };
    for mode in [0, 9] {
        let refusal = t1.bids().cancel_bid(cancel(mode)).await;
        let refusal = assert_refused(refusal, Code::InvalidArgument, "BAD_MODE");
        assert_eq!(refusal.field.as_deref(), Some("mode"));
    }
    let release = v1::cancel_bid_request::Mode::Release.into();
    let cancelled = t1.bids().cancel_bid(cancel(release)).await.unwrap().into_inner();
    let read = t1.bid(placed.bid, cancelled.seq).await;
    assert_eq!((read.state(), read.close_reason()), (State::Closed, v1::bid::CloseReason::Cancelled));
    assert_eq!((read.unmet, read.unfilled_reason), (0, None));
    let refusal = t1.bids().cancel_bid(cancel(release)).await;
    assert_eq!(
        assert_refused(refusal, Code::FailedPrecondition, "CLOSED").message,
        format!("bid {} is closed", placed.bid)
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quote_says_what_a_bid_needs() {
    let world = World::start().await;
    let (t1, t2, p1) = (world.tenant("t1").await, world.tenant("t2").await, world.provider("p1").await);
    world.open("h100/us", v1::MarketRules::default()).await;
    p1.offer(2, 1_000_000).await;
    t1.place(v1::PlaceBidRequest { max_nodes: 2, ..bid(2_000_000) }).await.unwrap();
    let quote = async |ceiling_micros, nodes| {
        let request = v1::QuoteBidRequest {
            instance_type: "h100".to_owned(),
            ceiling_micros,
            nodes,
            ..v1::QuoteBidRequest::default()
        };
        t2.bids().quote_bid(request).await.map(|answer| answer.into_inner().quotes)
    };
    let quotes = quote(None, None).await.unwrap();
    assert_eq!(quotes.iter().map(|quote| &quote.market[..]).collect::<Vec<_>>(), [MARKET, "h100/us"]);
    assert_eq!((quotes[0].entry_price_micros, quotes[0].floor_micros), (None, Some(1_000_000)));
    for (ceiling, reason) in [
        (900_000, UnfilledReason::BelowFloor),
        (2_000_000, UnfilledReason::BelowNeededCeiling),
        (2_100_000, UnfilledReason::WaitingForProtectedNode),
    ] {
        let quotes = quote(Some(ceiling), None).await.unwrap();
        assert_eq!(quotes[0].unfilled_reason(), reason, "{ceiling}");
        assert_eq!(quotes[1].unfilled_reason(), UnfilledReason::NoSupply);
    }
    p1.offer(3, 1_000_000).await;
    let quotes = quote(Some(1_000_000), Some(1)).await.unwrap();
    assert_eq!((quotes[0].entry_price_micros, quotes[0].unfilled_reason), (Some(1_000_000), None));
    assert_eq!((quotes[0].nodes, quotes[0].claimed), (Some(1), Some(0)));
    let quotes = quote(Some(1_000_000), Some(2)).await.unwrap();
    assert_eq!((quotes[0].unfilled_reason(), quotes[0].nodes), (UnfilledReason::MinimumNotMet, Some(1)));
    let quotes = quote(None, Some(2)).await.unwrap();
    assert_eq!(quotes[0].nodes, None, "no ceiling was asked about");

    // An account that sells there gets no node at any ceiling, and learns nothing of those who hold its units.
    let seller = world.caller("p1", &[Role::Tenant, Role::Provider]).await;
    for ceiling_micros in [None, Some(9_000_000)] {
        let markets = vec![MARKET.to_owned()];
        let asked = v1::QuoteBidRequest { markets, nodes: Some(2), ceiling_micros, ..Default::default() };
        let quotes = seller.bids().quote_bid(asked).await.unwrap().into_inner().quotes;
        assert_eq!(
            (quotes[0].entry_price_micros, quotes[0].unfilled_reason()),
            (None, UnfilledReason::OwnSupply)
        );
        assert_eq!(quotes[0].nodes, ceiling_micros.map(|_| 0));
    }

    let before = world.engine.applied();
    let refusal = assert_refused(quote(None, Some(0)).await, Code::InvalidArgument, "BAD_NODES");
    assert_eq!((refusal.field.as_deref(), refusal.seq), (Some("nodes"), None));
    assert_refused(quote(Some(150), None).await, Code::InvalidArgument, "NOT_A_TICK");
    assert_eq!(world.engine.applied(), before, "a quote is no command");
    world.stop().await;
}
