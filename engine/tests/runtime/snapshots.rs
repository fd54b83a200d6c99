//! Tests of snapshots that are saved while the engine runs, and of what a crash leaves of them.

use crate::{bid, crash, hash, offer, open_market, options, start, stop, submit, submit_keyed};
use kubebid_core::Command;
use kubebid_core::answer::Outcome;
use kubebid_core::units::Seq;
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::store::{Snapshot, Store};
use kubebid_engine::{Engine, EngineOptions};
use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor};
use std::path::Path;

fn every_40(folder: &Path) -> EngineOptions {
    EngineOptions { snapshot_every: 40, ..options(folder, Clock::Stepped) }
}

async fn place_bids(engine: &Engine, count: u64) {
    for n in 0..count {
        let (_, outcome) =
            submit(engine, Command::PlaceBid(bid(&format!("t{n}"), 1000 + 100 * (n % 7)))).await;
        assert_eq!(outcome, Outcome::Accepted);
    }
}

async fn newest(options: &EngineOptions) -> Snapshot {
    let store = Store::open(&options.store).await.expect("the engine has let go of it");
    store.snapshots().load().await.expect("the store answers").expect("there is a snapshot")
}

async fn change(folder: &Path, sql: String) {
    sqlx::any::install_default_drivers();
    let url = format!("sqlite:{}", folder.join("kubebid.db").display());
    let mut connection = AnyConnection::connect(&url).await.expect("a file");
    connection.execute(AssertSqlSafe(sql)).await.expect("it is ours");
}

#[tokio::test]
async fn after_a_crash_only_commands_after_the_last_snapshot_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let options = every_40(folder.path());
    let (engine, running) = start(options.clone()).await;
    submit(&engine, open_market()).await;
    submit(&engine, offer(30)).await;
    submit_keyed(&engine, Some("a"), Command::PlaceBid(bid("t", 1000))).await.expect("it is taken");
    place_bids(&engine, 100).await;
    engine.wait_saved(40).await;
    place_bids(&engine, 10).await;
    let (before, head) = (hash(&engine).await, engine.applied());
    crash(engine, running).await;

    let snapshot = newest(&options).await;
    assert!((40..head).contains(&snapshot.after.seq), "{}", snapshot.after);
    // An engine that started before the snapshot would find a gap in the journal.
    change(folder.path(), format!("DELETE FROM journal WHERE last_seq < {}", snapshot.after.seq)).await;
    let (engine, running) = start(options.clone()).await;
    assert_eq!((hash(&engine).await, engine.applied()), (before, head));
    let again = submit_keyed(&engine, Some("a"), Command::PlaceBid(bid("t", 1000))).await;
    assert_eq!(again, Ok((head + 1, Outcome::Repeated { first: Seq(3), refusal: None })));
    // The next snapshot is due one interval after this one.
    place_bids(&engine, 40).await;
    engine.wait_saved(snapshot.after.seq + 40).await;
    stop(engine, running).await;
    assert_eq!(newest(&options).await.after.seq, head + 41);
}

#[tokio::test]
async fn a_snapshot_with_a_wrong_state_hash_is_skipped_for_an_older_one() {
    let folder = tempfile::tempdir().unwrap();
    let options = every_40(folder.path());
    let (engine, running) = start(options.clone()).await;
    submit(&engine, open_market()).await;
    place_bids(&engine, 39).await;
    engine.wait_saved(40).await;
    place_bids(&engine, 10).await;
    let before = hash(&engine).await;
    stop(engine, running).await;
    let store = Store::open(&options.store).await.unwrap();
    let last = store.snapshots().load().await.unwrap().unwrap();
    let earlier = store.snapshots().load_up_to(last.after.seq - 1).await.unwrap().unwrap();
    assert_eq!(earlier.after.seq, 40);
    // The snapshot is complete and belongs to this journal, but has another state.
    store.snapshots().save(&Snapshot { body: earlier.body, ..last }).await.unwrap();
    drop(store);
    change(folder.path(), format!("DELETE FROM journal WHERE last_seq < {}", earlier.after.seq)).await;
    let (engine, running) = start(options).await;
    assert_eq!(hash(&engine).await, before);
    stop(engine, running).await;
}

#[tokio::test]
async fn a_snapshot_ahead_of_the_tables_is_not_used_until_they_have_caught_up() {
    let folder = tempfile::tempdir().unwrap();
    let options = every_40(folder.path());
    let (engine, running) = start(options.clone()).await;
    submit(&engine, open_market()).await;
    place_bids(&engine, 39).await;
    engine.wait_saved(40).await;
    place_bids(&engine, 10).await;
    let before = hash(&engine).await;
    stop(engine, running).await;
    // A crash of the machine may lose the last rows of the tables. Here it lost all rows.
    let tables = ["bids", "allocations", "offers", "markets", "price_changes", "charges", "charge_segments"];
    for table in tables.into_iter().chain(["events", "event_parties"]) {
        change(folder.path(), format!("DELETE FROM {table}")).await;
    }
    change(folder.path(), "UPDATE projection SET watermark = 0".to_owned()).await;
    // The replay runs no further ahead of the tables than commands may, and reaches the end all the
    // same.
    let (engine, running) = start(EngineOptions { projection_lag: 3, ..options }).await;
    assert!(engine.projected() + 3 >= 49, "{}", engine.projected());
    assert_eq!(hash(&engine).await, before);
    engine.wait_projected(50).await;
    assert_eq!(engine.projected(), 50);
    stop(engine, running).await;
}
