//! Past prices and past events.

use crate::world::{MARKET, SECOND, World, caller};
use kubebid_proto::v1;

#[tokio::test]
async fn prices_of_the_past_come_one_by_one_or_in_bars() {
    let world = World::new().await;
    world.at(30).await;
    world.offer("p1", 1, SECOND).await;
    world.at(60).await;
    world.bid("t1", 1, 3 * SECOND).await;
    world.at(90).await;
    world.bid("t2", 1, 2 * SECOND).await;
    world.at(120).await;
    let mut points = Vec::new();
    let mut request =
        v1::ListPriceHistoryRequest { market: MARKET.into(), page_size: 1, ..Default::default() };
    request.min_seq = world.api.engine().applied();
    loop {
        let page = world.api.list_price_history(&caller("v1"), request.clone()).await.unwrap();
        points.extend(page.points);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let prices: Vec<_> = points
        .iter()
        .map(|p| (p.at_us / SECOND, p.numbers.as_ref().unwrap().market_price_micros / SECOND))
        .collect();
    assert_eq!(prices, [(0, 0), (30, 1), (60, 1), (90, 2)]);

    let bars =
        v1::ListPriceHistoryRequest { market: MARKET.into(), bar_us: 60 * SECOND, ..Default::default() };
    let bars = world.api.list_price_history(&caller("v1"), bars).await.unwrap().bars;
    let shape = |b: &v1::PriceBar| {
        (b.start_us / SECOND, b.open_micros, b.high_micros, b.low_micros, b.close_micros, b.mean_micros)
    };
    assert_eq!(
        bars.iter().map(shape).collect::<Vec<_>>(),
        [(0, 0, SECOND, 0, SECOND, SECOND / 2), (60, SECOND, 2 * SECOND, SECOND, 2 * SECOND, SECOND * 3 / 2),]
    );
    for bar_us in [1, SECOND - 1, 86_401 * SECOND] {
        let bad = v1::ListPriceHistoryRequest { market: MARKET.into(), bar_us, ..Default::default() };
        let refused = world.api.list_price_history(&caller("v1"), bad).await.unwrap_err();
        assert_eq!((refused.code.word(), refused.field.as_deref()), ("BAD_FIELD", Some("bar_us")));
    }
}

#[tokio::test]
async fn an_entry_price_for_several_nodes_is_exact() {
    let world = World::new().await;
    world.offer("p1", 1, SECOND).await;
    world.offer("p2", 1, 2 * SECOND).await;
    let price_for = async |account, nodes| {
        let request = v1::GetMarketPriceRequest { market: MARKET.into(), nodes, ..Default::default() };
        world.api.get_market_price(&caller(account), request).await.map(|answer| answer.prices[0].clone())
    };
    let price = async |nodes| price_for("v1", nodes).await;
    let entry = |price: v1::MarketPrice| (price.entry_nodes, price.numbers.unwrap().entry_price_micros);
    assert_eq!(entry(price(None).await.unwrap()), (1, Some(SECOND)));
    assert_eq!(entry(price(Some(2)).await.unwrap()), (2, Some(2 * SECOND)));
    assert_eq!(entry(price(Some(3)).await.unwrap()), (3, None));
    assert_eq!(price(Some(0)).await.unwrap_err().field.as_deref(), Some("nodes"));
    // The prices of one node after the other would tell a provider the ceilings of those who hold its units.
    assert_eq!(entry(price_for("p1", Some(2)).await.unwrap()), (1, Some(SECOND)));
}

#[tokio::test]
async fn depth_has_both_sides_without_names() {
    let world = World::new().await;
    world.offer("p1", 2, SECOND).await;
    world.offer("p2", 1, 2 * SECOND).await;
    world.bid("t1", 2, 5 * SECOND).await;
    world.bid("t2", 3, 3 * SECOND).await;
    let gang = v1::PlaceBidRequest {
        markets: vec![MARKET.into()],
        ceiling_micros: SECOND,
        min_nodes: Some(2),
        max_nodes: 2,
        ..Default::default()
    };
    world.place("t3", gang).await;
    let depth = async |levels| {
        let request = v1::GetDepthRequest { market: MARKET.into(), levels, min_seq: 0 };
        let depth = world.api.get_depth(&caller("v1"), request).await.unwrap();
        let demand: Vec<_> =
            depth.demand.iter().map(|l| (l.ceiling_micros / SECOND, l.unmet, l.held, l.claimed)).collect();
        let supply: Vec<_> =
            depth.supply.iter().map(|l| (l.reserve_micros / SECOND, l.free, l.allocated, l.notice)).collect();
        (demand, supply)
    };
    let demand = vec![(5, 0, 2, 0), (3, 2, 1, 0), (1, 2, 0, 0)];
    assert_eq!(depth(0).await, (demand.clone(), vec![(1, 0, 2, 0), (2, 0, 1, 0)]));
    assert_eq!(depth(1).await, (demand[..1].to_vec(), vec![(1, 0, 2, 0)]));
    world.bid("t3", 1, 9 * SECOND).await;
    world.at(4000).await;
    let (demand, supply) = depth(0).await;
    assert_eq!(
        demand.iter().map(|(_, _, held, claimed)| held + claimed).sum::<u32>(),
        supply.iter().map(|(_, _, a, n)| a + n).sum::<u32>()
    );
}

#[tokio::test]
async fn a_seller_does_not_see_the_ceilings_of_nodes_that_are_held_in_its_market() {
    let world = World::new().await;
    world.offer("p1", 2, SECOND).await;
    world.bid("t1", 2, 5 * SECOND).await;
    world.bid("t2", 3, 3 * SECOND).await;
    let depth = async |who: &str, levels| {
        let request = v1::GetDepthRequest { market: MARKET.into(), levels, min_seq: 0 };
        let depth = world.api.get_depth(&caller(who), request).await.unwrap();
        let demand: Vec<_> =
            depth.demand.iter().map(|l| (l.ceiling_micros / SECOND, l.unmet, l.held, l.claimed)).collect();
        let supply: Vec<_> = depth.supply.iter().map(|l| (l.free, l.allocated, l.notice)).collect();
        (demand, supply)
    };
    let supply = vec![(0, 2, 0)];
    let all = vec![(5, 0, 2, 0), (3, 3, 0, 0)];
    for who in ["t1", "v1", "p2", "admin"] {
        assert_eq!(depth(who, 0).await, (all.clone(), supply.clone()), "{who}");
    }
    for levels in [0, 1] {
        assert_eq!(depth("p1", levels).await, (vec![(3, 3, 0, 0)], supply.clone()));
    }
    world.stop().await;
}

#[tokio::test]
async fn events_are_listed_both_ways_and_page_by_page() {
    let world = World::new().await;
    world.offer("p1", 3, SECOND).await;
    for _ in 0..3 {
        world.bid("t1", 1, 2 * SECOND).await;
    }
    let min_seq = world.api.engine().applied();
    let list = async |newest_first| {
        let mut request = v1::ListEventsRequest { page_size: 2, newest_first, min_seq, ..Default::default() };
        let mut places = Vec::new();
        loop {
            let page = world.api.list_events(&caller("t1"), request.clone()).await.unwrap();
            places.extend(page.events.iter().map(|event| (event.seq, event.index)));
            if page.next_page_token.is_empty() {
                return places;
            }
            request.page_token = page.next_page_token;
        }
    };
    let (up, mut down) = (list(false).await, list(true).await);
    down.reverse();
    assert_eq!(up, down);
    assert!(up.len() >= 6 && up.is_sorted());
    let filter =
        v1::EventFilter { kinds: vec!["allocated".into()], allocations: vec![2], ..Default::default() };
    let request = v1::ListEventsRequest { filter: Some(filter), ..Default::default() };
    assert_eq!(world.api.list_events(&caller("p1"), request.clone()).await.unwrap().events.len(), 1);
    assert_eq!(world.api.list_events(&caller("t2"), request).await.unwrap().events.len(), 0);
}

#[tokio::test]
async fn numbers_of_bids_of_others_find_nothing_and_cost_no_search() {
    let world = World::new().await;
    let (own, other) = (world.bid("t1", 1, SECOND).await, world.bid("t2", 1, SECOND).await);
    let listed = async |name: &str, bids: Vec<u64>| {
        let filter = v1::EventFilter { bids, ..Default::default() };
        let min_seq = world.api.engine().applied();
        let request = v1::ListEventsRequest { filter: Some(filter), min_seq, ..Default::default() };
        let events = world.api.list_events(&caller(name), request).await.unwrap().events;
        let placed = |event: v1::Event| {
            let Some(v1::event::Kind::BidPlaced(placed)) = event.kind else { return None };
            Some(placed.bid)
        };
        events.into_iter().filter_map(placed).collect::<Vec<_>>()
    };
    let unknown: Vec<u64> = (1_000..1_098).collect();
    assert_eq!(listed("t1", [vec![own, other], unknown.clone()].concat()).await, [own]);
    assert!(listed("t1", [vec![other], unknown].concat()).await.is_empty());
    assert!(listed("v1", vec![own, other]).await.is_empty());
}
