//! Tests of a PostgreSQL that dies, hangs, or cannot be trusted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kubebid_engine::store::{
    AppendError, Fault, JournalWriter, Leadership, LeaseCondition, Position, Refused, Resolution, Store,
    StoreLocation, StoreOptions,
};
use kubebid_testkit::Cluster;
use sqlx::{Connection, Executor, Row};

use crate::conformance::racing_leaders_write_one_history;
use crate::place::{TestPlace, append_all, batch, read_all};
use crate::proxy::{Mood, Proxy};

/// Returns a proxy and the options of a store that connects through it. The test itself connects past the
/// proxy.
async fn behind_a_proxy(place: &TestPlace) -> (Proxy, StoreOptions) {
    let proxy = Proxy::to(Cluster::shared().socket()).await;
    let database = place.url().split(['/', '?']).nth(3).unwrap();
    let url = format!("postgres://kubebid@127.0.0.1:{}/{database}?sslmode=disable", proxy.port);
    let options = StoreOptions {
        // A machine that is busy needs more than half a second for a transaction.
        patience: Duration::from_secs(2),
        ..StoreOptions::new(StoreLocation::Postgres(url))
    };
    (proxy, options)
}

async fn lead(options: &StoreOptions) -> (Store, Box<dyn JournalWriter>, Position) {
    let store = Store::open(options).await.unwrap();
    let leadership = store.lead().await.unwrap();
    (store, leadership.writer, leadership.head)
}

