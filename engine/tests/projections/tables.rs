//! Tests that the tables have the state of the exchange, after restarts and rebuilds too.

use crate::dump::{TABLES, assert_same, dump};
use crate::market::{Market, projected};
use crate::place::TestPlace;
use kubebid_core::Auction;
use kubebid_core::units::AllocationId;
use kubebid_engine::Engine;
use kubebid_engine::lifecycle::rebuild::rebuild;
use kubebid_engine::readmodel::queries::{AllocationQuery, BidQuery};
use kubebid_engine::readmodel::rows::{BidState, NodeState};
use sqlx::Executor;

crate::on_both! {
    the_tables_say_what_the_exchange_says
    a_restart_changes_nothing
    an_engine_fills_empty_tables
    rebuilding_gives_the_same_tables
}

async fn the_tables_say_what_the_exchange_says(place: TestPlace) {
    let (engine, running) = place.start().await;
    let mut market = Market::new(1);
    market.open(&engine).await;
    for _ in 0..4 {
        market.run(&engine, 150).await;
        projected(&engine).await;
        assert_eq!(engine.projected(), engine.applied());
        compare(&engine).await;
    }
    drop(engine);
    running.stop().await.unwrap();
}

pub(crate) async fn compare(engine: &Engine) {
    let (bids, nodes) = engine
        .ask(|exchange| {
            let dump = exchange.dump();
            let bids: Vec<_> = dump.bids.iter().map(|bid| exchange.view_bid(bid.bid).unwrap()).collect();
            let live = exchange.held_allocations();
            let nodes: Vec<_> = live.iter().map(|id| exchange.view_allocation(*id).unwrap()).collect();
            (bids, nodes)
        })
        .await
        .unwrap();
    let names = engine.views().names();
    let rows = engine.read_model().bids(&BidQuery { limit: 10_000, ..BidQuery::default() }).await.unwrap();
    assert_eq!(rows.len(), bids.len());
    for (row, view) in rows.iter().zip(&bids) {
        assert_eq!(row.bid, view.bid);
        assert_eq!(row.tenant, names.account(view.tenant).as_str());
        assert_eq!((row.ceiling, row.bid_seq), (view.ceiling, view.bid_seq), "{row:?}");
        assert_eq!((row.min_nodes, row.max_nodes), (view.min_nodes, view.max_nodes), "{row:?}");
        assert_eq!((row.expire_at, row.closes_on_preemption), (view.expire_at, view.closes_on_preemption));
        let held = [view.live.len(), view.under_notice.len(), view.claims.len()].map(|n| n as u32);
        assert_eq!([row.held, row.under_notice, row.claimed], held, "{row:?}");
        assert_eq!(row.unmet, view.unmet, "{row:?}");
        assert_eq!(row.state == BidState::Open, view.searching, "{row:?}");
        assert_eq!(row.close_reason.is_some(), !view.searching, "{row:?}");
        assert_eq!(row.closed_at.is_some(), !view.searching, "{row:?}");
    }
    let states = [NodeState::Starting, NodeState::Active].into();
    let query = AllocationQuery { states, limit: 10_000, ..AllocationQuery::default() };
    let rows = engine.read_model().allocations(&query).await.unwrap();
    assert_eq!(rows.len(), nodes.len());
    for (row, view) in rows.iter().zip(&nodes) {
        assert_eq!((row.allocation, row.bid), (view.allocation, view.bid));
        assert_eq!(row.tenant, names.account(view.tenant).as_str());
        assert_eq!(row.unit, names.unit(view.unit).to_string());
        assert_eq!(row.ready_at, view.ready_at, "{row:?}");
        assert_eq!((row.start_by, row.protected_until), (view.start_by, view.protected_until), "{row:?}");
        let notice = row.notice.map(|notice| (notice.reason, notice.deadline));
        assert_eq!(notice, view.notice.map(|notice| (notice.reason, notice.deadline)), "{row:?}");
    }
    let ended =
        AllocationQuery { states: [NodeState::Ended].into(), limit: 10_000, ..AllocationQuery::default() };
    let ended = engine.read_model().allocations(&ended).await.unwrap();
    let last = rows.iter().chain(&ended).map(|row| row.allocation).max();
    assert_eq!(last, Some(AllocationId((rows.len() + ended.len()) as u64)));
    for row in &ended {
        assert!(row.ended_at.is_some() && row.end_reason.is_some() && row.last_price.is_some(), "{row:?}");
    }
}

async fn a_restart_changes_nothing(place: TestPlace) {
    let unbroken = place.another();
    let (engine, running) = unbroken.start().await;
    let mut market = Market::new(2);
    market.open(&engine).await;
    for _ in 0..3 {
        market.run(&engine, 100).await;
    }
    drop(engine);
    running.stop().await.unwrap();

    let mut market = Market::new(2);
    let (engine, running) = place.start().await;
    market.open(&engine).await;
    market.run(&engine, 100).await;
    drop(engine);
    running.stop().await.unwrap();
    for _ in 0..2 {
        let (engine, running) = place.start().await;
        market.run(&engine, 100).await;
        drop(engine);
        running.stop().await.unwrap();
    }
    assert_same(&dump(&place).await, &dump(&unbroken).await);
}

async fn an_engine_fills_empty_tables(place: TestPlace) {
    let (engine, running) = place.start().await;
    let mut market = Market::new(3);
    market.open(&engine).await;
    market.run(&engine, 200).await;
    drop(engine);
    running.stop().await.unwrap();
    let before = dump(&place).await;

    let mut connection = place.connect().await;
    for table in TABLES.iter().filter(|table| **table != "projection") {
        connection.execute(sqlx::AssertSqlSafe(format!("DELETE FROM {table}"))).await.unwrap();
    }
    connection.execute("UPDATE projection SET watermark = 0").await.unwrap();
    drop(connection);
    let (engine, running) = place.start().await;
    projected(&engine).await;
    assert_same(&dump(&place).await, &before);
    drop(engine);
    running.stop().await.unwrap();
}

async fn rebuilding_gives_the_same_tables(place: TestPlace) {
    let (engine, running) = place.start().await;
    let mut market = Market::new(4);
    market.open(&engine).await;
    market.run(&engine, 300).await;
    drop(engine);
    running.stop().await.unwrap();
    let before = dump(&place).await;
    assert!(
        before["events"].len() > 1000 && before["charges"].len() > 30 && before["charge_segments"].len() > 60
    );

    let mut steps = Vec::new();
    rebuild(&place.options, |done, total| steps.push((done, total))).await.unwrap();
    assert_same(&dump(&place).await, &before);
    let (done, total) = *steps.last().unwrap();
    assert_eq!(done, total);

    // An engine continues from there.
    let (engine, running) = place.start().await;
    market.run(&engine, 20).await;
    projected(&engine).await;
    compare(&engine).await;
    drop(engine);
    running.stop().await.unwrap();
}
