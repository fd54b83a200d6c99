//! Tests of watches: catching up, live, and back to the tables if the reader was too slow.

use crate::world::{SECOND, World, caller};
use futures_util::{Stream, StreamExt};
use kubebid_engine::wire::cursor::Cursor;
use kubebid_engine::wire::status::ApiError;
use kubebid_proto::v1;
use std::pin::pin;
use std::time::Duration;

type Places = Vec<(u64, u32)>;

fn request(kinds: &[&str], cursor: &str) -> v1::WatchEventsRequest {
    let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    let filter = Some(v1::EventFilter { kinds, ..Default::default() });
    v1::WatchEventsRequest { cursor: cursor.to_owned(), from_start: cursor.is_empty(), filter }
}

fn bid() -> v1::PlaceBidRequest {
    let markets = vec![crate::world::MARKET.to_owned()];
    v1::PlaceBidRequest { markets, ceiling_micros: 2 * SECOND, max_nodes: 1, ..Default::default() }
}

/// Reads frames until this many events have come.
async fn take(
    frames: impl Stream<Item = Result<v1::WatchEventsResponse, ApiError>>,
    count: usize,
) -> (Places, String) {
    let mut frames = pin!(frames);
    let (mut places, mut cursor) = (Vec::new(), String::new());
    while places.len() < count {
        let frame = tokio::time::timeout(Duration::from_secs(20), frames.next()).await;
        let frame = frame.expect("more comes").unwrap().unwrap();
        places.extend(frame.events.iter().map(|event| (event.seq, event.index)));
        cursor = frame.cursor;
    }
    (places, cursor)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_falls_behind_still_gets_everything_once() {
    // The feed holds so little that a watcher that does not read loses the live end at once.
    let world = World::with(|options| options.feed = 2).await;
    world.offer("p1", 100, SECOND).await;
    let watch = world.api.watch_events(&caller("t1"), request(&["bid_placed"], "")).await.unwrap();
    let mut watch = Box::pin(watch);
    let (mut places, _) = take(&mut watch, 0).await;
    let mut bids = Vec::new();
    for round in 0..5 {
        for _ in 0..20 {
            bids.push(world.bid("t1", 1, 2 * SECOND).await);
        }
        let (found, _) = take(&mut watch, 20 * (round + 1) - places.len()).await;
        places.extend(found);
    }
    assert_eq!(places.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), bids);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_market_that_is_named_many_times_is_sent_once() {
    let world = World::new().await;
    let market = crate::world::MARKET.to_owned();
    let request = v1::WatchPricesRequest { markets: vec![market.clone(); 100], ..Default::default() };
    let mut prices = pin!(world.api.watch_prices(&caller("v1"), request).await.unwrap());
    let first = prices.next().await.unwrap().unwrap();
    assert_eq!(first.points.iter().map(|point| &point.market).collect::<Vec<_>>(), [&market]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_and_live_events_follow_each_other_without_a_gap() {
    let world = World::new().await;
    world.offer("p1", 200, SECOND).await;
    let api = world.api.clone();
    let bidding = tokio::spawn(async move {
        let mut bids = Vec::new();
        for _ in 0..200 {
            bids.push(api.place_bid(&caller("t1"), bid()).await.unwrap().bid);
        }
        bids
    });
    let (mut places, mut cursor) = (Vec::new(), String::new());
    while places.len() < 200 {
        let frames = world.api.watch_events(&caller("t1"), request(&["bid_placed"], &cursor)).await.unwrap();
        let count = 7.min(200 - places.len());
        let (found, next) = take(frames, count).await;
        places.extend(found);
        cursor = next;
    }
    let bids = bidding.await.unwrap();
    assert_eq!(places.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), bids);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tenant_gets_the_events_that_concern_it_while_the_others_trade() {
    let world = World::new().await;
    let names = ["t1", "t2", "t3"];
    let (mut watches, mut tenants) = (Vec::new(), Vec::new());
    for name in names {
        let watch = world.api.watch_events(&caller(name), request(&["bid_placed"], "")).await.unwrap();
        let api = world.api.clone();
        tenants.push(tokio::spawn(async move {
            let mut bids = Vec::new();
            for _ in 0..100 {
                bids.push(api.place_bid(&caller(name), bid()).await.unwrap().bid);
            }
            bids
        }));
        watches.push(Box::pin(watch));
    }
    for (watch, tenant) in watches.iter_mut().zip(tenants) {
        let (places, _) = take(watch, 100).await;
        assert_eq!(places.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), tenant.await.unwrap());
    }
    // The cursor of a watch goes on even if no event concerns it.
    let [first, ..] = &mut watches[..] else { unreachable!() };
    let last = world.bid("t2", 1, SECOND).await;
    let cursor = loop {
        let frame = first.next().await.unwrap().unwrap();
        assert_eq!(frame.events.len(), 0);
        if frame.seq >= last {
            break frame.cursor;
        }
    };
    let own = world.bid("t1", 1, SECOND).await;
    let resumed = world.api.watch_events(&caller("t1"), request(&["bid_placed"], &cursor)).await.unwrap();
    let (heard, heard_again) = (take(first, 1).await.0, take(resumed, 1).await.0);
    assert_eq!(heard[0].0, own);
    assert_eq!(heard, heard_again);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_from_the_end_waits_for_no_table() {
    let world = World::with(|options| {
        options.omitted.projections = true;
        options.projection_lag = u64::MAX;
    })
    .await;
    let api = world.api.clone();
    let bidding = tokio::spawn(async move {
        loop {
            api.place_bid(&caller("t1"), bid()).await.unwrap();
        }
    });
    for name in ["t1", "admin"].repeat(20) {
        let watch = world.api.watch_events(&caller(name), v1::WatchEventsRequest::default()).await.unwrap();
        take(watch, 1).await;
    }
    bidding.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_with_more_events_than_a_frame_is_cut() {
    let world = World::new().await;
    let frames = world.api.watch_events(&caller("p1"), request(&["unit_added"], "")).await.unwrap();
    let mut frames = Box::pin(frames);
    frames.next().await.unwrap().unwrap();
    world.offer("p1", 2500, SECOND).await;
    let (places, _) = take(&mut frames, 2500).await;
    assert!(places.is_sorted_by(|a, b| a < b));
    assert_eq!(places.len(), 2500);
    // The same from the middle of the command.
    let middle = Cursor { journal: world.api.engine().journal_id(), seq: places[0].0, index: places[1234].1 };
    let rest =
        world.api.watch_events(&caller("p1"), request(&["unit_added"], &middle.to_string())).await.unwrap();
    let (rest, _) = take(rest, 2500 - 1235).await;
    assert_eq!(rest, places[1235..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_and_past_events_are_found_by_the_same_filter() {
    let world = World::new().await;
    let filters = [
        v1::EventFilter::default(),
        v1::EventFilter { bids: vec![3], ..Default::default() },
        v1::EventFilter { allocations: vec![1], ..Default::default() },
        v1::EventFilter { markets: vec!["h100-8x/eu-west".into()], ..Default::default() },
        v1::EventFilter { markets: vec!["a/b".into()], ..Default::default() },
        v1::EventFilter { labels: [("team".into(), "vision".into())].into(), ..Default::default() },
        v1::EventFilter { kinds: vec!["price_changed".into(), "ended".into()], ..Default::default() },
    ];
    let mut watches = Vec::new();
    for who in ["t1", "t2", "t3", "p1", "v1", "admin"] {
        for filter in &filters {
            let request = v1::WatchEventsRequest { filter: Some(filter.clone()), ..Default::default() };
            let frames = world.api.watch_events(&caller(who), request).await.unwrap();
            let mut frames = Box::pin(frames);
            frames.next().await.unwrap().unwrap();
            watches.push((who, filter.clone(), frames));
        }
    }
    let first = world.api.engine().ask(|exchange| exchange.seq().0).await.unwrap();
    world.offer("p1", 1, SECOND).await;
    let labels = [("team".to_owned(), "vision".to_owned())].into();
    let markets = vec!["h100-8x/eu-west".to_owned()];
    let bid = v1::PlaceBidRequest {
        markets,
        ceiling_micros: 2 * SECOND,
        max_nodes: 1,
        labels,
        ..Default::default()
    };
    world.place("t1", bid).await;
    world.ready("t1", 1).await;
    world.bid("t2", 1, 3 * SECOND).await;
    let any = v1::PlaceBidRequest {
        instance_type: "a".into(),
        ceiling_micros: SECOND,
        max_nodes: 1,
        ..Default::default()
    };
    world.place("t3", any).await;
    world.at(1000).await;
    world.bid("t3", 1, 9 * SECOND).await;
    world.at(5000).await;
    let last = world.api.engine().ask(|exchange| exchange.seq().0).await.unwrap();
    let heard = watches.into_iter().map(async |(who, filter, mut frames)| {
        let mut live = Vec::new();
        loop {
            let frame = frames.next().await.unwrap().unwrap();
            live.extend(frame.events);
            if frame.seq >= last {
                return (who, filter, live);
            }
        }
    });
    for (who, filter, live) in futures_util::future::join_all(heard).await {
        let request = v1::ListEventsRequest {
            cursor: Cursor::after(world.api.engine().journal_id(), first).to_string(),
            filter: Some(filter.clone()),
            page_size: 1000,
            min_seq: last,
            ..Default::default()
        };
        let past = world.api.list_events(&caller(who), request).await.unwrap().events;
        let brief = |events: &[v1::Event]| -> Places {
            events.iter().map(|event| (event.seq, event.index)).collect()
        };
        assert_eq!(brief(&live), brief(&past), "{who} {filter:?}");
        assert_eq!(live, past, "{who} {filter:?}");
        let expected = filter == v1::EventFilter::default();
        assert!(!past.is_empty() || !expected, "{who}");
    }
}

#[tokio::test]
async fn a_cursor_of_another_journal_or_ahead_of_the_end_is_gone() {
    let world = World::new().await;
    let journal = world.api.engine().journal_id();
    let ahead = Cursor::after(journal, world.api.engine().applied() + 100).to_string();
    let other = Cursor::after(World::new().await.api.engine().journal_id(), 0).to_string();
    for cursor in [ahead, other] {
        let watched = world.api.watch_events(&caller("t1"), request(&[], &cursor)).await;
        assert_eq!(watched.err().unwrap().code.word(), "GONE");
        let prices = v1::WatchPricesRequest { cursor: cursor.clone(), ..Default::default() };
        assert_eq!(world.api.watch_prices(&caller("t1"), prices).await.err().unwrap().code.word(), "GONE");
        let list = v1::ListEventsRequest { cursor, ..Default::default() };
        assert_eq!(world.api.list_events(&caller("t1"), list).await.err().unwrap().code.word(), "GONE");
    }
    let now = Cursor::after(journal, world.api.engine().applied()).to_string();
    assert!(world.api.watch_events(&caller("t1"), request(&[], &now)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_by_label_follow_commits_and_read_no_events_from_the_tables() {
    // No tables are written, so an event that is read there would never be found.
    let world = World::with(|options| options.omitted.projections = true).await;
    let labels = |team: &str| [("team".to_owned(), team.to_owned())].into();
    let watch = async |team: &str| {
        let filter = v1::EventFilter { labels: labels(team), ..Default::default() };
        let request = v1::WatchEventsRequest { filter: Some(filter), ..Default::default() };
        Box::pin(world.api.watch_events(&caller("t1"), request).await.unwrap())
    };
    let (mut vision, mut speech) = (watch("vision").await, watch("speech").await);
    world.bid("t1", 1, 2 * SECOND).await;
    let placed = world.place("t1", v1::PlaceBidRequest { labels: labels("vision"), ..bid() }).await;
    let other = world.place("t1", v1::PlaceBidRequest { labels: labels("speech"), ..bid() }).await;
    world.place("t2", v1::PlaceBidRequest { labels: labels("vision"), ..bid() }).await;
    let last = world.place("t1", v1::PlaceBidRequest { labels: labels("vision"), ..bid() }).await;
    let seqs = |places: Places| places.into_iter().map(|(seq, _)| seq).collect::<Vec<_>>();
    assert_eq!(seqs(take(&mut vision, 2).await.0), [placed, last]);
    assert_eq!(seqs(take(&mut speech, 1).await.0), [other]);
}
