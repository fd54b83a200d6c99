//! Many bids over one stream.

use crate::support::{Engine, feed};
use futures_util::{StreamExt as _, stream};
use kubebid_client::v1::place_bids_response::Result as Placing;
use kubebid_client::v1::place_bids_response::result::Outcome;
use kubebid_client::v1::{PlaceBidRequest, PlaceBidResponse, PlaceBidsRequest, PlaceBidsResponse, Refusal};
use kubebid_client::{Client, Code, Error, Kind, Options, Placed};
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Channel;

fn client(channel: Channel, frame: usize, window: usize) -> Client {
    let options = Options { frame, window, ..Options::default() };
    Client::builder().channels([channel]).options(options).build().unwrap()
}

fn bids(count: usize) -> impl Iterator<Item = PlaceBidRequest> {
    (0..count).map(|number| PlaceBidRequest { client_key: format!("k{number}"), ..Default::default() })
}

fn keys(frame: &PlaceBidsRequest) -> Vec<&str> {
    frame.bids.iter().map(|bid| bid.client_key.as_str()).collect()
}

fn answer(frame: &PlaceBidsRequest, outcome: impl Fn(&str) -> Outcome) -> PlaceBidsResponse {
    let results = frame
        .bids
        .iter()
        .map(|bid| Placing { client_key: bid.client_key.clone(), outcome: Some(outcome(&bid.client_key)) });
    PlaceBidsResponse { results: results.collect() }
}

fn placed(_: &str) -> Outcome {
    Outcome::Placed(PlaceBidResponse { seq: 1, bid: 1, repeated: false })
}

fn refused(reason: &str, code: tonic::Code, retry_after_us: Option<u64>) -> Outcome {
    let (reason, code) = (reason.to_owned(), code as u32);
    Outcome::Refused(Refusal { reason, code, retry_after_us, ..Default::default() })
}

fn all(answers: Vec<Result<Placed, Error>>) -> Vec<(String, bool)> {
    let answers = answers.into_iter().map(Result::unwrap);
    answers.map(|placed| (placed.client_key, placed.outcome.is_ok())).collect()
}

#[tokio::test(start_paused = true)]
async fn bids_go_out_in_frames_and_each_is_answered() {
    let (engine, channel) = Engine::start();
    let (answers, feed) = feed();
    engine.place_bids.answers([Ok(feed)]);
    let placing = tokio::spawn(client(channel, 2, 100).place_bids(stream::iter(bids(5))).collect());
    for frame in engine.frames(3).await {
        let outcome = |key: &str| match key {
            "k3" => refused("BAD_NODES", tonic::Code::InvalidArgument, None),
            key => placed(key),
        };
        answers.send(Ok(answer(&frame, outcome))).unwrap();
    }
    let results: Vec<Result<Placed, Error>> = placing.await.unwrap();
    let refusal = results[3].as_ref().unwrap().outcome.as_ref().unwrap_err();
    assert_eq!((&refusal.code, refusal.kind), (&Code::BadNodes, Kind::Invalid));
    let expected = [("k0", true), ("k1", true), ("k2", true), ("k3", false), ("k4", true)];
    assert_eq!(all(results), expected.map(|(key, ok)| (key.to_owned(), ok)));
}

#[tokio::test(start_paused = true)]
async fn a_frame_is_never_larger_than_an_engine_accepts() {
    let (engine, channel) = Engine::start();
    let (answers, feed) = feed();
    engine.place_bids.answers([Ok(feed)]);
    let large = bids(300).map(|bid| PlaceBidRequest { node_config: vec![7; 16 << 10], ..bid });
    let placing = tokio::spawn(client(channel, 1000, 2000).place_bids(stream::iter(large)).collect());
    // 63 of them fit in a frame of a mebibyte.
    for frame in engine.frames(5).await {
        assert!(prost::Message::encoded_len(&frame) <= 1 << 20);
        answers.send(Ok(answer(&frame, placed))).unwrap();
    }
    assert_eq!(all(placing.await.unwrap()).len(), 300);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_window_is_on_the_way() {
    let (engine, channel) = Engine::start();
    let (answers, feed) = feed();
    engine.place_bids.answers([Ok(feed)]);
    let placing = tokio::spawn(client(channel, 1, 2).place_bids(stream::iter(bids(4))).collect());
    for number in 0..4 {
        let frames = engine.frames((number + 2).min(4)).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(frames.len(), (number + 2).min(4));
        answers.send(Ok(answer(&frames[number], placed))).unwrap();
    }
    assert_eq!(all(placing.await.unwrap()).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_has_no_answer_is_sent_again_with_the_same_keys() {
    let (engine, channel) = Engine::start();
    let (first, broken) = feed();
    let (second, rest) = feed();
    engine.place_bids.answers([Ok(broken), Err(Status::unavailable("restart")), Ok(rest)]);
    let bids = stream::iter((0..3).map(|_| PlaceBidRequest::default()));
    let placing = tokio::spawn(client(channel, 1, 100).place_bids(bids).collect());
    let sent = engine.frames(3).await;
    first.send(Ok(answer(&sent[0], placed))).unwrap();
    first.send(Err(Status::unavailable("shutting down"))).unwrap();
    let again = engine.frames(5).await;
    assert_eq!(again[3..], sent[1..]);
    assert!(sent.iter().all(|frame| keys(frame)[0].len() == 36));
    for frame in &again[3..] {
        second.send(Ok(answer(frame, placed))).unwrap();
    }
    assert_eq!(all(placing.await.unwrap()).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_bid_without_room_is_sent_again_when_there_may_be_some() {
    let (engine, channel) = Engine::start();
    let (answers, feed) = feed();
    engine.place_bids.answers([Ok(feed)]);
    let placing = tokio::spawn(client(channel, 2, 100).place_bids(stream::iter(bids(2))).collect());
    let frames = engine.frames(1).await;
    let outcome = |key: &str| match key {
        "k0" => refused("BUSY", tonic::Code::ResourceExhausted, Some(3_000_000)),
        key => placed(key),
    };
    let begun = Instant::now();
    answers.send(Ok(answer(&frames[0], outcome))).unwrap();
    let frames = engine.frames(2).await;
    assert!(begun.elapsed() >= Duration::from_secs(3));
    assert_eq!(keys(&frames[1]), ["k0"]);
    answers.send(Ok(answer(&frames[1], placed))).unwrap();
    assert_eq!(all(placing.await.unwrap()), [("k1".to_owned(), true), ("k0".to_owned(), true)]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_owes_an_answer_is_not_waited_for_forever() {
    let (engine, channel) = Engine::start();
    let (_silent, silence) = feed();
    let (answers, feed) = feed();
    engine.place_bids.answers([Ok(silence), Ok(feed)]);
    let placing = tokio::spawn(client(channel, 2, 100).place_bids(stream::iter(bids(1))).collect());
    let frames = engine.frames(2).await;
    answers.send(Ok(answer(&frames[1], placed))).unwrap();
    assert_eq!(all(placing.await.unwrap()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_bids_are_no_call() {
    let (engine, channel) = Engine::start();
    let answers: Vec<_> = client(channel, 2, 100).place_bids(stream::empty()).collect().await;
    assert!(answers.is_empty());
    assert!(engine.place_bids.seen().is_empty());
}
