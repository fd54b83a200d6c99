//! The engine is killed at random under load, again and again. The judge is the callers' own list of
//! what was acknowledged, read back through the API: nothing of it may be lost, nothing may be there
//! twice.
//!
//! `KUBEBID_KILLS` sets how often (5 by default), `KUBEBID_BINARY` what is killed (the `kubebid` that was built with
//! this test by default).

use crate::process::{Engine, market_and_tenant, sqlite, variable};
use kubebid_client::Client;
use kubebid_client::v1::{self, PlaceBidRequest};
use kubebid_testkit::Cluster;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

const WRITERS: usize = 8;
pub(crate) const MARKET: &str = "h100-8x/eu-west";

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_bid_is_lost_or_doubled_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    kill_and_judge(&sqlite(folder.path()), folder.path(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_bid_is_lost_or_doubled_on_postgres() {
    let folder = tempfile::tempdir().unwrap();
    let store = Cluster::shared().database();
    kill_and_judge(&store, folder.path(), 2).await;
}

async fn kill_and_judge(store: &str, folder: &Path, seed: u64) {
    let kills: u32 = variable("KUBEBID_KILLS").map_or(5, |text| text.parse().expect("a number of kills"));
    let mut engine = Engine::start(store, folder, &[]);
    let token = market_and_tenant(&engine.admin().await, MARKET, "t").await;

    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (client, stop) = (engine.client(&token), stop.clone());
        writers.spawn(async move { write(client, writer, stop).await });
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(rng.random_range(150..900))).await;
        engine.restart(&[]);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    let acked: BTreeMap<String, u64> = writers.join_all().await.into_iter().flatten().collect();
    engine.restart(&[]);
    verify(&engine.client(&token), &acked).await;
    eprintln!("{kills} kills, {} acknowledged bids found", acked.len());
}

/// The same key gives the same bid.
pub(crate) fn bid(key: &str) -> PlaceBidRequest {
    let ceiling = 100 * (1 + key.bytes().map(u64::from).sum::<u64>() % 5000);
    PlaceBidRequest {
        client_key: key.to_owned(),
        markets: vec![MARKET.into()],
        ceiling_micros: ceiling,
        max_nodes: 1,
        node_config: key.as_bytes().to_vec(),
        ..PlaceBidRequest::default()
    }
}

/// Bids one after another, each under a key of its own, and notes what was acknowledged.
async fn write(client: Client, writer: usize, stop: Arc<AtomicBool>) -> Vec<(String, u64)> {
    let mut acked = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("w{writer}-{n}");
        let placed = client.place_bid(bid(&key)).await.expect("a patient client gets its answer");
        acked.push((key, placed.bid));
    }
    acked
}

pub(crate) async fn verify(client: &Client, acked: &BTreeMap<String, u64>) {
    // The number of a bid is that of the command that placed it; the tables may not be there yet.
    let min_seq = *acked.values().max().expect("something was acknowledged");
    let list = v1::ListBidsRequest { page_size: 1000, min_seq, ..Default::default() };
    let listed = client.all(list).await.expect("bids");
    let mut by_key: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for bid in listed.bids {
        by_key.entry(bid.client_key.expect("all bids have keys")).or_default().insert(bid.bid);
    }
    for (key, bids) in &by_key {
        assert_eq!(bids.len(), 1, "key {key} was applied more than once: {bids:?}");
    }
    for (key, bid_number) in acked {
        assert_eq!(by_key.get(key), Some(&BTreeSet::from([*bid_number])), "the bid of key {key}");
    }
    // What is beside the journal was written before the answer, and a repeat gets the first answer.
    for (key, bid_number) in acked.iter().step_by(acked.len() / 50 + 1) {
        let request = v1::GetBidRequest { bid: *bid_number, min_seq: 0 };
        let found = client.get_bid(request).await.expect("the bid").bid.expect("the bid");
        assert_eq!(found.node_config(), key.as_bytes(), "the node config of key {key}");
        let again = client.place_bid(bid(key)).await.expect("the first answer");
        assert!(again.repeated && again.bid == *bid_number, "key {key}: {again:?}");
    }
}
