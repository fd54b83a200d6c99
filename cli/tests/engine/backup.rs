//! A store is copied while bids are placed, and restored elsewhere: the same state up to the copy's last command, all
//! that was acknowledged before it, and cursors of what came after are gone.

use crate::journal::run;
use crate::kills::{MARKET, bid};
use crate::process::{Engine, market_and_tenant, sqlite};
use kubebid_client::v1;
use kubebid_client::{Client, Error};
use kubebid_engine::store::{Journal, StoreOptions};
use kubebid_testkit::Cluster;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// The last number that was acknowledged, with its key and its bid.
type Last = (u64, String, u64);

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_of_a_running_store_is_restored_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let store = Cluster::shared().database();
    let dump = folder.path().join("market.dump");
    let elsewhere = Cluster::start(&[]);
    copied_and_restored(&store, folder.path(), |store| {
        elsewhere.program("pg_dump", &["--format", "custom", "--file", dump.to_str().unwrap(), store]);
        let restored = elsewhere.database();
        let clean = ["--exit-on-error", "--no-owner", "--dbname", &restored, dump.to_str().unwrap()];
        elsewhere.program("pg_restore", &clean);
        restored
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_running_file_is_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    let copy = copy.to_str().unwrap();
    copied_and_restored(&sqlite(folder.path()), folder.path(), |store| {
        run(&["backup", "--store", store, copy]);
        format!("sqlite:{copy}")
    })
    .await;
    let again = Command::new(crate::process::binary())
        .args(["backup", "--store", &sqlite(folder.path()), copy])
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(2), "what is there is not written over");
}

async fn copied_and_restored(store: &str, folder: &Path, copy: impl FnOnce(&str) -> String) {
    let engine = Engine::start(store, folder, &[]);
    let token = market_and_tenant(&engine.admin().await, MARKET, "t").await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        writers.spawn(write(engine.client(&token), writer, stop.clone()));
    }
    let client = engine.client(&token);
    let (before, _) = place(&client, "before").await;
    let restored = copy(store);
    let (after, cursor) = place(&client, "after").await;
    stop.store(true, Ordering::Relaxed);
    let acked: Vec<Last> = writers.join_all().await.into_iter().flatten().collect();

    // The same state up to the last command of the copy, which is somewhere on the way.
    let options = StoreOptions::from_url(&restored).unwrap();
    let end = Journal::open_to_read(&options).await.unwrap().head().await.unwrap().seq;
    assert!(before.0 <= end && end < after.0, "{} <= {end} < {}", before.0, after.0);
    run(&["journal", "verify", "--store", &restored]);
    let hash = |said: String| said.lines().last().unwrap().to_owned();
    let there = hash(run(&["journal", "replay", "--store", &restored]));
    let here = hash(run(&["journal", "replay", "--store", store, "--up-to", &end.to_string()]));
    assert!(here.starts_with("state hash ") && here == there, "{here}, {there}");

    // An engine on the copy knows all of its past and nothing of its future.
    let home = tempfile::tempdir().unwrap();
    std::fs::copy(folder.join("admin.token"), home.path().join("admin.token")).unwrap();
    let mut other = Engine::start(&restored, home.path(), &[]);
    let client = other.client(&token);
    gone(&other, &token, &cursor).await;
    for (_, key, number) in acked.iter().chain([&before]).filter(|(seq, ..)| *seq <= end) {
        let again = client.place_bid(bid(key)).await.expect("the first answer");
        assert!(again.repeated && again.bid == *number, "{key}: {again:?}");
    }
    // The new future has other commands under the same numbers: until the journal has a name of its own the
    // cursor seems to lead into it.
    for n in 0.. {
        if place(&client, &format!("new-{n}")).await.0.0 > after.0 {
            break;
        }
    }
    other.stop();
    let said = run(&["journal", "rename", "--store", &restored]);
    assert!(said.contains("is called"), "{said}");
    other.restart(&[]);
    gone(&other, &token, &cursor).await;
    let (_, now) = place(&client, "now").await;
    let mut watch = client.watch_events(None, now);
    watch.next().await.unwrap().expect("a cursor of here leads somewhere");
}

/// By gRPC and by REST.
async fn gone(engine: &Engine, token: &str, cursor: &str) {
    let client = engine.client(token);
    let answer = client.watch_events(None, cursor).next().await.expect("an answer");
    assert!(matches!(answer, Err(Error::Gone(_))), "{answer:?}");
    let (status, problem) = engine.rest(&format!("/v1/events?cursor={cursor}"), token);
    assert!(status == 410 && problem.contains("\"code\":\"GONE\""), "{status} {problem}");
}

/// What was acknowledged, and a cursor behind it.
async fn place(client: &Client, key: &str) -> (Last, String) {
    let placed = client.place_bid(bid(key)).await.expect("a patient client gets its answer");
    let seen = v1::ListBidsRequest { min_seq: placed.seq, page_size: 1, ..Default::default() };
    let cursor = client.list_bids(seen).await.expect("bids").cursor;
    ((placed.seq, key.to_owned(), placed.bid), cursor)
}

async fn write(client: Client, writer: usize, stop: Arc<AtomicBool>) -> Vec<Last> {
    let mut acked = Vec::new();
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    for n in 0.. {
        pace.tick().await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("w{writer}-{n}");
        let placed = client.place_bid(bid(&key)).await.expect("a patient client gets its answer");
        acked.push((placed.seq, key, placed.bid));
    }
    acked
}