fn assert_unknown(answer: Result<(), AppendError>) {
    assert!(matches!(answer, Err(AppendError::Unknown { .. })), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_committed() {
    let place = TestPlace::postgres();
    let (proxy, options) = behind_a_proxy(&place).await;
    let (store, mut writer, head) = lead(&options).await;
    let mut batches = append_all(&mut *writer, head, &[2]).await;

    proxy.newest().send(Mood::LoseAnswers).unwrap();
    let lost = batch(batches[0].end(), 3);
    assert_unknown(writer.append(&lost).await);
    assert_unknown(writer.append(&lost).await);
    assert_eq!(writer.resolve(&lost).await.unwrap(), Resolution::Committed);
    batches.push(lost);
    batches.extend(append_all(&mut *writer, batches[1].end(), &[1]).await);
    assert_eq!(read_all(store.journal().read_from(1)).await.unwrap(), batches);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_lost_is_not_committed() {
    let place = TestPlace::postgres();
    let (proxy, options) = behind_a_proxy(&place).await;
    let (store, mut writer, head) = lead(&options).await;
    let mut batches = append_all(&mut *writer, head, &[2]).await;

    proxy.newest().send(Mood::LoseRequests).unwrap();
    let lost = batch(batches[0].end(), 3);
    assert_unknown(writer.append(&lost).await);
    assert_eq!(writer.resolve(&lost).await.unwrap(), Resolution::NotCommitted);
    writer.append(&lost).await.unwrap();
    batches.push(lost);
    assert_eq!(read_all(store.journal().read_from(1)).await.unwrap(), batches);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_arrives_after_it_was_resolved_changes_nothing() {
    let place = TestPlace::postgres();
    let (proxy, options) = behind_a_proxy(&place).await;
    let (store, mut writer, head) = lead(&options).await;
    append_all(&mut *writer, head, &[2]).await;
    let head = store.journal().head().await.unwrap();

    let delayed = proxy.newest();
    delayed.send(Mood::HoldRequests).unwrap();
    let late = batch(head, 1);
    assert_unknown(writer.append(&late).await);
    assert_eq!(writer.resolve(&late).await.unwrap(), Resolution::NotCommitted);

    // The held request is sent on, but its session was ended.
    let mut beside = place.connect().await;
    let writers = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND application_name = 'kubebid journal'";
    delayed.send(Mood::Pass).unwrap();
    while sqlx::query(writers).fetch_one(&mut beside).await.unwrap().get::<i64, _>(0) > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.journal().head().await.unwrap(), head);
    writer.append(&late).await.unwrap();
    assert_eq!(store.journal().head().await.unwrap(), late.end());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_whose_backend_is_killed_is_unknown() {
    let place = TestPlace::postgres();
    let (store, mut writer, head) = place.lead().await;
    append_all(&mut *writer, head, &[2]).await;
    let head = store.journal().head().await.unwrap();

    // No program can write to the journal while this transaction is open, so the append is in
    // progress.
    let mut beside = place.connect().await;
    let mut lock = place.connect().await;
    lock.execute("BEGIN; LOCK TABLE journal IN EXCLUSIVE MODE").await.unwrap();
    let killed = batch(head, 1);
    let (answer, ()) = tokio::join!(writer.append(&killed), async {
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'kubebid journal'
                    AND wait_event_type = 'Lock'";
        while sqlx::query(kill).fetch_one(&mut beside).await.unwrap().get::<i64, _>(0) == 0 {
            tokio::task::yield_now().await;
        }
    });
    assert_unknown(answer);
    lock.execute("ROLLBACK").await.unwrap();
    assert_eq!(writer.resolve(&killed).await.unwrap(), Resolution::NotCommitted);
    writer.append(&killed).await.unwrap();
    assert_eq!(store.journal().head().await.unwrap(), killed.end());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_killed_between_appends_is_resolved() {
    let place = TestPlace::postgres();
    let (store, mut writer, head) = place.lead().await;
    let mut beside = place.connect().await;
    let mut batches = append_all(&mut *writer, head, &[2]).await;
    for _ in 0..5 {
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'kubebid journal'";
        assert_eq!(sqlx::query(kill).fetch_one(&mut beside).await.unwrap().get::<i64, _>(0), 1);
        let batch = batch(batches.last().unwrap().end(), 1);
        assert_unknown(writer.append(&batch).await);
        assert_eq!(writer.resolve(&batch).await.unwrap(), Resolution::NotCommitted);
        writer.append(&batch).await.unwrap();
        batches.push(batch);
    }
    assert_eq!(read_all(store.journal().read_from(1)).await.unwrap(), batches);
}

#[tokio::test(flavor = "multi_thread")]
async fn resolving_waits_for_an_append_that_still_runs() {
    let place = TestPlace::postgres();
    let (_proxy, options) = behind_a_proxy(&place).await;
    let (store, mut writer, head) = lead(&options).await;
    let batch = batch(head, 1);
    // The append has locked the epoch when it comes to the journal's table, and waits there.
    let mut lock = place.connect().await;
    lock.execute("BEGIN; LOCK TABLE journal IN SHARE MODE").await.unwrap();
    assert_unknown(writer.append(&batch).await);
    let first = writer.resolve(&batch).await;
    lock.execute("ROLLBACK").await.unwrap();
    match first {
        // Either answer has to stay true.
        Ok(Resolution::NotCommitted) => writer.append(&batch).await.unwrap(),
        Ok(Resolution::Committed) => (),
        Ok(Resolution::Fenced) => panic!("by whom?"),
        Err(_) => match writer.resolve(&batch).await.unwrap() {
            Resolution::NotCommitted => writer.append(&batch).await.unwrap(),
            Resolution::Committed => (),
            Resolution::Fenced => panic!("by whom?"),
        },
    }
    assert_eq!(read_all(store.journal().read_from(1)).await.unwrap(), [batch]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_hangs_leaves_no_more_than_one_session_behind_however_often_it_is_tried() {
    let cluster = Cluster::start(&[]);
    let place = TestPlace::postgres_on(&cluster);
    let options = StoreOptions { patience: Duration::from_millis(500), ..place.options.clone() };
    let store = Store::open(&options).await.unwrap();
    let led = store.lead_by_lease(LeaseCondition::Anyway, Duration::from_secs(1)).await.unwrap().unwrap();
    let Leadership { mut writer, mut head, lease } = led;
    let mut lease = lease.unwrap();
    wait_for_nobody(&cluster);
    let lost = loop {
        let next = batch(head, 1);
        match writer.append(&next).await {
            // The server has not read its settings yet.
            Ok(()) => head = next.end(),
            Err(AppendError::Unknown { .. }) => break next,
            Err(error) => panic!("{error:?}"),
        }
    };
    for _ in 0..6 {
        writer.resolve(&lost).await.unwrap_err();
        lease.renew().await.unwrap_err();
        // Of the sessions of each of the two, there may be the one that hangs and the one that was
        // left just before it.
        let sessions = "SELECT count(*) <= 4 FROM pg_stat_activity
                        WHERE application_name IN ('kubebid', 'kubebid journal', 'kubebid lease')
                        AND wait_event = 'SyncRep'";
        while cluster.sql(sessions) != "t" {
            tokio::task::yield_now().await;
        }
    }
    wait_for_no_standby(&cluster);
    let resolution = loop {
        if let Ok(resolution) = writer.resolve(&lost).await {
            break resolution;
        }
    };
    assert_eq!(resolution, Resolution::Committed);
    append_all(&mut *writer, lost.end(), &[1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_wait_for_a_standby_is_cancelled_is_not_acknowledged() {
    let cluster = Cluster::start(&[]);
    let place = TestPlace::postgres_on(&cluster);
    let (store, mut writer, mut head) = place.lead().await;
    wait_for_nobody(&cluster);
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
                  WHERE application_name = 'kubebid journal' AND wait_event = 'SyncRep'";
    let cancelled = AtomicBool::new(false);
    let cancel = async || {
        while cluster.sql(cancel) == "0" {
            tokio::task::yield_now().await;
        }
        cancelled.store(true, Ordering::Relaxed);
    };
    let doubtful = loop {
        let next = batch(head, 1);
        let answer = tokio::select! {
            answer = writer.append(&next) => answer,
            () = async { cancel().await; std::future::pending().await } => unreachable!("it is pending"),
        };
        match answer {
            // The server has not read its settings yet.
            Ok(()) if !cancelled.load(Ordering::Relaxed) => head = next.end(),
            Err(AppendError::Unknown { source: Fault::Warned { warning, .. } }) => {
                assert!(warning.contains("synchronous replication"), "{warning}");
                break next;
            }
            other => panic!("{other:?}"),
        }
    };
    // Resolving the append needs a commit too.
    let resolved = tokio::select! {
        resolved = writer.resolve(&doubtful) => resolved,
        () = async { cancel().await; std::future::pending().await } => unreachable!("it is pending"),
    };
    assert!(matches!(resolved, Err(Fault::Warned { .. })), "{resolved:?}");
    wait_for_no_standby(&cluster);
    let resolution = loop {
        if let Ok(resolution) = writer.resolve(&doubtful).await {
            break resolution;
        }
    };
    assert_eq!(resolution, Resolution::Committed);
    assert_eq!(store.journal().head().await.unwrap(), doubtful.end());
}

/// Makes every commit wait for a standby that does not exist.
fn wait_for_nobody(cluster: &Cluster) {
    cluster.sql("ALTER SYSTEM SET synchronous_standby_names TO 'nobody'");
    cluster.sql("SELECT pg_reload_conf()");
}

fn wait_for_no_standby(cluster: &Cluster) {
    cluster.sql("ALTER SYSTEM RESET synchronous_standby_names");
    cluster.sql("SELECT pg_reload_conf()");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_only_reads_refuses_the_append() {
    let place = TestPlace::postgres();
    let (store, mut writer, head) = place.lead().await;
    // A trigger refuses writes with the code of a server that has become a standby.
    place
        .connect()
        .await
        .execute(
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE 'cannot execute INSERT' USING ERRCODE = '25006'; END $$;
             CREATE TRIGGER no BEFORE INSERT ON journal EXECUTE FUNCTION no()",
        )
        .await
        .unwrap();
    let batch = batch(head, 1);
    let answer = writer.append(&batch).await;
    assert!(matches!(answer, Err(AppendError::Refused(Refused::Database { .. }))), "{answer:?}");
    place.connect().await.execute("DROP TRIGGER no ON journal").await.unwrap();
    writer.append(&batch).await.unwrap();
    assert_eq!(store.journal().head().await.unwrap(), batch.end());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_can_lose_what_it_acknowledged_is_refused() {
    for setting in ["fsync", "full_page_writes"] {
        let cluster = Cluster::start(&[&format!("{setting}=off")]);
        let error = Store::open(&TestPlace::postgres_on(&cluster).options).await.unwrap_err();
        assert!(matches!(error, Fault::Unsafe { setting: s, .. } if s == setting), "{error:?}");
        assert!(error.to_string().contains(&format!("{setting} = off")), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_we_need_are_ours_whatever_the_server_thinks() {
    let cluster = Cluster::start(&[
        "synchronous_commit=off",
        "default_transaction_isolation=serializable",
        "wal_writer_delay=10s",
    ]);
    let place = TestPlace::postgres_on(&cluster);
    let (_store, mut writer, mut head) = place.lead().await;
    let mut beside = place.connect().await;
    let mut durable = 0;
    for _ in 0..20 {
        let batch = batch(head, 1);
        writer.append(&batch).await.unwrap();
        head = batch.end();
        let flushed = "SELECT pg_current_wal_flush_lsn() = pg_current_wal_insert_lsn()";
        let flushed: bool = sqlx::query(flushed).fetch_one(&mut beside).await.unwrap().get(0);
        durable += u32::from(flushed);
    }
    // The server itself writes something from time to time, which need not be flushed.
    assert!(durable >= 18, "{durable} of 20");
    racing_leaders_write_one_history(TestPlace::postgres_on(&cluster)).await;
}

#[tokio::test]
async fn an_unreachable_server_is_reported_without_its_password() {
    let url = "postgres://kubebid:s3cret@127.0.0.1:1/market";
    let options = StoreOptions::from_url(url).unwrap();
    let error = Store::open(&options).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot connect to PostgreSQL at 127.0.0.1:1/market");
    for shown in [format!("{options:?}"), format!("{error:?}"), format!("{:?}", options.location)] {
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_append_reads_by_key_even_while_the_tables_are_empty() {
    let place = TestPlace::postgres();
    drop(place.open().await);
    let mut connection = sqlx::PgConnection::connect(place.url()).await.unwrap();
    connection.execute("SET enable_seqscan TO off; SET plan_cache_mode TO force_generic_plan").await.unwrap();
    let plan = "EXPLAIN SELECT j.last_seq FROM journal j ORDER BY j.first_seq DESC LIMIT 1";
    let rows = sqlx::query(plan).fetch_all(&mut connection).await.unwrap();
    let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(plan.iter().any(|line| line.contains("Index Scan Backward")), "{plan:?}");
}
