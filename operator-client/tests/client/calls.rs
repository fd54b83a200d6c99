//! Calls: keys over retries, deadlines, endpoints, tokens, refusals.

use crate::support::{Engine, bid, busy, nobody, not_leading, refused};
use kubebid_client::v1::bid_service_client::BidServiceClient;
use kubebid_client::v1::{
    CreateTokenRequest, CreateTokenResponse, GetBidRequest, GetBidResponse, ListBidsRequest, ListBidsResponse,
};
use kubebid_client::v1::{PlaceBidRequest, PlaceBidResponse};
use kubebid_client::{Client, Code, Error, Kind, Options};
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code as Grpc, Status};

fn client(channels: impl IntoIterator<Item = Channel>) -> Client {
    Client::builder().channels(channels).token("sesame").build().unwrap()
}

fn placed(number: u64) -> PlaceBidResponse {
    PlaceBidResponse { seq: number, bid: number, repeated: false }
}

fn away() -> Status {
    Status::unavailable("the store is away")
}

#[tokio::test(start_paused = true)]
async fn a_command_is_tried_again_with_the_same_random_key() {
    let (engine, channel) = Engine::start();
    engine.place_bid.answers([Err(away()), Err(away()), Ok(placed(7))]);
    let client = client([channel]);
    assert_eq!(client.place_bid(PlaceBidRequest::default()).await.unwrap().bid, 7);
    engine.place_bid.answers([Ok(placed(8))]);
    client.place_bid(PlaceBidRequest::default()).await.unwrap();

    let keys: Vec<_> = engine.place_bid.seen().into_iter().map(|seen| seen.request.client_key).collect();
    assert_eq!(keys[0].len(), 36);
    assert_eq!((&keys[0], &keys[0]), (&keys[1], &keys[2]));
    assert_ne!(keys[0], keys[3], "another command has another key");
}

#[tokio::test(start_paused = true)]
async fn the_callers_key_is_kept() {
    let (engine, channel) = Engine::start();
    engine.place_bid.answers([Err(away()), Ok(placed(7))]);
    let request = PlaceBidRequest { client_key: "mine".into(), ..Default::default() };
    client([channel]).place_bid(request).await.unwrap();
    assert!(engine.place_bid.seen().iter().all(|seen| seen.request.client_key == "mine"));
}

