//! Tests of restarts: the state and the answers to known keys are the same as before.

use crate::{advance, bid, hash, hold, offer, open_market, options, start, stop, submit, submit_keyed};
use kubebid_core::answer::Outcome;
use kubebid_core::reject::Reject;
use kubebid_core::units::{AllocationId, Micros, Seq};
use kubebid_core::{Command, Exchange, StampedCommand};
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::store::{BatchBuilder, Position, Store};
use kubebid_engine::{BEHAVIOUR, Engine, EngineError, EngineOptions, SubmitError};
use sqlx::{Connection, Executor};

#[tokio::test]
async fn a_restart_finds_the_state() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    submit(&engine, open_market()).await;
    submit(&engine, offer(3)).await;
    for n in 0..10 {
        submit(&engine, Command::PlaceBid(bid(&format!("t{n}"), 1000 + 100 * n))).await;
        advance(&engine, Micros::seconds(10 * n)).await;
    }
    submit(&engine, Command::ReportReady { allocation: AllocationId(1), by: None }).await;
    advance(&engine, Micros::seconds(5000)).await;
    let before = hash(&engine).await;
    stop(engine, running).await;
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    assert_eq!(hash(&engine).await, before);
    stop(engine, running).await;
}

#[tokio::test]
async fn a_key_gets_its_first_answer_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    submit(&engine, open_market()).await;
    let placed = submit_keyed(&engine, Some("a"), Command::PlaceBid(bid("t", 1000))).await;
    let refused = submit_keyed(&engine, Some("b"), Command::PlaceBid(bid("t", 1050))).await;
    assert_eq!((placed, refused), (Ok((2, Outcome::Accepted)), Ok((3, Outcome::Rejected(Reject::NotATick)))));
    stop(engine, running).await;
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    let placed = submit_keyed(&engine, Some("a"), Command::PlaceBid(bid("t", 1000))).await;
    assert_eq!(placed, Ok((4, Outcome::Repeated { first: Seq(2), refusal: None })));
    let refused = submit_keyed(&engine, Some("b"), Command::PlaceBid(bid("t", 1050))).await;
    let first = Outcome::Repeated { first: Seq(3), refusal: Some(Reject::NotATick) };
    assert_eq!(refused, Ok((5, first)));
    let other = submit_keyed(&engine, Some("a"), Command::PlaceBid(bid("t", 2000))).await;
    assert_eq!(other, Ok((6, Outcome::Rejected(Reject::KeyConflict))));
    stop(engine, running).await;
}

#[tokio::test]
async fn a_journal_of_an_earlier_edition_of_the_rules_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), Clock::Stepped);
    let store = Store::open(&options.store).await.unwrap();
    let mut builder = BatchBuilder::new(Position::START);
    let earlier = StampedCommand { at: Micros(0), key: None, command: open_market() };
    builder.push_with(0, BEHAVIOUR - 1, |bytes| earlier.encode(bytes));
    let mut leadership = store.lead().await.unwrap();
    leadership.writer.append(&builder.finish()).await.unwrap();
    drop((leadership, store));

    let refused = Engine::start(options).await.map(|_| ()).expect_err("the journal is refused").to_string();
    let editions = [format!("edition {}", BEHAVIOUR - 1), format!("edition {BEHAVIOUR}")];
    let words = ["record 1", "a new store", "export"];
    for words in words.into_iter().chain(editions.iter().map(String::as_str)) {
        assert!(refused.contains(words), "{refused}");
    }
}

#[tokio::test]
async fn an_engine_that_was_overtaken_stops_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), Clock::Stepped);
    let (engine, running) = start(options).await;
    submit(&engine, open_market()).await;
    let store: Store = engine.store().clone();
    let overtaking = store.lead().await.expect("anybody with the store may lead");
    let refused = submit_keyed(&engine, None, offer(1)).await;
    assert!(refused.is_err(), "{refused:?}");
    let error = running.ended().await.expect_err("the engine ends by itself");
    assert!(error.to_string().contains("took over"), "{error}");
    drop(overtaking);
}

