//! Requests that the edge refuses: nothing is journaled, and the answer names the wrong field.

use crate::raw;
use crate::world::{MARKET, World, assert_refused, bid};
use kubebid_proto::v1;
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::{Code, Request};

const PLACE_BID: &str = "/kubebid.auction.v1.BidService/PlaceBid";

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_a_field_cannot_have_is_refused_with_its_name() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let label = |key: &str, value: &str| v1::PlaceBidRequest {
        labels: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        ..bid(100)
    };
    let many = (0..65).map(|n| (n.to_string(), String::new())).collect();
    let any_type = |name: &str, ceiling| v1::PlaceBidRequest {
        markets: Vec::new(),
        instance_type: name.to_owned(),
        ..bid(ceiling)
    };
    let named = |market: &str| v1::PlaceBidRequest { markets: vec![market.to_owned()], ..bid(100) };
    let cases = [
        (v1::PlaceBidRequest { client_key: "k".repeat(129), ..bid(100) }, "client_key"),
        (v1::PlaceBidRequest { client_key: "a\0b".to_owned(), ..bid(100) }, "client_key"),
        (v1::PlaceBidRequest { labels: many, ..bid(100) }, "labels"),
        (label("", "v"), "labels"),
        (label(&"k".repeat(64), "v"), "labels"),
        (label("k", &"v".repeat(257)), "labels"),
        (label("k", "\0"), "labels"),
        (named("h100\n/eu"), "markets"),
        (named(&"x".repeat(500)), "markets"),
        (any_type("not a type", 100), "instance_type"),
        (any_type("h200", u64::MAX), "ceiling_micros"),
        (v1::PlaceBidRequest { expire_at_us: Some(u64::MAX), ..bid(100) }, "expire_at_us"),
    ];
    let before = world.seq().await;
    for (request, field) in cases {
        let refusal = assert_refused(t1.place(request).await, Code::InvalidArgument, "BAD_FIELD");
        assert_eq!((refusal.field.as_deref(), refusal.seq), (Some(field), None), "{refusal:?}");
        assert!(refusal.message.starts_with(field), "{refusal:?}");
    }
    assert_eq!(world.seq().await, before);

    let waiting = t1.place(any_type("h200", 100)).await.unwrap();
    let amend = |bid, ceiling| v1::AmendBidRequest {
        bid,
        ceiling_micros: Some(ceiling),
        ..v1::AmendBidRequest::default()
    };
    let refusal = t1.bids().amend_bid(amend(waiting.bid, u64::MAX)).await;
    assert_refused(refusal, Code::InvalidArgument, "BAD_FIELD");
    let bounded = t1.place(bid(100)).await.unwrap();
    let refusal = t1.bids().amend_bid(amend(bounded.bid, u64::MAX)).await;
    assert!(assert_refused(refusal, Code::InvalidArgument, "NOT_A_TICK").seq.is_some());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_filters_are_checked() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let list = async |request| t1.bids().list_bids(request).await;
    let all = v1::ListBidsRequest::default();
    for (request, field) in [
        (v1::ListBidsRequest { page_token: "nonsense".to_owned(), ..all.clone() }, "page_token"),
        (v1::ListBidsRequest { states: vec![0], ..all.clone() }, "states"),
    ] {
        let refusal = assert_refused(list(request).await, Code::InvalidArgument, "BAD_FIELD");
        assert_eq!(refusal.field.as_deref(), Some(field));
    }
    // A page that is too large is as large as it can be.
    list(v1::ListBidsRequest { page_size: u32::MAX, ..all }).await.unwrap();
    let missing = t1.bids().get_bid(v1::GetBidRequest { bid: u64::MAX, min_seq: 0 }).await;
    assert_refused(missing, Code::NotFound, "UNKNOWN_BID");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_exhausts_resources() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let request = v1::PlaceBidRequest { instance_type: "x".repeat(70 * 1024), ..bid(100) };
    let before = world.seq().await;
    let refusal = assert_refused(t1.place(request).await, Code::ResourceExhausted, "TOO_LARGE");
    assert!(refusal.message.contains("65536"), "{refusal:?}");

    let large = v1::PlaceBidRequest { client_key: "k".repeat(200 * 1024), ..bid(100) };
    let frame = v1::PlaceBidsRequest { bids: vec![large; 21] };
    let mut answers = t1.bids().place_bids(tokio_stream::iter([frame])).await.unwrap().into_inner();
    assert_refused(answers.message().await, Code::ResourceExhausted, "TOO_LARGE");
    assert_eq!(world.seq().await, before);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_messages_are_the_callers_fault() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let before = world.seq().await;
    // A field that ends too late, a field that never ends, a text that is not UTF-8, and a wire type
    // that does not exist.
    let cases: [(&[u8], Option<&str>); 4] = [
        (&[0x0a, 0x7f, b'x'], None),
        (&[0x20, 0xff], None),
        (&[0x0a, 0x02, 0xff, 0xfe], Some("client_key")),
        (&[0x0f], None),
    ];
    for (bytes, field) in cases {
        let answer = raw::call(&t1, PLACE_BID, bytes.to_vec()).await;
        let refusal = assert_refused(answer, Code::InvalidArgument, "BAD_FIELD");
        if field.is_some() {
            assert_eq!(refusal.field.as_deref(), field, "{refusal:?}");
        }
    }
    let frame = raw::call(&t1, "/kubebid.auction.v1.BidService/PlaceBids", vec![0x0a, 0x7f]).await;
    assert_refused(frame, Code::InvalidArgument, "BAD_FIELD");
    let nowhere = raw::call(&t1, "/kubebid.auction.v1.BidService/StealBid", Vec::new()).await;
    assert_refused(nowhere, Code::Unimplemented, "UNKNOWN_METHOD");
    for nowhere in ["/other.v1.Service/Method", "/grpc.health.v1.Health/Heal"] {
        let answer = raw::call(&t1, nowhere, Vec::new()).await;
        assert_refused(answer, Code::Unimplemented, "UNKNOWN_METHOD");
    }
    assert_eq!(world.seq().await, before);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_message_is_refused_by_its_code() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let mut request = t1.in_time(v1::GetBidRequest::default(), "20S");
    request.metadata_mut().insert("grpc-encoding", "gzip".parse().unwrap());
    let refusal =
        assert_refused(world.patient().get_bid(request).await, Code::Unimplemented, "UNSUPPORTED_ENCODING");
    assert_eq!(refusal.field.as_deref(), Some("grpc-encoding"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_is_given_twice_is_refused() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    for name in ["authorization", "grpc-timeout"] {
        let mut request = t1.in_time(v1::GetBidRequest::default(), "20S");
        let value = request.metadata().get(name).unwrap().clone();
        request.metadata_mut().append(name, value);
        let answer = world.patient().get_bid(request).await;
        let refusal = assert_refused(answer, Code::InvalidArgument, "BAD_FIELD");
        assert_eq!(refusal.field.as_deref(), Some(name));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_has_passed_leaves_no_trace() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let before = world.seq().await;
    let mut patient = world.patient();
    let late =
        |timeout: &str| t1.in_time(v1::PlaceBidRequest { client_key: "k".to_owned(), ..bid(100) }, timeout);
    assert_refused(patient.place_bid(late("1n")).await, Code::DeadlineExceeded, "NOT_YET");
    assert_refused(patient.place_bid(late("soon")).await, Code::InvalidArgument, "BAD_FIELD");

    // The command is still in the intake when its deadline passes.
    let held = world.hold_the_exchange().await;
    assert_refused(patient.place_bid(late("50m")).await, Code::DeadlineExceeded, "NOT_YET");
    drop(held);
    let request = v1::PlaceBidRequest { client_key: "k".to_owned(), ..bid(200) };
    let placed = t1.place(request).await.unwrap();
    assert_eq!((placed.seq, placed.repeated), (before + 1, false), "the key is free");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_hangs_up_before_its_command_is_stamped_leaves_no_trace() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let before = world.seq().await;
    let held = world.hold_the_exchange().await;
    let hanging = tokio::time::timeout(Duration::from_millis(100), t1.place(bid(100)));
    assert!(hanging.await.is_err());
    // These requests follow the hang-up on the same connection, and are answered without the exchange.
    for _ in 0..20 {
        world.admin.admin().list_accounts(v1::ListAccountsRequest::default()).await.unwrap();
    }
    drop(held);
    let placed = t1.place(bid(200)).await.unwrap();
    assert_eq!(placed.seq, before + 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_waits_for_min_seq_until_its_deadline() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let placed = t1.place(bid(100)).await.unwrap();
    let mut request = Request::new(v1::GetBidRequest { bid: placed.bid, min_seq: placed.seq + 1 });
    request.set_timeout(Duration::from_secs(20));
    let reading = tokio::spawn({
        let t1 = t1.clone();
        async move { t1.bids().get_bid(request).await }
    });
    let next = t1.place(bid(200)).await.unwrap();
    assert!(reading.await.unwrap().unwrap().into_inner().seq >= next.seq);

    let request = t1.in_time(v1::GetBidRequest { bid: placed.bid, min_seq: 1_000_000 }, "50m");
    assert_refused(world.patient().get_bid(request).await, Code::DeadlineExceeded, "NOT_YET");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn markets_are_opened_by_names_that_can_be_told_apart() {
    let world = World::start().await;
    for market in ["", "h100", "a/b/c", "a b/c", "a/b#1", "a:b/c"] {
        let request = v1::OpenMarketRequest { market: market.to_owned(), rules: None };
        let refusal = world.admin.admin().open_market(request).await;
        let refusal = assert_refused(refusal, Code::InvalidArgument, "BAD_FIELD");
        assert_eq!(refusal.field.as_deref(), Some("market"));
    }
    let again = v1::OpenMarketRequest { market: MARKET.to_owned(), rules: None };
    assert_refused(world.admin.admin().open_market(again).await, Code::AlreadyExists, "MARKET_EXISTS");
    let rules = v1::MarketRules { pricing: Some(9), ..v1::MarketRules::default() };
    let request = v1::OpenMarketRequest { market: "a/b".to_owned(), rules: Some(rules) };
    assert_refused(world.admin.admin().open_market(request).await, Code::InvalidArgument, "BAD_RULE");
    world.stop().await;
}
