//! Server-sent events: nothing is lost, nothing comes twice.

use crate::world::{MARKET, SECOND, World};
use serde_json::Value;

fn places(events: &[Value]) -> Vec<(u64, u64)> {
    let place =
        |event: &Value| (event["seq"].as_str().unwrap().parse().unwrap(), event["index"].as_u64().unwrap());
    events.iter().map(place).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_after_the_last_event_id() {
    let world = World::new().await;
    world.offer("p1", 50, SECOND).await;
    let tenant = world.client("t1");
    let path = "/v1/events/stream?from_start=true&kind=bid_placed&kind=allocated";
    let (mut seen, mut id) = (Vec::new(), None);
    for round in 0..10 {
        let mut stream = tenant.watch(path, id.as_deref()).await;
        for _ in 0..3 {
            world.bid("t1", 1, 2 * SECOND).await;
        }
        while seen.len() < 6 * (round + 1) {
            let (events, at) = stream.next_of("events").await;
            seen.extend(events);
            id = Some(at);
        }
    }
    let last = seen.last().unwrap()["seq"].as_str().unwrap();
    let path = format!("/v1/events?kind=bid_placed&kind=allocated&page_size=1000&min_seq={last}");
    let listed = tenant.get(&path).await.json["events"].as_array().unwrap().clone();
    assert_eq!(places(&seen), places(&listed));
    assert_eq!(seen, listed);
    assert_eq!(seen.len(), 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_elsewhere_moves_the_cursor() {
    let world = World::new().await;
    let mut stream = world.client("t2").watch("/v1/events/stream?kind=bid_placed", None).await;
    let first = stream.next().await.unwrap();
    assert_eq!((first.name.as_str(), first.data["events"].as_array().unwrap().len()), ("events", 0));
    let seq = world.bid("t1", 1, SECOND).await;
    loop {
        let frame = stream.next().await.unwrap();
        assert_eq!(frame.data["events"].as_array().unwrap().len(), 0, "a bid of somebody else");
        if frame.data["seq"].as_str() == Some(&seq.to_string()[..]) {
            assert_ne!(frame.id, first.id);
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prices_come_as_they_are_and_then_as_they_change() {
    let world = World::new().await;
    let viewer = world.client("v1");
    let mut stream = viewer.watch(&format!("/v1/prices/stream?market={MARKET}"), None).await;
    let (points, _) = stream.next_of("points").await;
    assert_eq!((&points[0]["market"], points.len()), (&Value::from(MARKET), 1));
    assert_eq!(points[0]["numbers"]["market_price_micros"], "0");
    world.offer("p1", 1, SECOND).await;
    let (points, id) = stream.next_of("points").await;
    assert_eq!(points[0]["numbers"]["market_price_micros"], "1000000");
    drop(stream);
    world.bid("t1", 1, 2 * SECOND).await;
    world.bid("t2", 1, SECOND + 500_000).await;
    let mut stream = viewer.watch("/v1/prices/stream", Some(&id)).await;
    let mut prices = Vec::new();
    while prices.last() != Some(&"1500000".to_owned()) {
        let (points, _) = stream.next_of("points").await;
        let price = |point: &Value| point["numbers"]["market_price_micros"].as_str().unwrap().to_owned();
        prices.extend(points.iter().map(price));
    }
    assert_eq!(prices, ["1000000", "1500000"]);
}

#[tokio::test]
async fn a_stream_ends_with_a_problem_when_the_server_goes() {
    let world = World::new().await;
    let mut stream = world.client("t1").watch("/v1/events/stream", None).await;
    stream.next().await.unwrap();
    world.api.close();
    let last = stream.next().await.unwrap();
    assert_eq!((last.name.as_str(), &last.data["code"]), ("problem", &Value::from("UNAVAILABLE")));
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_stream_of_another_journal_is_gone() {
    let world = World::new().await;
    let cursor = World::new().await.client("t1").get("/v1/markets").await.json["cursor"].clone();
    let headers = [("last-event-id", cursor.as_str().unwrap())];
    let refused = world.client("t1").send("GET", "/v1/events/stream", &headers, "").await;
    assert_eq!((refused.status, refused.code()), (410, "GONE"));
}
