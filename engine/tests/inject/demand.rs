//! Tests of demand spikes: they take nodes from others, and they end.

use crate::place::TestPlace;
use crate::{Drill, INJECT, MARKET, SECOND, on_both};
use kubebid_core::units::{BidId, MarketId};
use kubebid_core::{Auction, Exchange};
use kubebid_engine::api::Api;
use kubebid_proto::v1;

on_both! {
    a_spike_outbids_others_and_releases_its_nodes_when_it_expires_also_after_a_restart
}

fn spike(nodes: u32, ceiling_micros: u64, seconds: u64) -> v1::InjectDemandRequest {
    v1::InjectDemandRequest {
        market: MARKET.to_owned(),
        nodes,
        ceiling_micros,
        duration_us: seconds * SECOND,
    }
}

/// Returns a condition that is true when this many nodes of the bid run, which is all that it will get by
/// now.
fn runs(nodes: usize) -> impl Fn(&Exchange, u64) -> bool + Clone + Send + 'static {
    move |exchange, bid| {
        let bid = exchange.view_bid(BidId(bid)).expect("the bid is there");
        let ready = |node| exchange.view_allocation(node).is_some_and(|node| node.ready_at.is_some());
        bid.live.len() == nodes && bid.live.iter().all(|node| ready(*node))
    }
}

fn holds_nothing(bid: u64) -> impl Fn(&Exchange) -> bool + Clone + Send + 'static {
    move |exchange| {
        let bid = exchange.view_bid(BidId(bid)).expect("the bid is there");
        !bid.searching && bid.live.is_empty() && bid.under_notice.is_empty()
    }
}

async fn a_spike_outbids_others_and_releases_its_nodes_when_it_expires_also_after_a_restart(
    place: TestPlace,
) {
    let drill = Drill::new(&place).await;
    drill.offer("p1", MARKET, 3, 1_000_000).await;
    let t1 = drill.bid("t1", 2, 2_000_000).await;
    for allocation in [1, 2] {
        drill.ready("t1", allocation).await;
    }
    drill.at(1000).await;

    let begun = drill.api.inject_demand(&drill.admin, spike(3, 5_000_000, 600)).await.unwrap();
    assert_eq!((begun.held, begun.claimed), (1, 2), "one is free, two are to be had after a notice");
    assert_eq!(begun.expire_at_us, 1600 * SECOND);
    assert_eq!(drill.view(t1).await.under_notice.len(), 2);
    let price = drill.ask(|exchange| exchange.market_numbers(MarketId(0)).0).await;
    assert_eq!(price.market_price.0, 2_000_000, "others feel it");
    drill.at(1300).await;
    let (ready, bid) = (runs(3), begun.bid);
    drill.until(move |exchange| ready(exchange, bid)).await;

    let hash = drill.stop().await;
    let drill = Drill::again(&place).await;
    assert_eq!(drill.ask(Exchange::state_hash).await, hash);
    drill.at(1599).await;
    assert_eq!(drill.view(begun.bid).await.live.len(), 3);
    drill.at(1600).await;
    drill.until(holds_nothing(begun.bid)).await;
    assert_eq!(drill.view(t1).await.live.len(), 2, "what was taken comes back");
    drill.stop().await;

    // After a restart, what a spike left behind meanwhile is found.
    let drill = Drill::again(&place).await;
    let begun = drill.api.inject_demand(&drill.admin, spike(1, 5_000_000, 60)).await.unwrap();
    drill.stop().await;
    let off = Drill::with(&place, kubebid_engine::runtime::clock::Clock::Stepped, false).await;
    off.at(2000).await;
    assert!(!off.view(begun.bid).await.searching);
    off.stop().await;
    let drill = Drill::again(&place).await;
    drill.until(holds_nothing(begun.bid)).await;
    drill.stop().await;
}

async fn ended(api: &Api, drill: &Drill, bid: Option<u64>) -> v1::EndDemandResponse {
    api.end_demand(&drill.admin, v1::EndDemandRequest { bid }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spike_can_be_ended_early_and_other_bids_cannot() {
    let place = TestPlace::sqlite();
    let drill = Drill::new(&place).await;
    drill.offer("p1", MARKET, 4, 1_000_000).await;
    let t1 = drill.bid("t1", 1, 2_000_000).await;
    let mut bids = Vec::new();
    for nodes in [1, 2] {
        bids.push(drill.api.inject_demand(&drill.admin, spike(nodes, 3_000_000, 600)).await.unwrap().bid);
    }
    for bid in [t1, 999] {
        let request = v1::EndDemandRequest { bid: Some(bid) };
        let refusal = drill.api.end_demand(&drill.admin, request).await.unwrap_err();
        assert_eq!(refusal.code.word(), "UNKNOWN_BID");
    }
    let first = ended(&drill.api, &drill, Some(bids[0])).await;
    assert_eq!((&first.bids[..], first.released), (&bids[..1], 1));
    let rest = ended(&drill.api, &drill, None).await;
    assert_eq!((&rest.bids[..], rest.released), (&bids[1..], 2));
    assert!(ended(&drill.api, &drill, None).await.bids.is_empty());
    assert_eq!(drill.view(t1).await.live.len(), 1);
    drill.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spike_is_an_ordinary_bid_of_an_account_of_its_own() {
    let place = TestPlace::sqlite();
    let drill = Drill::new(&place).await;
    drill.offer("p1", MARKET, 1, 1_000_000).await;
    let begun = drill.api.inject_demand(&drill.admin, spike(1, 3_000_000, 600)).await.unwrap();
    let tenant = drill.view(begun.bid).await.tenant;
    assert_eq!(drill.ask(move |exchange| exchange.names().account(tenant).to_string()).await, INJECT);
    let accounts = drill.api.list_accounts(&drill.admin, Default::default()).await.unwrap().accounts;
    assert!(accounts.iter().any(|account| account.name == INJECT), "{accounts:?}");

    // The account has limits like any other.
    let limits = Some(v1::AccountLimits { nodes_wanted: Some(2), ..Default::default() });
    let limited = v1::PutAccountRequest { name: INJECT.to_owned(), limits };
    drill.api.put_account(&drill.admin, limited).await.unwrap();
    for (request, code) in [
        (spike(2, 3_000_000, 600), "LIMIT"),
        (spike(0, 3_000_000, 600), "BAD_NODES"),
        (spike(1, 3_000_001, 600), "NOT_A_TICK"),
        (spike(1, 3_000_000, 0), "EXPIRED"),
        (v1::InjectDemandRequest { market: "a/b".to_owned(), ..spike(1, 100, 1) }, "UNKNOWN_MARKET"),
        (v1::InjectDemandRequest { duration_us: u64::MAX, ..spike(1, 100, 1) }, "BAD_FIELD"),
    ] {
        let refusal = drill.api.inject_demand(&drill.admin, request).await.unwrap_err();
        assert_eq!(refusal.code.word(), code, "{refusal}");
    }
    drill.stop().await;
}
