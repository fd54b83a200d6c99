//! Answers stay below the 4 MiB that clients of gRPC accept by default: pages and frames end with their bytes as well
//! as with their entries. The clients here have the default limits.

use crate::rest;
use crate::world::{Caller, World};
use futures_util::{StreamExt, TryStreamExt, stream};
use kubebid_proto::v1;
use prost::Message;
use tonic::Streaming;
use v1::token::Role;

/// The most bytes of the entries of an answer, and of the fields around them.
const MOST: usize = (1 << 20) + 1024;
/// More bids than fit into 4 MiB.
const BIDS: usize = 400;
/// More markets than fit into a frame with present numbers.
const MARKETS: usize = 9000;

/// Returns the longest name of a market with this number.
fn market(number: usize) -> String {
    format!("{number:0>63}/{}", "r".repeat(63))
}

/// Places bids that have some 15 kB each, in two commits, and returns their numbers.
async fn place_large_bids(world: &World, caller: &Caller) -> Vec<u64> {
    let markets: Vec<String> = (0..100).map(market).collect();
    for market in &markets {
        world.open(market, v1::MarketRules::default()).await;
    }
    let labels = (0..8).map(|label| (format!("{label}"), "v".repeat(250))).collect();
    let bid =
        v1::PlaceBidRequest { markets, labels, ceiling_micros: 100, max_nodes: 1, ..Default::default() };
    let frame = v1::PlaceBidsRequest { bids: vec![bid; BIDS / 2] };
    let frames = tokio_stream::iter([frame.clone(), frame]);
    let answers = caller.bids().place_bids(frames).await.unwrap().into_inner();
    let answers: Vec<v1::PlaceBidsResponse> = answers.try_collect().await.unwrap();
    let results = answers.into_iter().flat_map(|answer| answer.results);
    let placed = results.map(|result| match result.outcome {
        Some(v1::place_bids_response::result::Outcome::Placed(placed)) => placed.bid,
        refused => panic!("{refused:?}"),
    });
    placed.collect()
}

/// Reads the bids that events tell of, until all are there. Checks the size of each frame.
async fn bids_of(mut watch: Streaming<v1::WatchEventsResponse>) -> (Vec<u64>, usize) {
    let (mut bids, mut frames) = (Vec::new(), 0);
    while bids.len() < BIDS {
        let frame = watch.message().await.unwrap().unwrap();
        assert!(frame.encoded_len() <= MOST, "{} bytes", frame.encoded_len());
        frames += usize::from(!frame.events.is_empty());
        bids.extend(frame.events.iter().filter(|event| event.is_placed()).map(|event| event.seq));
    }
    (bids, frames)
}

trait Placed {
    fn is_placed(&self) -> bool;
}

