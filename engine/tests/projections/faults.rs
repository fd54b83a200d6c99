//! Tests of faults on the way from the commits to the tables.

use crate::dump::{TABLES, assert_same, dump};
use crate::market::{Market, projected};
use crate::place::TestPlace;
use kubebid_core::answer::Outcome;
use kubebid_core::command::{PlaceBid, RuleChange, RuleValue};
use kubebid_core::units::{AccountName, AllocationId, MarketName, Micros};
use kubebid_core::{Command, Price};
use kubebid_engine::api::{Api, ApiOptions};
use kubebid_engine::lifecycle::rebuild::{RebuildError, rebuild};
use kubebid_engine::store::Role;
use kubebid_engine::{Caller, Engine, Running, Submission};
use kubebid_proto::v1;
use sqlx::{AssertSqlSafe, Executor};

crate::on_both! {
    tables_that_lost_commands_under_a_running_engine_are_folded_again_from_the_journal
    tables_that_lost_commands_before_the_first_one_is_written_are_folded_again_from_the_journal
    tables_that_lost_commands_while_nothing_happens_are_folded_again_from_the_journal
    an_engine_whose_projector_has_ended_says_so_and_why
    tables_that_stopped_earlier_than_the_journal_are_carried_on
    a_debit_that_the_tables_cannot_hold_is_their_largest_and_they_go_on
    a_bill_that_the_tables_cannot_hold_is_their_largest_and_they_go_on
}

/// Copies the tables as they are.
async fn save_tables(place: &TestPlace) {
    let mut connection = place.connect().await;
    for table in TABLES {
        let save = format!("CREATE TABLE saved_{table} AS SELECT * FROM {table}");
        connection.execute(AssertSqlSafe(save)).await.unwrap();
    }
}

/// Puts the copies in place of the tables, all at once.
async fn restore_tables(place: &TestPlace) {
    let mut restore = "BEGIN;".to_owned();
    for table in TABLES {
        restore += &format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM saved_{table};");
    }
    let mut connection = place.connect().await;
    connection.execute(AssertSqlSafe(restore + "COMMIT")).await.unwrap();
}

async fn tables_that_lost_commands_under_a_running_engine_are_folded_again_from_the_journal(
    place: TestPlace,
) {
    let mut market = Market::new(44);
    let (engine, running) = place.start().await;
    market.open(&engine).await;
    market.run(&engine, 150).await;
    projected(&engine).await;
    save_tables(&place).await;
    for _ in 0..2 {
        market.run(&engine, 100).await;
        projected(&engine).await;
        restore_tables(&place).await;
        market.run(&engine, 20).await;
        projected(&engine).await;
        assert_eq!(engine.projected(), engine.applied());
    }
    assert_eq!(engine.trouble(), None);
    let live = dump(&place).await;
    drop(engine);
    running.stop().await.unwrap();
    rebuild(&place.options, |_, _| ()).await.unwrap();
    assert_same(&dump(&place).await, &live);
}

async fn tables_that_lost_commands_before_the_first_one_is_written_are_folded_again_from_the_journal(
    place: TestPlace,
) {
    let mut market = Market::new(45);
    let (engine, running) = place.start().await;
    market.open(&engine).await;
    market.run(&engine, 50).await;
    projected(&engine).await;
    save_tables(&place).await;
    market.run(&engine, 50).await;
    drop(engine);
    running.stop().await.unwrap();
    // The engine that starts finds the tables complete, and begins to write only with its first
    // command.
    let (engine, running) = place.start().await;
    restore_tables(&place).await;
    market.run(&engine, 20).await;
    projected(&engine).await;
    assert_eq!(engine.projected(), engine.applied());
    let live = dump(&place).await;
    drop(engine);
    running.stop().await.unwrap();
    rebuild(&place.options, |_, _| ()).await.unwrap();
    assert_same(&dump(&place).await, &live);
}

