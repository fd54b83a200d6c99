//! Tests of rows that are no longer kept, and of what callers are told about them.

use crate::market::{MARKETS, Market, projected};
use crate::place::TestPlace;
use futures_util::StreamExt;
use kubebid_core::EventKind;
use kubebid_core::money::Amount;
use kubebid_core::units::{AccountName, MarketName, Micros};
use kubebid_engine::api::{Api, ApiOptions};
use kubebid_engine::events::visibility::{Viewer, redact};
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
    old_events_and_prices_are_dropped_by_whole_months_and_charges_are_not
    cursors_into_dropped_events_are_gone
}

async fn start(place: &TestPlace) -> (Engine, Running) {
    let retention = Retention { event_days: Some(3), price_days: Some(3) };
    let options = EngineOptions { retention, ..EngineOptions::new(place.options.clone(), Clock::Stepped) };
    Engine::start(options).await.unwrap()
}

/// Runs a market in November, and then in January.
async fn after_months(place: &TestPlace, seed: u64) -> (Engine, Running) {
    let (engine, running) = start(place).await;
    let mut market = Market::new(seed);
    market.open(&engine).await;
    market.run(&engine, 200).await;
    projected(&engine).await;
    market.skip_days(&engine, 55).await;
    market.run(&engine, 200).await;
    projected(&engine).await;
    // Old rows are dropped after newer ones are written.
    while first_event(&engine).await < JANUARY {
        tokio::task::yield_now().await;
    }
    (engine, running)
}

/// The start of 2024, in microseconds since 1970.
const JANUARY: Micros = Micros(1_704_067_200_000_000);

async fn first_event(engine: &Engine) -> Micros {
    let query = EventQuery { limit: 1, ..EventQuery::default() };
    engine.read_model().events(&query).await.unwrap()[0].at
}

async fn old_events_and_prices_are_dropped_by_whole_months_and_charges_are_not(place: TestPlace) {
    let (engine, running) = after_months(&place, 71).await;
    assert!(first_event(&engine).await >= JANUARY);
    let market = MarketName::new(MARKETS[0]);
    let points = engine.read_model().price_points(&market, Micros(0), None, None, 10_000).await.unwrap();
    // The price that was in force counts as a change at the beginning.
    assert_eq!(points[0].at, JANUARY);
    let (day, end) = (Micros(86_400_000_000), Micros(JANUARY.0 + 86_400_000_000));
    let bars = engine.read_model().price_bars(&market, Micros(0), end, day, 100).await.unwrap();
    assert_eq!((bars[0].start, bars[0].open), (JANUARY, points[0].numbers.market_price));
    let now = engine.ask(|exchange| exchange.now()).await.unwrap();
    let account =
        |limit| EventQuery { account: Some(AccountName::new("ann")), limit, ..EventQuery::default() };
    // Bids are kept longer than the events that placed them.
    let all = EventQuery { limit: 100_000, ..EventQuery::default() };
    let all = engine.read_model().events(&all).await.unwrap();
    let own = all.iter().filter(|row| {
        redact(row.event.clone(), &row.parties, &Viewer::Account(AccountName::new("ann"))).is_some()
    });
    assert_eq!(
        engine.read_model().events(&account(100_000)).await.unwrap(),
        own.cloned().collect::<Vec<_>>()
    );
    let placed = EventQuery { kinds: [EventKind::BidPlaced].into(), ..account(1) };
    assert_eq!(engine.read_model().events(&placed).await.unwrap().len(), 1);
    assert!(now > JANUARY);
    let charged = async |engine: &Engine| {
        let query = ChargeQuery { limit: 100_000, ..ChargeQuery::default() };
        let charges = engine.read_model().charges(&query).await.unwrap();
        Amount(charges.iter().map(|charge| charge.debit.0).sum())
    };
    let totals = engine.ask(|exchange| exchange.totals()).await.unwrap();
    assert_eq!(charged(&engine).await, totals.debits);
    drop(engine);
    running.stop().await.unwrap();

    // The journal still has all of them.
    rebuild(&place.options, |_, _| ()).await.unwrap();
    let (engine, running) = place.start().await;
    assert!(first_event(&engine).await < JANUARY);
    assert_eq!(charged(&engine).await, totals.debits);
    drop(engine);
    running.stop().await.unwrap();
}

async fn cursors_into_dropped_events_are_gone(place: TestPlace) {
    let (engine, running) = after_months(&place, 72).await;
    let journal = engine.journal_id();
    let api = Api::start(engine, ApiOptions::default()).await.unwrap();
    let admin = Caller::new("root", [Role::Admin]);
    let list = async |seq, index| {
        let cursor = Cursor { journal, seq, index }.to_string();
        api.list_events(&admin, v1::ListEventsRequest { cursor, ..v1::ListEventsRequest::default() }).await
    };
    let first = list_first(&api, &admin).await;
    assert_eq!(list(1, Cursor::ALL).await.unwrap_err().code, Code::Gone);
    assert_eq!(list(first - 1, 0).await.unwrap_err().code, Code::Gone);
    assert!(list(first, Cursor::ALL).await.unwrap().events[0].seq > first);
    // A watch from the start begins with what is kept.
    let request = v1::WatchEventsRequest { from_start: true, ..v1::WatchEventsRequest::default() };
    let mut watch = Box::pin(api.watch_events(&admin, request).await.unwrap());
    let frame = watch.next().await.unwrap().unwrap();
    assert!(frame.events[0].at_us >= JANUARY.0);
    drop(watch);
    drop(api);
    running.stop().await.unwrap();
}

async fn list_first(api: &Api, caller: &Caller) -> u64 {
    let request = v1::ListEventsRequest { page_size: 1, ..v1::ListEventsRequest::default() };
    api.list_events(caller, request).await.unwrap().events[0].seq
}
