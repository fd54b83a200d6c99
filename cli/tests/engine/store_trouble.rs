//! A store that hangs: the engine says so where it is asked for its health, and ends all the same.

use crate::kills::{MARKET, bid};
use crate::process::{Engine, market_and_tenant};
use crate::standby::until;
use kubebid_testkit::Cluster;
use rustix::process::Signal;

/// The lease does not lapse within a test.
const FLAGS: [&str; 4] = ["--lease-ms", "600000", "--grace-seconds", "2"];

fn is_unready(engine: &Engine, why: &str) -> bool {
    engine.ops("/readyz").is_some_and(|(status, answer)| status == 503 && answer.contains(why))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_commits_hang_is_not_ready_and_ends_within_its_grace() {
    let (cluster, folder) = (Cluster::start(&[]), tempfile::tempdir().unwrap());
    let mut engine = Engine::start(&cluster.database(), folder.path(), &FLAGS);
    let token = market_and_tenant(&engine.admin().await, MARKET, "t").await;
    let tenant = engine.client(&token);
    tenant.place_bid(bid("before")).await.unwrap();
    // From here on every commit waits for a standby that there is not.
    cluster.sql("ALTER SYSTEM SET synchronous_standby_names TO 'nobody'");
    cluster.sql("SELECT pg_reload_conf()");
    for n in 0..2 {
        let tenant = tenant.clone();
        tokio::spawn(async move { tenant.place_bid(bid(&format!("hangs-{n}"))).await });
    }
    until("it is unready", || {
        is_unready(&engine, "the store does not answer: the database did not answer in time")
    })
    .await;
    engine.signal(Signal::TERM);
    until("it ends", || engine.ended().is_some()).await;
    assert_eq!(engine.ended().unwrap().code(), Some(1));
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("the store did not let the engine end within 10 s"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_tables_stand_still_is_not_ready_and_ends_within_its_grace() {
    let (cluster, folder) = (Cluster::start(&[]), tempfile::tempdir().unwrap());
    let store = cluster.database();
    let mut engine = Engine::start(&store, folder.path(), &FLAGS);
    let token = market_and_tenant(&engine.admin().await, MARKET, "t").await;
    let hang = "CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_sleep(3600); RETURN NEW; END $$;
                CREATE TRIGGER hang BEFORE UPDATE ON projection FOR EACH ROW EXECUTE FUNCTION hang()";
    cluster.program("psql", &[&store, "-Xq", "-c", hang]);
    let placed = engine.client(&token).place_bid(bid("k")).await.unwrap();
    assert!(placed.bid > 0, "bids are taken all the same");
    until("it is unready", || is_unready(&engine, "the readable tables have stood still for")).await;
    engine.signal(Signal::TERM);
    until("it ends", || engine.ended().is_some()).await;
    assert_eq!(engine.ended().unwrap().code(), Some(0), "the tables are carried on by the next one");
}