impl Placed for v1::Event {
    fn is_placed(&self) -> bool {
        matches!(self.kind, Some(v1::event::Kind::BidPlaced(_)))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_large_bids_or_of_their_events_is_read_in_pages_below_the_limit_of_an_ordinary_client() {
    let world = World::start().await;
    let caller = world.tenant("t1").await;
    let placed = place_large_bids(&world, &caller).await;
    let min_seq = placed[BIDS - 1];
    let (mut bids, mut pages, mut page_token) = (Vec::new(), 0, String::new());
    loop {
        let request = v1::ListBidsRequest { page_size: 1000, page_token, min_seq, ..Default::default() };
        let page = caller.bids().list_bids(request).await.unwrap().into_inner();
        assert!(page.encoded_len() <= MOST, "{} bytes", page.encoded_len());
        assert!(!page.bids.is_empty());
        bids.extend(page.bids.iter().map(|bid| bid.bid));
        pages += 1;
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(bids, placed);
    assert!((5..10).contains(&pages), "{pages} pages");
    for newest_first in [false, true] {
        let (mut seqs, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = v1::ListEventsRequest {
                filter: Some(v1::EventFilter { kinds: vec!["bid_placed".into()], ..Default::default() }),
                page_size: 1000,
                page_token,
                newest_first,
                ..Default::default()
            };
            let page = caller.events().list_events(request).await.unwrap().into_inner();
            assert!(page.encoded_len() <= MOST, "{} bytes", page.encoded_len());
            seqs.extend(page.events.iter().map(|event| event.seq));
            page_token = page.next_page_token;
            if !newest_first && !page_token.is_empty() {
                // A watch from the cursor of a page begins after its last event.
                let filter = v1::EventFilter { kinds: vec!["bid_placed".into()], ..Default::default() };
                let (cursor, filter) = (page.cursor, Some(filter));
                let watch = v1::WatchEventsRequest { cursor, filter, ..Default::default() };
                let mut watch = caller.events().watch_events(watch).await.unwrap().into_inner();
                let first = watch.message().await.unwrap().unwrap().events.remove(0);
                assert_eq!(first.seq, placed[seqs.len()]);
            }
            if page_token.is_empty() {
                break;
            }
        }
        seqs.sort_unstable();
        assert_eq!(seqs, placed);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_rest_end_with_the_same_bytes() {
    let world = World::start().await;
    let caller = world.tenant("t1").await;
    let placed = place_large_bids(&world, &caller).await;
    let client = rest::Client::new(world.address, caller.bearer.0.clone());
    let (mut bids, mut token, mut largest) = (Vec::new(), String::new(), 0);
    loop {
        let path = format!("/v1/bids?page_size=1000&min_seq={}&page_token={token}", placed[BIDS - 1]);
        let page = client.get(&path).await;
        assert_eq!(page.status, 200, "{}", page.text);
        largest = largest.max(page.text.len());
        let numbers = page.json["bids"].as_array().unwrap().iter().map(|bid| bid["bid"].as_str().unwrap());
        bids.extend(numbers.map(|bid| bid.parse::<u64>().unwrap()));
        token = page.json["next_page_token"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(bids, placed);
    assert!(largest < 2 << 20, "{largest} bytes");
    let (mut seen, mut id) = (Vec::new(), None);
    while seen.len() < BIDS {
        // Each frame of a new stream: the next one begins where the one before ended.
        let path = "/v1/events/stream?kind=bid_placed&from_start=true";
        let mut stream = client.watch(path, id.as_deref()).await;
        let (events, cursor) = stream.next_of("events").await;
        assert!(serde_json::to_string(&events).unwrap().len() < 2 << 20);
        seen.extend(events.iter().map(|event| event["seq"].as_str().unwrap().parse::<u64>().unwrap()));
        id = Some(cursor);
    }
    assert_eq!(seen, placed);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_client_gets_past_large_events_from_the_start_and_live() {
    let world = World::start().await;
    let tenant = world.tenant("t1").await;
    let filters = [
        (world.admin.clone(), v1::EventFilter::default()),
        (world.admin.clone(), v1::EventFilter { kinds: vec!["bid_placed".into()], ..Default::default() }),
        (tenant.clone(), v1::EventFilter::default()),
    ];
    let mut live = Vec::new();
    for (caller, filter) in &filters {
        let request = v1::WatchEventsRequest { filter: Some(filter.clone()), ..Default::default() };
        let mut watch = caller.events().watch_events(request).await.unwrap().into_inner();
        // The first frame says that the watch has begun.
        watch.message().await.unwrap().unwrap();
        // All share a connection: what one of them does not read holds up the others.
        live.push(tokio::spawn(bids_of(watch)));
    }
    let placed = place_large_bids(&world, &tenant).await;
    for watch in live {
        let (bids, frames) = watch.await.unwrap();
        assert_eq!(bids, placed);
        assert!(frames >= 5, "{frames} frames");
    }
    for (caller, filter) in filters {
        let request = v1::WatchEventsRequest { filter: Some(filter), from_start: true, ..Default::default() };
        let (bids, frames) = bids_of(caller.events().watch_events(request).await.unwrap().into_inner()).await;
        assert_eq!(bids, placed);
        assert!((5..30).contains(&frames), "{frames} frames");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_present_prices_of_thousands_of_markets_come_in_several_frames() {
    let world = World::start().await;
    let opened = stream::iter(0..MARKETS).for_each_concurrent(64, |number| {
        let world = &world;
        async move { world.open(&market(number), v1::MarketRules::default()).await }
    });
    opened.await;
    let viewer = world.caller("v1", &[Role::Viewer]).await;
    let mut watch =
        viewer.markets().watch_prices(v1::WatchPricesRequest::default()).await.unwrap().into_inner();
    let (mut markets, mut frames) = (0, 0);
    loop {
        let frame = watch.message().await.unwrap().unwrap();
        assert!(frame.encoded_len() <= MOST, "{} bytes", frame.encoded_len());
        (markets, frames) = (markets + frame.points.len(), frames + 1);
        // A watch that ends before has no place to go on from.
        assert_eq!(frame.cursor.is_empty(), markets <= MARKETS, "{markets} markets");
        if !frame.cursor.is_empty() {
            break;
        }
    }
    assert_eq!(markets, MARKETS + 1);
    assert!(frames > 1);
    let client = rest::Client::new(world.address, viewer.bearer.0.clone());
    let mut stream = client.watch("/v1/prices/stream", None).await;
    let first = stream.next().await.unwrap();
    assert!(first.data["points"].as_array().unwrap().len() < MARKETS);
    assert_eq!((&first.id[..], &first.data["cursor"]), ("", &"".into()));
    world.stop().await;
}