#[tokio::test]
async fn a_bug_in_the_exchanges_thread_leaves_no_caller_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    submit(&engine, open_market()).await;
    let release = hold(&engine).await;
    let bug = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.ask(|_| -> () { panic!("as a bug would") }).await })
    };
    let waiting = {
        let engine = engine.clone();
        tokio::spawn(async move { submit_keyed(&engine, Some("k"), Command::PlaceBid(bid("t", 1000))).await })
    };
    tokio::task::yield_now().await;
    assert!(engine.is_open());
    drop(release);
    assert_eq!(bug.await.unwrap(), Err(SubmitError::Stopping));
    // The command may have been taken by then, or not.
    let answer = waiting.await.unwrap();
    assert!(
        matches!(answer, Err(SubmitError::Stopping | SubmitError::Unknown)) || answer.is_ok(),
        "{answer:?}"
    );
    let ended = running.ended().await.expect_err("the engine ends by itself");
    assert!(matches!(ended, EngineError::Bug), "{ended}");
    assert!(!engine.is_open());
    let refused = submit_keyed(&engine, None, offer(1)).await;
    assert_eq!(refused, Err(SubmitError::Stopping));
    assert_eq!(engine.ask(Exchange::seq).await, Err(SubmitError::Stopping));
    drop(engine);

    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    let again = submit_keyed(&engine, Some("k"), Command::PlaceBid(bid("t", 1000))).await;
    assert!(again.is_ok(), "{again:?}");
    stop(engine, running).await;
}

#[tokio::test]
async fn a_restart_publishes_all_markets_however_young_the_market_is() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    submit(&engine, open_market()).await;
    stop(engine, running).await;
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    assert_eq!(engine.views().markets().iter().count(), 1);
    stop(engine, running).await;
}

#[tokio::test]
async fn a_view_has_what_was_applied_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    let release = hold(&engine).await;
    let opened = {
        let engine = engine.clone();
        tokio::spawn(async move { submit(&engine, open_market()).await })
    };
    tokio::task::yield_now().await;
    drop(release);
    let (seq, _) = opened.await.unwrap();
    engine.wait_applied(seq).await;
    assert_eq!(engine.views().markets().iter().count(), 1);
    stop(engine, running).await;
}

#[tokio::test]
async fn an_engine_whose_file_is_gone_acknowledges_nothing_and_ends_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    submit(&engine, open_market()).await;
    std::fs::rename(folder.path().join("kubebid.db"), folder.path().join("moved.db")).unwrap();
    let refused = submit_keyed(&engine, None, offer(1)).await;
    assert!(refused.is_err(), "{refused:?}");
    let error = running.ended().await.expect_err("the engine ends by itself");
    assert!(matches!(error, EngineError::Stopped(_)), "{error}");
    assert!(error.to_string().contains("removed or replaced"), "{error}");
    assert!(!folder.path().join("kubebid.db").exists(), "no empty store is made in its place");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_on_a_file_that_does_not_answer_says_so_within_the_lease() {
    let folder = tempfile::tempdir().unwrap();
    let lease = std::time::Duration::from_millis(300);
    let options = EngineOptions { lease, ..options(folder.path(), Clock::Stepped) };
    let (engine, running) = start(options).await;
    submit(&engine, open_market()).await;
    assert!(engine.leads());
    sqlx::any::install_default_drivers();
    let url = format!("sqlite:{}", folder.path().join("kubebid.db").display());
    let mut person = sqlx::AnyConnection::connect(&url).await.unwrap();
    person.execute("BEGIN IMMEDIATE").await.unwrap();
    let waiting = {
        let engine = engine.clone();
        tokio::spawn(async move { submit_keyed(&engine, None, offer(1)).await })
    };
    while engine.leads() {
        tokio::task::yield_now().await;
    }
    person.execute("ROLLBACK").await.unwrap();
    // The command may have been refused by then. It is taken the next time.
    let _ = waiting.await.unwrap();
    while submit_keyed(&engine, None, offer(2)).await.is_err() {}
    assert!(engine.leads());
    stop(engine, running).await;
}
