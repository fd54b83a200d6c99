//! Rows that are no longer kept, and what is said of them.

use crate::market::{MARKETS, Market, projected};
use crate::place::TestPlace;
use futures_util::StreamExt;
use kubebid_core::money::Amount;
use kubebid_core::units::{MarketName, Micros};
use kubebid_engine::api::{Api, ApiOptions};
use kubebid_engine::lifecycle::rebuild::rebuild;
use kubebid_engine::readmodel::queries::{ChargeQuery, EventQuery};
use kubebid_engine::readmodel::retention::Retention;
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::store::Role;
use kubebid_engine::wire::cursor::Cursor;
use kubebid_engine::wire::status::Code;
use kubebid_engine::{Caller, Engine, EngineOptions, Running};
use kubebid_proto::v1;

crate::on_both! {
    old_events_and_prices_are_dropped_by_whole_days_and_charges_are_not
    cursors_into_dropped_events_are_gone
}

const DAY: u64 = 86_400_000_000;

async fn start(place: &TestPlace) -> (Engine, Running) {
    let retention = Retention { event_days: Some(1), price_days: Some(2) };
    let options = EngineOptions { retention, ..EngineOptions::new(place.options.clone(), Clock::Stepped) };
    Engine::start(options).await.unwrap()
}

/// Runs a market for some days.
async fn after_days(place: &TestPlace, seed: u64) -> (Engine, Running, Micros) {
    let (engine, running) = start(place).await;
    let mut market = Market::new(seed);
    market.open(&engine).await;
    let now = async || engine.ask(|exchange| exchange.now()).await.unwrap();
    let opened = now().await;
    while now().await.0 / DAY < opened.0 / DAY + 4 {
        market.run(&engine, 40).await;
        projected(&engine).await;
    }
    let now = now().await;
    (engine, running, now)
}

async fn first_event(engine: &Engine) -> Micros {
    let query = EventQuery { limit: 1, ..EventQuery::default() };
    engine.read_model().events(&query).await.unwrap()[0].at
}

async fn old_events_and_prices_are_dropped_by_whole_days_and_charges_are_not(place: TestPlace) {
    let (engine, running, now) = after_days(&place, 71).await;
    assert_eq!(first_event(&engine).await.0 / DAY, now.0 / DAY - 1);
    let market = MarketName::new(MARKETS[0]);
    let prices = engine.read_model().price_points(&market, Micros(0), None, None, 10_000).await.unwrap();
    assert_eq!(prices[0].at.0 / DAY, now.0 / DAY - 2);
    // A chart begins with the first price that is known, not with nothing.
    let hour = Micros(3_600_000_000);
    let bars = engine.read_model().price_bars(&market, Micros(0), now, hour, 10_000).await.unwrap();
    assert_eq!(bars[0].start.0 / hour.0, prices[0].at.0 / hour.0);
    assert!(bars[0].low >= prices.iter().map(|point| point.numbers.market_price).min().unwrap());
    let charged = async |engine: &Engine| {
        let query = ChargeQuery { limit: 100_000, ..ChargeQuery::default() };
        let charges = engine.read_model().charges(&query).await.unwrap();
        Amount(charges.iter().map(|charge| charge.debit.0).sum())
    };
    let totals = engine.ask(|exchange| exchange.totals()).await.unwrap();
    assert_eq!(charged(&engine).await, totals.debits);
    drop(engine);
    running.stop().await.unwrap();

    // The journal still has them all.
    rebuild(&place.options, |_, _| ()).await.unwrap();
    let (engine, running) = place.start().await;
    assert!(first_event(&engine).await.0 / DAY <= now.0 / DAY - 4);
    assert_eq!(charged(&engine).await, totals.debits);
    drop(engine);
    running.stop().await.unwrap();
}

async fn cursors_into_dropped_events_are_gone(place: TestPlace) {
    let (engine, running, now) = after_days(&place, 72).await;
    let journal = engine.journal_id();
    let api = Api::start(engine, ApiOptions::default()).await.unwrap();
    let admin = Caller::new("root", [Role::Admin]);
    let list = async |seq| {
        let cursor = Cursor { journal, seq, index: Cursor::ALL }.to_string();
        api.list_events(&admin, v1::ListEventsRequest { cursor, ..v1::ListEventsRequest::default() }).await
    };
    let first = list_first(&api, &admin).await;
    assert_eq!(list(1).await.unwrap_err().code, Code::Gone);
    assert_eq!(list(first - 1).await.unwrap_err().code, Code::Gone);
    assert!(list(first).await.unwrap().events[0].seq > first);
    // A watch from the start begins with what is kept.
    let request = v1::WatchEventsRequest { from_start: true, ..v1::WatchEventsRequest::default() };
    let mut watch = Box::pin(api.watch_events(&admin, request).await.unwrap());
    let frame = watch.next().await.unwrap().unwrap();
    assert_eq!(frame.events[0].at_us / DAY, now.0 / DAY - 1);
    drop(watch);
    drop(api);
    running.stop().await.unwrap();
}

async fn list_first(api: &Api, caller: &Caller) -> u64 {
    let request = v1::ListEventsRequest { page_size: 1, ..v1::ListEventsRequest::default() };
    api.list_events(caller, request).await.unwrap().events[0].seq
}
