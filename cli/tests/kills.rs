//! The engine is killed at random under load, again and again. The judge is the callers' own list of
//! what was acknowledged, read back through the API: nothing of it may be lost, nothing may be there
//! twice.
//!
//! `KUBEBID_KILLS` sets how often (5 by default), `KUBEBID_BINARY` what is killed (the `kubebid` that was built with
//! this test by default).

use kubebid_client::v1::{self, PlaceBidRequest, token::Role};
use kubebid_client::{Client, Options};
use kubebid_testkit::Cluster;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

const WRITERS: usize = 8;
const MARKET: &str = "h100-8x/eu-west";

#[expect(clippy::disallowed_methods, reason = "how long a run is to be, and of what")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_bid_is_lost_or_doubled_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("kubebid.db").display());
    kill_and_judge(&store, folder.path(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_bid_is_lost_or_doubled_on_postgres() {
    let folder = tempfile::tempdir().unwrap();
    let store = Cluster::shared().database();
    kill_and_judge(&store, folder.path(), 2).await;
}

/// An engine in a process of its own, killed when dropped.
struct Engine {
    process: Child,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Engine {
    fn start(store: &str, folder: &Path, address: &str) -> Engine {
        let binary = variable("KUBEBID_BINARY").map(PathBuf::from);
        let binary = binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_kubebid").into());
        let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log"));
        let process = Command::new(binary)
            .args(["serve", "--store", store, "--listen", address, "--ops-listen", "127.0.0.1:0"])
            .args(["--limit-requests-per-second", "1000000", "--limit-open-bids", "10000000"])
            .args(["--limit-nodes-wanted", "10000000"])
            .arg("--admin-token-file")
            .arg(folder.join("admin.token"))
            .stdin(Stdio::null())
            .stderr(log.expect("a log"))
            .spawn();
        Engine { process: process.expect("the engine can be started") }
    }

    fn kill(&mut self) {
        // SIGKILL: it cannot say good-bye.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Engines come and go: a call waits for the next one.
fn patient(endpoint: &str, token: &str) -> Client {
    let options = Options { deadline: Duration::from_secs(60), tries: u32::MAX, ..Options::default() };
    Client::builder().endpoints([endpoint]).token(token).options(options).build().expect("a client")
}

async fn admin(endpoint: &str, folder: &Path) -> Client {
    let path = folder.join("admin.token");
    for _ in 0..600 {
        if let Ok(token) = std::fs::read_to_string(&path)
            && !token.trim().is_empty()
        {
            return patient(endpoint, token.trim());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the engine made no token; its log:\n{}", std::fs::read_to_string(folder.join("log")).unwrap());
}

async fn kill_and_judge(store: &str, folder: &Path, seed: u64) {
    let kills: u32 = variable("KUBEBID_KILLS").map_or(5, |text| text.parse().expect("a number of kills"));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (address, endpoint) = (format!("127.0.0.1:{port}"), format!("http://127.0.0.1:{port}"));
    let mut engine = Engine::start(store, folder, &address);
    let admin = admin(&endpoint, folder).await;
    let open = v1::OpenMarketRequest { market: MARKET.into(), rules: None };
    admin.open_market(open).await.expect("the market opens");
    admin.put_account(v1::PutAccountRequest { name: "t".into(), limits: None }).await.unwrap();
    let token = v1::CreateTokenRequest {
        account: "t".into(),
        roles: vec![Role::Tenant as i32],
        description: String::new(),
    };
    let token = admin.create_token(token).await.expect("a token").secret;

    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (client, stop) = (patient(&endpoint, &token), stop.clone());
        writers.spawn(async move { write(client, writer, stop).await });
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(rng.random_range(150..900))).await;
        engine.kill();
        engine = Engine::start(store, folder, &address);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    let acked: BTreeMap<String, u64> = writers.join_all().await.into_iter().flatten().collect();
    engine.kill();
    let _engine = Engine::start(store, folder, &address);
    judge(&patient(&endpoint, &token), &acked).await;
    eprintln!("{kills} kills, {} acknowledged bids found", acked.len());
}

/// The same key gives the same bid.
fn bid(key: &str) -> PlaceBidRequest {
    let ceiling = 100 * (1 + key.bytes().map(u64::from).sum::<u64>() % 5000);
    PlaceBidRequest {
        client_key: key.to_owned(),
        markets: vec![MARKET.into()],
        ceiling_micros: ceiling,
        max_nodes: 1,
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

async fn judge(client: &Client, acked: &BTreeMap<String, u64>) {
    let listed =
        client.all(v1::ListBidsRequest { page_size: 1000, ..Default::default() }).await.expect("bids");
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
    // And a repeat gets the first answer.
    for (key, bid_number) in acked.iter().step_by(acked.len() / 50 + 1) {
        let again = client.place_bid(bid(key)).await.expect("the first answer");
        assert!(again.repeated && again.bid == *bid_number, "key {key}: {again:?}");
    }
    assert!(!acked.is_empty());
}