async fn tables_that_lost_commands_while_nothing_happens_are_folded_again_from_the_journal(place: TestPlace) {
    let mut market = Market::new(46);
    let (engine, running) = place.start().await;
    market.open(&engine).await;
    market.run(&engine, 50).await;
    projected(&engine).await;
    save_tables(&place).await;
    market.run(&engine, 50).await;
    projected(&engine).await;
    let wanted = dump(&place).await;
    restore_tables(&place).await;
    let mut connection = place.connect().await;
    let watermark = "SELECT watermark FROM projection";
    while sqlx::query_scalar::<_, i64>(watermark).fetch_one(&mut connection).await.unwrap() as u64
        != engine.applied()
    {
        tokio::task::yield_now().await;
    }
    assert_same(&dump(&place).await, &wanted);
    drop(engine);
    running.stop().await.unwrap();
}

async fn an_engine_whose_projector_has_ended_says_so_and_why(place: TestPlace) {
    let mut market = Market::new(48);
    let (engine, running) = place.start().await;
    market.open(&engine).await;
    projected(&engine).await;
    save_tables(&place).await;
    market.run(&engine, 30).await;
    projected(&engine).await;
    assert_eq!(engine.trouble(), None);
    // The tables lose commands that the journal cannot restore.
    let spoil = "UPDATE journal SET last_seq = last_seq + 1 WHERE first_seq = 1";
    place.connect().await.execute(spoil).await.unwrap();
    restore_tables(&place).await;
    assert_eq!(give(&engine, Command::AdvanceTime).await, Outcome::Accepted);
    let head = engine.applied();
    engine.wait_projected(head).await;
    assert!(engine.projected() < head);
    let trouble = engine.trouble().unwrap();
    assert!(trouble.contains("not written any more"), "{trouble}");
    assert!(trouble.contains("the journal is damaged"), "{trouble}");
    drop(engine);
    running.stop_within(std::time::Duration::from_secs(60)).await.unwrap();
}