#[tokio::test(start_paused = true)]
async fn a_full_intake_is_given_the_time_it_asks_for() {
    let (engine, channel) = Engine::start();
    engine.place_bid.answers([Err(busy(Duration::from_secs(3))), Ok(placed(7))]);
    client([channel]).place_bid(PlaceBidRequest::default()).await.unwrap();
    let seen = engine.place_bid.seen();
    assert!(seen[1].at - seen[0].at >= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn the_caller_is_asked_before_each_further_try() {
    let (engine, channel) = Engine::start();
    engine.place_bid.answers([Err(away()), Err(away()), Ok(placed(7))]);
    let builder = Client::builder().channels([channel]).token("sesame");
    let once = |error: &Error, left: Option<Duration>| {
        left.is_some() && error.gave_up().is_some_and(|end| end.tries < 2)
    };
    let error =
        builder.on_retry(once).build().unwrap().place_bid(PlaceBidRequest::default()).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable(end) if end.tries == 2), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_would_pass_the_deadline_is_not_begun() {
    let (engine, channel) = Engine::start();
    engine.place_bid.answers([Err(busy(Duration::from_secs(3600)))]);
    let begun = Instant::now();
    let error = client([channel]).place_bid(PlaceBidRequest::default()).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(1));
    let Error::Busy(end) = &error else { panic!("{error}") };
    assert_eq!((end.tries, end.retry_after), (1, Some(Duration::from_secs(3600))));
    assert_eq!(end.client_key.as_ref().unwrap(), &engine.place_bid.seen()[0].request.client_key);
    assert!(!end.maybe_taken);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_bounds_all_tries_and_the_engine_is_told_of_each() {
    let (engine, channel) = Engine::start();
    *engine.get_bid_after.lock().unwrap() = Duration::from_secs(3600);
    engine.get_bid.answers((0..9).map(|_| Ok(GetBidResponse::default())));
    let options = Options {
        timeout: Duration::from_secs(4),
        deadline: Duration::from_secs(10),
        backoff: Duration::ZERO,
        ..Options::default()
    };
    let begun = Instant::now();
    let error = client([channel]).with_options(options).get_bid(GetBidRequest::default()).await.unwrap_err();
    assert!(matches!(error, Error::Late(ref end) if end.tries == 3), "{error:?}");
    assert_eq!(begun.elapsed().as_secs(), 10);
    let told: Vec<_> = engine.get_bid.seen().into_iter().map(|seen| seen.timeout.unwrap()).collect();
    assert_eq!(told[..2], ["4000000u", "4000000u"]);
    assert!(told[2].trim_end_matches('u').parse::<u64>().unwrap() <= 2_000_000, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn tries_end() {
    let error = client([nobody()]).get_bid(GetBidRequest::default()).await.unwrap_err();
    let Error::Unavailable(end) = &error else { panic!("{error}") };
    assert_eq!(end.tries, Options::default().tries);
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(!end.maybe_taken, "nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_repeated_is_sent_once() {
    let (engine, channel) = Engine::start();
    engine.create_token.answers([Err(busy(Duration::ZERO)), Err(away())]);
    let error = client([nobody(), channel]).create_token(CreateTokenRequest::default()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(ref end) if end.tries == 3 && end.maybe_taken), "{error:?}");
    assert_eq!(engine.create_token.seen().len(), 2, "again after a refusal for load, not after silence");
}

#[tokio::test(start_paused = true)]
async fn another_endpoint_is_taken_at_once_and_kept() {
    let (engine, channel) = Engine::start();
    engine.get_bid.answers((0..2).map(|_| Ok(GetBidResponse { seq: 1, bid: Some(bid(1)) })));
    let client = client([nobody(), nobody(), channel]);
    let begun = Instant::now();
    client.get_bid(GetBidRequest::default()).await.unwrap();
    client.get_bid(GetBidRequest::default()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn endpoints_are_reached_over_the_network() {
    let engine = std::sync::Arc::new(Engine::default());
    let address = engine.listen().await;
    engine.get_bid.answers([Ok(GetBidResponse { seq: 1, bid: Some(bid(1)) })]);
    // Nobody listens on port 1.
    let builder = Client::builder().endpoints(["http://127.0.0.1:1", &address]).token("sesame");
    let client = builder.build().unwrap();
    assert_eq!(client.get_bid(GetBidRequest::default()).await.unwrap().seq, 1);
    assert_eq!(client.endpoint(), address);
    assert_eq!(engine.get_bid.seen()[0].token.as_deref(), Some("Bearer sesame"));
}

#[tokio::test(start_paused = true)]
async fn a_standby_is_waited_for_until_it_leads() {
    let (engine, channel) = Engine::start();
    let tries = Options::default().tries as usize;
    engine.create_token.answers((0..2 * tries).map(|_| Err(not_leading())));
    engine.create_token.answers([Ok(CreateTokenResponse::default())]);
    let begun = Instant::now();
    // Not even what cannot be repeated is given up: a standby takes nothing.
    client([nobody(), channel]).create_token(CreateTokenRequest::default()).await.unwrap();
    assert!(begun.elapsed() <= Duration::from_millis(200) * 2 * tries as u32, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_never_leads_is_left_at_the_deadline() {
    let (engine, channel) = Engine::start();
    engine.get_bid.answers((0..10_000).map(|_| Err(not_leading())));
    let begun = Instant::now();
    let error = client([nobody(), channel]).get_bid(GetBidRequest::default()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(ref end) if !end.maybe_taken), "{error:?}");
    let deadline = Options::default().deadline;
    assert!(begun.elapsed() <= deadline && begun.elapsed() >= deadline - Duration::from_millis(200));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_goes_away_is_left_for_the_first_again() {
    let (one, to_one) = Engine::start();
    let (two, to_two) = Engine::start();
    one.place_bid.answers([Err(away()), Ok(placed(2))]);
    two.place_bid.answers([Err(away())]);
    client([to_one, to_two]).place_bid(PlaceBidRequest::default()).await.unwrap();
    assert_eq!((one.place_bid.seen().len(), two.place_bid.seen().len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_value_and_final() {
    let (engine, channel) = Engine::start();
    let status = refused(Grpc::InvalidArgument, "NOT_A_TICK", "not a tick", Some("ceiling_micros"), Some(12));
    engine.place_bid.answers([Err(status)]);
    let error = client([channel]).place_bid(PlaceBidRequest::default()).await.unwrap_err();
    assert_eq!(error.code(), Some(&Code::NotATick));
    let refusal = error.refusal().unwrap();
    assert_eq!((refusal.kind, refusal.seq), (Kind::Invalid, Some(12)));
    assert_eq!(refusal.field.as_deref(), Some("ceiling_micros"));
    assert_eq!(error.to_string(), "not a tick (NOT_A_TICK)");
}

#[tokio::test(start_paused = true)]
async fn a_raw_call_has_the_token_and_its_failure_is_final() {
    let (engine, channel) = Engine::start();
    let client = client([channel]);
    engine.get_bid.answers([Err(not_leading()), Err(Status::unauthenticated("who?"))]);
    for expected in ["Unavailable", "Unauthenticated"] {
        let (channel, request) = client.raw_request(GetBidRequest::default());
        let status = BidServiceClient::new(channel).get_bid(request).await.unwrap_err();
        let error = client.raw_error(status);
        assert!(format!("{error:?}").starts_with(expected), "{error:?}");
    }
    let tokens: Vec<_> = engine.get_bid.seen().into_iter().map(|seen| seen.token).collect();
    assert_eq!(tokens, [Some("Bearer sesame".to_owned()), Some("Bearer sesame".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn each_status_has_its_error() {
    let (engine, channel) = Engine::start();
    let client = client([channel]);
    for (grpc, reason, expected) in [
        (Grpc::NotFound, "UNKNOWN_BID", "Refused"),
        (Grpc::FailedPrecondition, "PROTECTED", "Refused"),
        (Grpc::ResourceExhausted, "LIMIT", "Refused"),
        (Grpc::ResourceExhausted, "TOO_LARGE", "Refused"),
        (Grpc::PermissionDenied, "FORBIDDEN", "Denied"),
        (Grpc::Unauthenticated, "UNAUTHENTICATED", "Unauthenticated"),
        (Grpc::OutOfRange, "GONE", "Gone"),
    ] {
        engine.get_bid.answers([Err(refused(grpc, reason, "no", None, None))]);
        let error = client.get_bid(GetBidRequest::default()).await.unwrap_err();
        assert_eq!(error.code().map(Code::as_str), Some(reason));
        assert!(format!("{error:?}").starts_with(expected), "{reason}: {error:?}");
    }
    engine.get_bid.answers([Err(Status::internal("oh"))]);
    let error = client.get_bid(GetBidRequest::default()).await.unwrap_err();
    assert!(matches!(error, Error::Fault(_)));
    assert_eq!(engine.get_bid.seen().len(), 8, "none was tried again");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_sent_and_one_that_is_unknown_is_not_tried_again() {
    let (engine, channel) = Engine::start();
    engine.get_bid.answers([Err(Status::unauthenticated("who?"))]);
    let error = client([channel]).get_bid(GetBidRequest::default()).await.unwrap_err();
    assert!(matches!(error, Error::Unauthenticated(_)));
    let seen = engine.get_bid.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].token.as_deref(), Some("Bearer sesame"));
}

#[tokio::test(start_paused = true)]
async fn a_token_file_is_read_again_when_it_changes_and_when_its_token_is_unknown() {
    let (engine, channel) = Engine::start();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "one\n").unwrap();
    let client = Client::builder().channels([channel]).token_file(file.path()).build().unwrap();

    // Revoked while the file, looked at a moment ago, already has another.
    std::fs::write(file.path(), "second").unwrap();
    engine.get_bid.answers([Err(Status::unauthenticated("revoked")), Ok(GetBidResponse::default())]);
    client.get_bid(GetBidRequest::default()).await.unwrap();
    // Changed before anyone complained.
    std::fs::write(file.path(), "the third").unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    engine.get_bid.answers([Ok(GetBidResponse::default())]);
    client.get_bid(GetBidRequest::default()).await.unwrap();
    // Gone for a moment.
    std::fs::remove_file(file.path()).unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    engine.get_bid.answers([Err(Status::unauthenticated("revoked"))]);
    let error = client.get_bid(GetBidRequest::default()).await.unwrap_err();
    assert!(matches!(error, Error::Unauthenticated(_)));

    let tokens: Vec<_> = engine.get_bid.seen().into_iter().map(|seen| seen.token.unwrap()).collect();
    assert_eq!(tokens, ["Bearer one", "Bearer second", "Bearer the third", "Bearer the third"]);
}

#[tokio::test(start_paused = true)]
async fn all_pages_are_read_and_the_first_cursor_kept() {
    let (engine, channel) = Engine::start();
    let page = |seq, numbers: &[u64], next: &str| ListBidsResponse {
        seq,
        bids: numbers.iter().copied().map(bid).collect(),
        next_page_token: next.into(),
        cursor: format!("c{seq}"),
    };
    engine.list_bids.answers([Ok(page(5, &[1, 2], "more")), Ok(page(6, &[3], ""))]);
    let list = client([channel]).all(ListBidsRequest::default()).await.unwrap();
    assert_eq!(list.bids.iter().map(|bid| bid.bid).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((list.seq, list.cursor.as_str()), (5, "c5"));
    let asked: Vec<_> = engine.list_bids.seen().into_iter().map(|seen| seen.request.page_token).collect();
    assert_eq!(asked, ["", "more"]);
}

#[tokio::test]
async fn what_is_no_endpoint_is_said_at_once() {
    for (endpoint, why) in [
        ("", ""),
        ("ftp://engine:7440", "neither http nor https"),
        ("http://", "is none"),
        ("http://engine:port", "is none"),
    ] {
        match Client::builder().endpoints([endpoint]).build() {
            Ok(client) => assert_eq!((endpoint, client.endpoint()), ("", kubebid_client::DEFAULT_ENDPOINT)),
            Err(error) => assert!(error.to_string().contains(why), "{error}"),
        }
    }
    for token in ["", "two\nlines"] {
        let error = Client::builder().token(token).build().unwrap_err();
        assert!(matches!(error, Error::Config(_)));
    }
    let builder = Client::builder().token("sesame");
    assert!(!format!("{builder:?} {:?}", builder.clone().build().unwrap()).contains("sesame"));
}
