//! Tests of a store that refuses writes, that was restored under the engine, or whose rows a person
//! deleted.

use crate::{offer, open_market, start, submit, submit_keyed};
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::store::{StoreLocation, StoreOptions};
use kubebid_engine::{Engine, EngineOptions, Running, Start, SubmitError};
use kubebid_testkit::Cluster;
use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A store with a second connection that the engine does not know of.
struct Beside {
    options: EngineOptions,
    connection: AnyConnection,
    _folder: TempDir,
}

impl Beside {
    async fn postgres() -> (Engine, Running, Beside) {
        let url = Cluster::shared().database();
        Beside::start(StoreLocation::Postgres(url.clone()), &url, tempfile::tempdir().unwrap()).await
    }

    async fn sqlite() -> (Engine, Running, Beside) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubebid.db");
        let url = format!("sqlite:{}", path.display());
        Beside::start(StoreLocation::Sqlite(path), &url, folder).await
    }

    async fn start(place: StoreLocation, url: &str, folder: TempDir) -> (Engine, Running, Beside) {
        let options = EngineOptions::new(StoreOptions::new(place), Clock::Stepped);
        let (engine, running) = start(options.clone()).await;
        submit(&engine, open_market()).await;
        let connection = AnyConnection::connect(url).await.unwrap();
        (engine, running, Beside { options, connection, _folder: folder })
    }

    async fn execute(&mut self, sql: &str) {
        self.connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    }
}

/// Tests a store that refuses writes with a message of its own. It is asked four times, with pauses in
/// between, and takes commands again afterwards.
async fn refuses(engine: Engine, running: Running, mut beside: Beside, no: &str, yes: &str) {
    beside.execute(no).await;
    let began = Instant::now();
    for _ in 0..4 {
        assert_eq!(submit_keyed(&engine, None, offer(1)).await, Err(SubmitError::StoreRefused));
    }
    let pauses = Duration::from_millis(200 + 400 + 800);
    assert!(began.elapsed() >= pauses, "asked again after {:?}", began.elapsed());
    let trouble = engine.trouble().expect("requests should go elsewhere");
    assert!(trouble.contains("no space for you"), "{trouble}");
    beside.execute(yes).await;
    submit(&engine, offer(1)).await;
    assert_eq!(engine.trouble(), None);
    drop(engine);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusing_postgresql_is_asked_after_growing_pauses_and_its_message_is_reported() {
    let (engine, running, beside) = Beside::postgres().await;
    let no = "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
              $$ BEGIN RAISE 'no space for you' USING ERRCODE = '53100'; END $$;
              CREATE TRIGGER no BEFORE INSERT ON journal EXECUTE FUNCTION no()";
    refuses(engine, running, beside, no, "DROP TRIGGER no ON journal").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusing_sqlite_is_asked_after_growing_pauses_and_its_message_is_reported() {
    let (engine, running, beside) = Beside::sqlite().await;
    let no = "CREATE TRIGGER no BEFORE INSERT ON journal BEGIN SELECT RAISE(ABORT, 'no space for you'); END";
    refuses(engine, running, beside, no, "DROP TRIGGER no").await;
}

/// Removes the last batch of the journal, as a restore of the database under the engine does.
async fn restored(engine: Engine, mut running: Running, mut beside: Beside) {
    submit(&engine, offer(1)).await;
    beside.execute("DELETE FROM journal WHERE first_seq = (SELECT MAX(first_seq) FROM journal)").await;
    assert!(submit_keyed(&engine, None, offer(2)).await.is_err());
    let ended = running.wait().await.unwrap_err().to_string();
    assert!(ended.contains("another history than this engine wrote: the journal ends at"), "{ended}");
    // The exchange's thread is about to end.
    while engine.is_open() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgresql_restored_under_the_engine_ends_it_with_an_error() {
    let (engine, running, beside) = Beside::postgres().await;
    restored(engine, running, beside).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sqlite_restored_under_the_engine_ends_it_with_an_error() {
    let (engine, running, beside) = Beside::sqlite().await;
    restored(engine, running, beside).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_row_of_the_lease_ends_the_engine_with_an_error_and_the_next_one_starts() {
    let (engine, mut running, mut beside) = Beside::postgres().await;
    beside.execute("DELETE FROM lease").await;
    let ended = running.wait().await.unwrap_err().to_string();
    assert!(ended.contains("another engine took the lease, or its row is gone"), "{ended}");
    drop(engine);
    let options = EngineOptions { start: Start::Alone, ..beside.options };
    let (engine, running) = start(options).await;
    submit(&engine, offer(1)).await;
    drop(engine);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_says_that_the_row_of_the_lease_is_gone() {
    let (_engine, _running, mut beside) = Beside::postgres().await;
    let standby = EngineOptions { start: Start::Standby, ..beside.options.clone() };
    let standing_by = tokio::spawn(async move { Engine::start(standby).await.map(drop) });
    // The standby has read the lease by then: it does so whenever it reads the journal.
    let looked = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%FROM lease WHERE one = 1%'
                  AND pid <> pg_backend_pid()";
    while beside.connection.fetch_optional(looked).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    beside.execute("DELETE FROM lease").await;
    let ended = standing_by.await.unwrap().unwrap_err().to_string();
    assert!(ended.contains("lease") && ended.contains("its row is gone"), "{ended}");
}
