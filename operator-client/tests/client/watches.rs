//! Watches: they go on where they broke.

use crate::support::{Engine, feed, nobody, refused};
use kubebid_client::v1::{Event, PricePoint, WatchEventsResponse, WatchPricesRequest, WatchPricesResponse};
use kubebid_client::{Client, Error, Options};
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code as Grpc, Status};

fn client(channels: impl IntoIterator<Item = Channel>) -> Client {
    Client::builder().channels(channels).build().unwrap()
}

fn frame(cursor: &str, events: &[(u64, u32)]) -> WatchEventsResponse {
    let events: Vec<_> =
        events.iter().map(|&(seq, index)| Event { seq, index, ..Default::default() }).collect();
    let seq = events.last().map_or(0, |event| event.seq);
    WatchEventsResponse { events, cursor: cursor.into(), seq }
}

fn places(frame: &WatchEventsResponse) -> Vec<(u64, u32)> {
    frame.events.iter().map(|event| (event.seq, event.index)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_moves_the_cursor_and_a_fault_ends_the_watch() {
    let (engine, channel) = Engine::start();
    let (first, events) = feed();
    engine.watch_events.answers([Ok(events)]);
    let mut watch = client([channel]).watch_events(None, "c0");
    assert_eq!(watch.cursor(), "c0");

    first.send(Ok(frame("c1", &[(1, 0), (1, 1)]))).unwrap();
    assert_eq!(places(&watch.next().await.unwrap().unwrap()), [(1, 0), (1, 1)]);
    first.send(Ok(frame("c2", &[]))).unwrap();
    assert_eq!(places(&watch.next().await.unwrap().unwrap()), []);
    assert_eq!(watch.cursor(), "c2");
    first.send(Err(Status::internal("a bug"))).unwrap();
    assert!(matches!(watch.next().await, Some(Err(Error::Fault(_)))));
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_reopens_when_the_engine_ends_it_goes_away_or_is_silent() {
    let (engine, channel) = Engine::start();
    let (ends, ended) = feed();
    let (breaks, broken) = feed();
    let (_silent, silence) = feed();
    let (last, events) = feed();
    engine.watch_events.answers([
        Ok(ended),
        Ok(broken),
        Err(Status::unavailable("restart")),
        Ok(silence),
        Ok(events),
    ]);
    ends.send(Ok(frame("c1", &[(1, 0)]))).unwrap();
    drop(ends);
    breaks.send(Ok(frame("c2", &[(1, 0), (1, 1)]))).unwrap();
    breaks.send(Err(Status::unavailable("shutting down"))).unwrap();
    last.send(Ok(frame("c3", &[(1, 1), (2, 0)]))).unwrap();

    let begun = Instant::now();
    let mut watch = client([channel]).watch_events_from_start(None);
    assert_eq!(places(&watch.next().await.unwrap().unwrap()), [(1, 0)]);
    assert_eq!(places(&watch.next().await.unwrap().unwrap()), [(1, 1)]);
    assert_eq!(places(&watch.next().await.unwrap().unwrap()), [(2, 0)]);
    assert!(begun.elapsed() >= Options::default().silence);
    let asked: Vec<_> = engine
        .watch_events
        .seen()
        .into_iter()
        .map(|seen| (seen.request.cursor, seen.request.from_start, seen.timeout))
        .collect();
    let expected = [("", true), ("c1", false), ("c2", false), ("c2", false), ("c2", false)];
    assert_eq!(asked, expected.map(|(cursor, from_start)| (cursor.to_owned(), from_start, None)));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_open_is_resumed_as_often_as_it_takes() {
    let (engine, channel) = Engine::start();
    let (first, events) = feed();
    let (last, more) = feed();
    engine.watch_events.answers([Ok(events)]);
    engine.watch_events.answers((0..50).map(|_| Err(Status::unavailable("restart"))));
    engine.watch_events.answers([Ok(more)]);
    first.send(Ok(frame("c1", &[(1, 0)]))).unwrap();
    drop(first);
    last.send(Ok(frame("c2", &[(2, 0)]))).unwrap();
    let mut watch = client([channel]).watch_events(None, "");
    watch.next().await.unwrap().unwrap();
    assert_eq!(places(&watch.next().await.unwrap().unwrap()), [(2, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_never_opened_gives_up() {
    let mut watch = client([nobody()]).watch_events(None, "");
    assert!(matches!(watch.next().await, Some(Err(Error::Unavailable(_)))));
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_cursor_of_another_journal_is_for_the_caller() {
    let (engine, channel) = Engine::start();
    let (first, events) = feed();
    let gone = refused(Grpc::OutOfRange, "GONE", "of another journal", None, None);
    engine.watch_events.answers([Ok(events), Err(gone)]);
    first.send(Ok(frame("c1", &[(1, 0)]))).unwrap();
    drop(first);
    let mut watch = client([channel]).watch_events(None, "");
    watch.next().await.unwrap().unwrap();
    assert!(matches!(watch.next().await, Some(Err(Error::Gone(_)))));
    assert!(watch.next().await.is_none());
    assert_eq!(watch.cursor(), "c1");
}

#[tokio::test(start_paused = true)]
async fn prices_are_sifted_by_market() {
    let (engine, channel) = Engine::start();
    let (first, prices) = feed();
    let (second, more) = feed();
    engine.watch_prices.answers([Ok(prices), Ok(more)]);
    let frame = |cursor: &str, points: &[(&str, u64)]| WatchPricesResponse {
        points: points
            .iter()
            .map(|&(market, seq)| PricePoint { market: market.into(), seq, ..Default::default() })
            .collect(),
        cursor: cursor.into(),
    };
    // The present numbers of b are older than those of a.
    first.send(Ok(frame("c1", &[("a", 9), ("b", 4)]))).unwrap();
    drop(first);
    second.send(Ok(frame("c2", &[("a", 9), ("b", 10)]))).unwrap();
    let mut watch = client([channel]).watch_prices(WatchPricesRequest::default());
    let mut markets = Vec::new();
    for _ in 0..2 {
        let frame = watch.next().await.unwrap().unwrap();
        markets.push(frame.points.into_iter().map(|point| point.market).collect::<Vec<_>>());
    }
    assert_eq!(markets, [vec!["a", "b"], vec!["b"]]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_frame_may_be_dropped() {
    let (engine, channel) = Engine::start();
    let (first, events) = feed();
    engine.watch_events.answers([Ok(events)]);
    let mut watch = client([channel]).watch_events(None, "");
    assert!(tokio::time::timeout(Duration::from_secs(1), watch.next()).await.is_err());
    first.send(Ok(frame("c1", &[(1, 0)]))).unwrap();
    assert_eq!(places(&watch.next().await.unwrap().unwrap()), [(1, 0)]);
    assert_eq!(engine.watch_events.seen().len(), 1);
}