async fn tables_that_stopped_earlier_than_the_journal_are_carried_on(place: TestPlace) {
    let mut market = Market::new(41);
    let (engine, running) = place.start().await;
    market.open(&engine).await;
    market.run(&engine, 150).await;
    drop(engine);
    running.stop().await.unwrap();
    // The tables as they are here ...
    save_tables(&place).await;
    let (engine, running) = place.start().await;
    market.run(&engine, 150).await;
    drop(engine);
    running.stop().await.unwrap();
    let wanted = dump(&place).await;
    // ... may be what a crash leaves.
    restore_tables(&place).await;
    let (engine, running) = place.start().await;
    projected(&engine).await;
    assert_same(&dump(&place).await, &wanted);
    drop(engine);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_made_again() {
    let place = TestPlace::postgres();
    let (engine, running) = place.start().await;
    let mut connection = place.connect().await;
    let mut market = Market::new(42);
    market.open(&engine).await;
    for _ in 0..3 {
        market.run(&engine, 30).await;
        let kill = "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity
                    WHERE application_name = 'kubebid projections' AND datname = current_database()";
        connection.execute(kill).await.unwrap();
    }
    market.run(&engine, 30).await;
    projected(&engine).await;
    let live = dump(&place).await;
    drop(engine);
    running.stop().await.unwrap();
    rebuild(&place.options, |_, _| ()).await.unwrap();
    assert_same(&dump(&place).await, &live);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tables_are_not_rebuilt_beside_a_running_engine() {
    let place = TestPlace::postgres();
    let (engine, running) = place.start().await;
    let mut market = Market::new(43);
    market.open(&engine).await;
    market.run(&engine, 50).await;
    projected(&engine).await;
    let live = dump(&place).await;
    let refused = rebuild(&place.options, |_, _| ()).await;
    assert!(matches!(refused, Err(RebuildError::Led)), "{refused:?}");
    assert_same(&dump(&place).await, &live);
    drop(engine);
    running.stop().await.unwrap();
    rebuild(&place.options, |_, _| ()).await.unwrap();
    assert_same(&dump(&place).await, &live);
}

/// At this price per hour, a node costs more than an `i64` holds after 9,223 hours and 22 minutes.
const DEAREST: u64 = 1_000_000_000_000_000;

/// Starts an engine with one node that runs at the dearest price. Returns the instant at which the node
/// was ready.
async fn dear_node(place: &TestPlace) -> (Engine, Running, u64) {
    let (engine, running) = place.start().await;
    let market = || MarketName::new("gpu/east");
    let rule = |name: &str, value| RuleChange { name: name.into(), value: RuleValue::Number(value) };
    let rules = vec![rule("ceiling_max", DEAREST), rule("notice_us", 0), rule("min_runtime_us", 0)];
    let reserve = Price(DEAREST);
    let bid = PlaceBid {
        tenant: AccountName::new("ann"),
        markets: Some(vec![market()]),
        instance_type: None,
        ceiling: Price(DEAREST),
        min_nodes: 1,
        max_nodes: 1,
        time_in_force: Default::default(),
        expire_at: None,
        on_preemption: Default::default(),
    };
    for command in [
        Command::OpenMarket { market: market(), rules },
        Command::PutOffer { provider: AccountName::new("p1"), market: market(), capacity: 1, reserve },
        Command::PlaceBid(bid),
        Command::ReportReady { allocation: AllocationId(1), by: None },
    ] {
        assert_eq!(give(&engine, command).await, Outcome::Accepted);
    }
    let ready = engine.ask(|exchange| exchange.now().0).await.unwrap();
    (engine, running, ready)
}

async fn give(engine: &Engine, command: Command) -> Outcome {
    engine.submit(Submission::new(None, command), |step| step.outcome).await.unwrap()
}

async fn advance(engine: &Engine, to: u64) {
    let advance = Submission { at: Some(Micros(to)), ..Submission::new(None, Command::AdvanceTime) };
    engine.submit(advance, |_| ()).await.unwrap();
}

/// Asserts that the tables go on, and show the largest value they can hold for a larger one. A rebuild
/// does the same.
async fn assert_carried_on(place: &TestPlace, engine: Engine, running: Running) {
    projected(&engine).await;
    assert_eq!(give(&engine, Command::AdvanceTime).await, Outcome::Accepted);
    projected(&engine).await;
    let live = dump(place).await;
    drop(engine);
    running.stop().await.unwrap();

    // An engine starts on such a journal, and its tables can be rebuilt.
    rebuild(&place.options, |_, _| ()).await.unwrap();
    assert_same(&dump(place).await, &live);
    let (engine, running) = place.start().await;
    let head = engine.applied();
    let api = Api::start(engine, ApiOptions::default()).await.unwrap();
    let ann = Caller::new("ann", [Role::Tenant]);
    let request = v1::GetBidRequest { bid: 3, min_seq: head };
    assert_eq!(api.get_bid(&ann, request).await.unwrap().seq, head);
    let request = v1::GetStatementRequest { min_seq: head, ..v1::GetStatementRequest::default() };
    let statement = api.get_statement(&ann, request).await.unwrap();
    let (charged, accrued) = (statement.charged.unwrap(), statement.accrued.unwrap());
    assert!(charged.debit_micros.max(accrued.debit_micros) >= i64::MAX as u64, "{charged:?} {accrued:?}");
    let request = v1::ListChargesRequest { min_seq: head, ..v1::ListChargesRequest::default() };
    assert_eq!(api.list_charges(&ann, request).await.unwrap().charges.len(), 1);
    running.stop().await.unwrap();
}

async fn a_debit_that_the_tables_cannot_hold_is_their_largest_and_they_go_on(place: TestPlace) {
    let (engine, running, ready) = dear_node(&place).await;
    // The last full hour is still below the limit.
    advance(&engine, ready + 9223 * Micros::HOUR.0).await;
    advance(&engine, ready + 9223 * Micros::HOUR.0 + Micros::HOUR.0 / 2).await;
    let release = Command::ReleaseAllocation { tenant: AccountName::new("ann"), allocation: AllocationId(1) };
    assert_eq!(give(&engine, release).await, Outcome::Accepted);
    let debits = engine.ask(|exchange| exchange.totals().debits.0).await.unwrap();
    assert_eq!(debits, u128::from(DEAREST) * 9223 + u128::from(DEAREST) / 2);
    assert_carried_on(&place, engine, running).await;
}

async fn a_bill_that_the_tables_cannot_hold_is_their_largest_and_they_go_on(place: TestPlace) {
    let (engine, running, ready) = dear_node(&place).await;
    advance(&engine, ready + 9225 * Micros::HOUR.0).await;
    assert_carried_on(&place, engine, running).await;
}
