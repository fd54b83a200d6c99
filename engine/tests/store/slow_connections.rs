//! Tests of a PostgreSQL to which connecting takes long: after one lost session, an engine leads and acknowledges again
//! within twice that time and the length of its lease.

use std::time::{Duration, Instant};

use kubebid_core::Command;
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::store::{Fault, LeaseCondition, Store, StoreLocation, StoreOptions};
use kubebid_engine::{Engine, EngineError, EngineOptions, Start, Submission};
use kubebid_testkit::Cluster;
use sqlx::{AssertSqlSafe, Executor};

use crate::place::TestPlace;
use crate::proxy::Proxy;

const LEASE: Duration = Duration::from_secs(3);
const TO_CONNECT: Duration = Duration::from_secs(2);
/// Connecting takes a little longer than the proxy waits, and the machine may be busy.
const SLACK: Duration = Duration::from_secs(1);

async fn behind_a_proxy(place: &TestPlace) -> (Proxy, StoreOptions) {
    let proxy = Proxy::to(Cluster::shared().socket()).await;
    let database = place.url().split(['/', '?']).nth(3).unwrap();
    let url = format!("postgres://kubebid@127.0.0.1:{}/{database}?sslmode=disable", proxy.port);
    (proxy, StoreOptions::new(StoreLocation::Postgres(url)))
}

/// Ends the sessions of this name at the server.
async fn end(place: &TestPlace, name: &str) {
    let sql = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = '{name}' AND pid <> pg_backend_pid()"
    );
    place.connect().await.execute(AssertSqlSafe(sql)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_renewed_although_connecting_takes_longer_than_a_renewal_may() {
    let place = TestPlace::postgres();
    let (proxy, options) = behind_a_proxy(&place).await;
    let store = Store::open(&options).await.unwrap();
    let mut led = store.lead_by_lease(LeaseCondition::Anyway, LEASE).await.unwrap().unwrap();
    let mut lease = led.lease.take().unwrap();
    assert!(lease.renew().await.unwrap());
    proxy.delay_connections(TO_CONNECT);
    end(&place, "kubebid lease").await;
    let since = Instant::now();
    while lease.renew().await.is_err() {
        assert!(since.elapsed() < 2 * TO_CONNECT + LEASE + SLACK, "it is not renewed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_acknowledges_soon_after_any_one_session_is_lost() {
    let place = TestPlace::postgres();
    let (proxy, store) = behind_a_proxy(&place).await;
    let options = EngineOptions { lease: LEASE, ..EngineOptions::new(store, Clock::Stepped) };
    let (engine, running) = Engine::start(options).await.unwrap();
    let acknowledged = async || {
        let submitted = engine.submit(Submission::new(None, Command::AdvanceTime), |_| ());
        submitted.await.is_ok() && engine.leads()
    };
    assert!(acknowledged().await);
    proxy.delay_connections(TO_CONNECT);
    for session in ["kubebid journal", "kubebid lease", "kubebid"] {
        end(&place, session).await;
        // The lease lapses, if it does, after the engine has found that the session is lost.
        let (since, mut last) = (Instant::now(), Duration::ZERO);
        while since.elapsed() < 3 * LEASE {
            if !acknowledged().await {
                last = since.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("without {session}: {last:?} to the last command that was not acknowledged");
        assert!(last < 2 * TO_CONNECT + LEASE + SLACK, "{session}: {last:?}");
    }
    drop(engine);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_starts_while_the_database_is_away_waits_for_it() {
    let place = TestPlace::postgres();
    let (proxy, store) = behind_a_proxy(&place).await;
    proxy.refuse_connections(true);
    let start = |start| EngineOptions { start, ..EngineOptions::new(store.clone(), Clock::Real) };
    // Others end, and a script that starts them sees it.
    let alone = Engine::start(start(Start::Alone)).await.map(drop);
    assert!(matches!(alone, Err(EngineError::Store(Fault::Connect { .. }))), "{alone:?}");
    let starting = tokio::spawn(Engine::start(start(Start::Standby)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!starting.is_finished());
    proxy.refuse_connections(false);
    let (engine, running) = starting.await.unwrap().expect("it leads");
    drop(engine);
    running.stop().await.unwrap();

    // A database that is there and refuses is not waited for.
    let StoreLocation::Postgres(url) = &store.location else { unreachable!("it is a server") };
    let nowhere = StoreLocation::Postgres(url.replace("?", "_is_not_there?"));
    let nowhere = StoreOptions { location: nowhere, ..store.clone() };
    let refused = EngineOptions { store: nowhere, ..start(Start::Standby) };
    let refused = Engine::start(refused).await.map(drop);
    assert!(matches!(refused, Err(EngineError::Store(Fault::Connect { .. }))), "{refused:?}");
}
