//! PostgreSQL crashes under load, again and again: the postmaster is killed, stopped at once, or one of its sessions is
//! killed. What was acknowledged stays readable, a watch delivers each event once, and the engine is ready again.
//!
//! `KUBEBID_CRASHES` sets how often (5 by default).

use crate::kills::{MARKET, verify};
use crate::process::{Engine, market_and_tenant, variable};
use crate::standby::{Acked, Pair, client, place, until, watch};
use kubebid_client::{Client, v1};
use kubebid_testkit::{Cluster, Crash};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

const WRITERS: usize = 4;
const READERS: usize = 2;
const CRASHES: [Crash; 3] = [Crash::Postmaster, Crash::Immediate, Crash::Backend];

/// A server that writes its log late: a crash loses whatever nobody waited for.
fn cluster() -> Cluster {
    Cluster::start(&["wal_writer_delay=10s", "log_min_messages=panic"])
}

fn crashes() -> usize {
    variable("KUBEBID_CRASHES").map_or(5, |text| text.parse().expect("a number of crashes"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_stays_readable_when_postgresql_crashes() {
    let (cluster, folder) = (cluster(), tempfile::tempdir().unwrap());
    let mut engine = Engine::start(&cluster.database(), folder.path(), &["--lease-ms", "2000"]);
    let token = market_and_tenant(&engine.admin().await, MARKET, "t").await;
    let load = Load::start(&client(&[engine.endpoint()], &token));
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for round in 0..crashes() {
        sleep(Duration::from_millis(rng.random_range(200..700))).await;
        cluster.crash(CRASHES[round % CRASHES.len()]);
        load.goes_on(round).await;
        until("it is ready", || engine.ops("/readyz").is_some_and(|(status, _)| status == 200)).await;
    }
    load.verify().await;
    engine.signal(Signal::TERM);
    until("it ends", || engine.ended().is_some()).await;
    assert!(engine.ended().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_takes_over_after_a_crash_of_postgresql_reads_what_was_acknowledged() {
    let (cluster, folder) = (cluster(), tempfile::tempdir().unwrap());
    let flags = ["--standby", "--lease-ms", "1500"];
    let mut pair = Pair::start(&cluster.database(), folder.path(), &flags);
    let (admin, both) = (pair.leader(&flags, 0).await.admin_token().await, pair.endpoints());
    let token = market_and_tenant(&client(&both, &admin), MARKET, "t").await;
    let load = Load::start(&client(&both, &token));
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for round in 0..crashes() {
        sleep(Duration::from_millis(rng.random_range(200..700))).await;
        // One that still starts would end with the database.
        let leader = pair.leader(&flags, load.newest()).await;
        leader.kill();
        cluster.crash(CRASHES[round % CRASHES.len()]);
        load.goes_on(round).await;
        leader.restart(&flags);
    }
    load.verify().await;
}

/// Tenants who place bids, readers who look at what was acknowledged, and one who watches.
struct Load {
    client: Client,
    acked: Acked,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
    last: oneshot::Sender<u64>,
    watched: JoinHandle<Vec<u64>>,
}

impl Load {
    fn start(client: &Client) -> Load {
        let (acked, stop, mut tasks) = (Acked::default(), Arc::new(AtomicBool::new(false)), JoinSet::new());
        for writer in 0..WRITERS {
            let (client, acked, stop) = (client.clone(), acked.clone(), stop.clone());
            tasks.spawn(async move {
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let number = place(&client, &format!("w{writer}-{n}"), &acked).await;
                    read(&client, number).await;
                }
            });
        }
        for reader in 0..READERS {
            let (client, acked, stop) = (client.clone(), acked.clone(), stop.clone());
            tasks.spawn(async move {
                let mut rng = ChaCha8Rng::seed_from_u64(reader as u64);
                while !stop.load(Ordering::Relaxed) {
                    let mut numbers: Vec<u64> = acked.lock().unwrap().values().copied().collect();
                    numbers.sort_unstable();
                    match numbers.len() {
                        0 => tokio::task::yield_now().await,
                        // The newest are what a crash may have taken away.
                        many => {
                            let newest = numbers[many.saturating_sub(20)..].to_vec();
                            read(&client, newest[rng.random_range(0..newest.len())]).await;
                        }
                    }
                }
            });
        }
        let (last, last_bid) = oneshot::channel();
        let watched = tokio::spawn(watch(client.clone(), last_bid));
        Load { client: client.clone(), acked, stop, tasks, last, watched }
    }

    /// The newest bid that was acknowledged.
    fn newest(&self) -> u64 {
        self.acked.lock().unwrap().values().max().copied().unwrap_or(0)
    }

    /// A bid is placed and read after a crash.
    async fn goes_on(&self, round: usize) {
        let number = place(&self.client, &format!("after-{round}"), &self.acked).await;
        read(&self.client, number).await;
    }

    /// All that was acknowledged is in the tables once, and was watched once, in order.
    async fn verify(self) {
        let Load { client, acked, stop, tasks, last, watched } = self;
        stop.store(true, Ordering::Relaxed);
        tasks.join_all().await;
        last.send(place(&client, "last", &acked).await).expect("somebody watches");
        let acked: BTreeMap<String, u64> = acked.lock().unwrap().clone();
        verify(&client, &acked).await;
        let mut placed: Vec<u64> = acked.values().copied().collect();
        placed.sort_unstable();
        assert_eq!(watched.await.unwrap(), placed, "each bid is watched once, in order");
        eprintln!("{} acknowledged bids found", acked.len());
    }
}

/// Reads a bid that was acknowledged. Its number is that of the command that placed it.
async fn read(client: &Client, number: u64) {
    let request = v1::GetBidRequest { bid: number, min_seq: number };
    let found = client.get_bid(request).await;
    let found = found.unwrap_or_else(|error| panic!("bid {number} was acknowledged: {error}"));
    assert_eq!(found.bid.map(|bid| bid.bid), Some(number));
}
