//! `kubebid bid place --strategy`: the ceilings are those that the operator bids.

use crate::process::{Engine, binary, market_and_tenant, sqlite, token_of};
use kubebid_client::v1::{self, token::Role};
use std::process::{Command, Output};

const MARKET: &str = "h100/eu";

fn place(engine: &Engine, token: &str, arguments: &str) -> Output {
    let mut command = Command::new(binary());
    command.args(["--endpoint", &engine.endpoint(), "--token", token, "bid", "place", "--nodes", "1", "-q"]);
    command.args(arguments.split(' ')).output().expect("the tool starts")
}

#[tokio::test]
async fn a_strategy_chooses_the_ceiling_of_a_bid_that_is_placed_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::start(&sqlite(folder.path()), folder.path(), &["--clock", "stepped"]);
    let admin = engine.admin().await;
    let token = market_and_tenant(&admin, MARKET, "t1").await;
    let tenant = engine.client(&token);
    let no_price = place(&engine, &token, "--max 10 --strategy balanced h100/eu");
    // Nobody has bid yet, so the floor of 2.60 stands for the median: the reference is 4.00.
    let offer = v1::PutOfferRequest {
        market: MARKET.into(),
        capacity: 10,
        reserve_micros: 2_600_000,
        ..Default::default()
    };
    let provider = engine.client(&token_of(&admin, "p1", Role::Provider).await);
    provider.put_offer(offer).await.expect("an offer");
    let mut placed = vec![(no_price, 10_000_000)];
    for (arguments, ceiling_micros) in [
        ("--max 10 --strategy cost-optimized h100/eu", 2_600_000),
        ("--max 10 --strategy balanced h100/eu", 3_600_000),
        ("--max 10 --strategy balanced --type h100", 3_600_000),
        ("--max 10 --strategy availability-optimized h100/eu", 4_800_000),
        ("--max 3 --strategy balanced h100/eu", 3_000_000),
    ] {
        placed.push((place(&engine, &token, arguments), ceiling_micros));
    }
    for (said, ceiling_micros) in placed {
        assert!(said.status.success(), "{said:?}");
        let bid = String::from_utf8(said.stdout).unwrap().trim().parse().expect("a number");
        let answer = tenant.get_bid(v1::GetBidRequest { bid, min_seq: 0 }).await.expect("the bid");
        assert_eq!(answer.bid.unwrap().ceiling_micros, ceiling_micros, "bid {bid}");
    }
    let nothing = place(&engine, &token, "--max 0.00005 --strategy balanced h100/eu");
    assert_eq!(nothing.status.code(), Some(2), "{nothing:?}");
    let complaint = String::from_utf8(nothing.stderr).expect("text");
    assert!(complaint.contains("--max is below the tick of the markets, 0.0001 dollars"), "{complaint}");
}

#[tokio::test]
async fn every_strategy_gets_a_node_of_a_provider_that_asks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::start(&sqlite(folder.path()), folder.path(), &["--clock", "stepped"]);
    let admin = engine.admin().await;
    let token = market_and_tenant(&admin, MARKET, "t1").await;
    let tenant = engine.client(&token);
    let offer =
        v1::PutOfferRequest { market: MARKET.into(), capacity: 3, reserve_micros: 0, ..Default::default() };
    let provider = engine.client(&token_of(&admin, "p1", Role::Provider).await);
    provider.put_offer(offer).await.expect("an offer");
    for strategy in ["cost-optimized", "balanced", "availability-optimized"] {
        let said = place(&engine, &token, &format!("--max 10 --strategy {strategy} {MARKET}"));
        assert!(said.status.success(), "{said:?}");
        let bid = String::from_utf8(said.stdout).unwrap().trim().parse().expect("a number");
        let answer = tenant.get_bid(v1::GetBidRequest { bid, min_seq: 0 }).await.expect("the bid");
        let bid = answer.bid.expect("the bid");
        assert_eq!((bid.ceiling_micros, bid.allocations.len()), (100, 1), "{strategy}");
    }
}
