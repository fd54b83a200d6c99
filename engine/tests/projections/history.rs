//! Tests that an engine does not lead a journal that lacks what the tables and snapshots were made from.

use crate::dump::{assert_same, dump};
use crate::market::{Market, projected};
use crate::place::TestPlace;
use kubebid_core::Command;
use kubebid_core::units::MarketName;
use kubebid_engine::lifecycle::rebuild::rebuild;
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::store::{Fault, HistoryLost};
use kubebid_engine::{Engine, EngineError, EngineOptions, Submission};
use sqlx::{AssertSqlSafe, Executor, Row};

crate::on_both! {
    a_journal_that_is_shorter_than_its_tables_is_not_led
    a_journal_that_is_shorter_than_its_snapshots_is_not_led
    an_emptied_journal_does_not_start_an_empty_market
    a_snapshot_of_another_history_is_named
    a_damaged_last_batch_keeps_no_engine_from_starting_if_a_snapshot_has_it
}

/// Runs a market and stops it in order, with a snapshot of its end. Returns the number of its last
/// command.
async fn stopped_market(place: &TestPlace) -> u64 {
    let mut market = Market::new(44);
    let (engine, running) = place.start().await;
    market.open(&engine).await;
    market.run(&engine, 60).await;
    projected(&engine).await;
    let head = engine.applied();
    drop(engine);
    running.stop().await.unwrap();
    head
}

async fn change(place: &TestPlace, sql: &str) {
    place.connect().await.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
}

/// Cuts the journal after the first batch that has command 20.
async fn cut(place: &TestPlace) {
    change(place, "DELETE FROM journal WHERE last_seq > 20").await;
}

async fn refused(place: &TestPlace) -> HistoryLost {
    let options = EngineOptions::new(place.options.clone(), Clock::Stepped);
    match Engine::start(options).await {
        Err(EngineError::Store(fault @ Fault::HistoryLost(lost))) => {
            assert!(fault.to_string().contains("docs/operations.md#"), "{fault}");
            lost
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it starts"),
    }
}

/// Accepts the loss: the tables are rebuilt, and the market goes on from the journal's end.
async fn assert_goes_on_after_a_rebuild(place: &TestPlace) {
    rebuild(&place.options, |_, _| ()).await.unwrap();
    let (engine, running) = place.start().await;
    assert!(engine.applied() <= 20);
    let mut market = Market::new(45);
    market.open(&engine).await;
    market.run(&engine, 60).await;
    projected(&engine).await;
    let live = dump(place).await;
    drop(engine);
    running.stop().await.unwrap();
    rebuild(&place.options, |_, _| ()).await.unwrap();
    assert_same(&dump(place).await, &live);
}

async fn a_journal_that_is_shorter_than_its_tables_is_not_led(place: TestPlace) {
    let tables = stopped_market(&place).await;
    cut(&place).await;
    let lost = refused(&place).await;
    let HistoryLost::ShorterThanTables { journal, tables: found } = lost else { panic!("{lost}") };
    assert!(journal <= 20 && found == tables, "{lost}");
    assert_goes_on_after_a_rebuild(&place).await;
}

async fn a_journal_that_is_shorter_than_its_snapshots_is_not_led(place: TestPlace) {
    let snapshot = stopped_market(&place).await;
    cut(&place).await;
    change(&place, "UPDATE projection SET watermark = 0").await;
    let lost = refused(&place).await;
    assert!(
        matches!(lost, HistoryLost::ShorterThanSnapshot { snapshot: found, .. } if found == snapshot),
        "{lost}"
    );
    assert_goes_on_after_a_rebuild(&place).await;
}

async fn an_emptied_journal_does_not_start_an_empty_market(place: TestPlace) {
    let seq = stopped_market(&place).await;
    change(&place, "DELETE FROM journal").await;
    assert_eq!(refused(&place).await, HistoryLost::EmptyBesideTables { tables: seq });
    change(&place, "UPDATE projection SET watermark = 0").await;
    assert_eq!(refused(&place).await, HistoryLost::EmptyBesideSnapshot { snapshot: seq });
    assert_goes_on_after_a_rebuild(&place).await;
}

async fn a_snapshot_of_another_history_is_named(place: TestPlace) {
    let snapshot = stopped_market(&place).await;
    let other = "00".repeat(16);
    let hash = match place.options.location {
        kubebid_engine::store::StoreLocation::Postgres(_) => format!("decode('{other}', 'hex')"),
        kubebid_engine::store::StoreLocation::Sqlite(_) => format!("x'{other}'"),
    };
    change(&place, &format!("UPDATE snapshot SET journal_hash = {hash} WHERE seq = {snapshot}")).await;
    assert_eq!(refused(&place).await, HistoryLost::AnotherHistory { snapshot });
    rebuild(&place.options, |_, _| ()).await.unwrap();
    let (engine, running) = place.start().await;
    assert_eq!(engine.applied(), snapshot);
    drop(engine);
    running.stop().await.unwrap();
}

async fn a_damaged_last_batch_keeps_no_engine_from_starting_if_a_snapshot_has_it(place: TestPlace) {
    let start = || Engine::start(EngineOptions::new(place.options.clone(), Clock::Real));
    let open = |name: &str| {
        let market = MarketName::new(name);
        Submission::new(None, Command::OpenMarket { market, rules: Vec::new() })
    };
    let (engine, running) = start().await.unwrap();
    engine.submit(open("gpu/east"), |_| ()).await.unwrap();
    drop(engine);
    running.stop().await.unwrap();
    let mut connection = place.connect().await;
    let last = "SELECT records, first_seq FROM journal ORDER BY first_seq DESC LIMIT 1";
    let last = connection.fetch_one(last).await.unwrap();
    let (mut records, first_seq): (Vec<u8>, i64) = (last.get(0), last.get(1));
    *records.last_mut().unwrap() ^= 1;
    let damage =
        sqlx::query("UPDATE journal SET records = $1 WHERE first_seq = $2").bind(records).bind(first_seq);
    damage.execute(&mut connection).await.unwrap();
    drop(connection);

    let (engine, running) = start().await.expect("the snapshot has the batch");
    assert_eq!(engine.views().markets().iter().count(), 1);
    engine.submit(open("gpu/west"), |_| ()).await.expect("the market goes on");
    projected(&engine).await;
    drop(engine);
    running.stop().await.unwrap();
    // Without a snapshot nothing can be known of the damaged commands.
    change(&place, "DELETE FROM journal WHERE first_seq > 1").await;
    change(&place, "DELETE FROM snapshot").await;
    change(&place, "UPDATE projection SET watermark = 1").await;
    let refused = start().await.map(drop);
    assert!(matches!(refused, Err(EngineError::Store(Fault::Damaged { .. }))), "{refused:?}");
}
