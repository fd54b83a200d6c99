//! Two engines on one store: the leader is killed, or stands still and wakes, again and again, while bids are placed
//! at both. The judge is the journal, read beside them, and the callers' own lists of what was acknowledged.
//!
//! `KUBEBID_FAILOVERS` sets how often (20 by default), `KUBEBID_FAILOVER_LEASE_MS` the length of the lease (1500 by
//! default, where the engine has 3000), `KUBEBID_BINARY` what is run. How long callers wait is printed; with
//! `KUBEBID_FAILOVER_MOST_MS` it is held to that when the leader is killed.

use crate::journal::run;
use crate::kills::{MARKET, bid, verify};
use crate::process::{Engine, market_and_tenant, variable};
use kubebid_client::v1;
use kubebid_client::v1::event::Kind;
use kubebid_client::{Client, Error, Options};
use kubebid_core::event::Fact;
use kubebid_core::units::Micros;
use kubebid_core::{Auction, Exchange};
use kubebid_engine::runtime::recovery::command_of;
use kubebid_engine::store::{BatchReader, Journal, StoreOptions};
use kubebid_testkit::Cluster;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

const WRITERS: usize = 4;
/// When something that has to happen is taken not to.
const STUCK: Duration = Duration::from_secs(120);

/// What callers were told: the bid of each key.
pub(crate) type Acked = Arc<Mutex<BTreeMap<String, u64>>>;

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_and_no_acknowledged_bid_is_lost() {
    let rounds: u32 = variable("KUBEBID_FAILOVERS").map_or(20, |text| text.parse().expect("a number"));
    let lease_ms = variable("KUBEBID_FAILOVER_LEASE_MS").unwrap_or_else(|| "1500".to_owned());
    let flags = ["--standby", "--lease-ms", &lease_ms];
    let folder = tempfile::tempdir().unwrap();
    let store = Cluster::shared().database();
    let mut pair = Pair::start(&store, folder.path(), &flags);
    let (admin, both) = (pair.leader(&flags, 0).await.admin_token().await, pair.endpoints());
    let token = market_and_tenant(&client(&both, &admin), MARKET, "t").await;
    let tenant = client(&both, &token);

    let (stop, acked) = (Arc::new(AtomicBool::new(false)), Acked::default());
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(client(&both, &token), writer, stop.clone(), acked.clone()));
    }
    let (last, last_bid) = oneshot::channel();
    let watched = tokio::spawn(watch(tenant.clone(), last_bid));
    let mut witness = Witness::of(&store).await;
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let begun = Instant::now();
    let mut waits: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for round in 0..rounds {
        sleep(Duration::from_millis(rng.random_range(0..500))).await;
        let leader = pair.leader(&flags, witness.seq()).await;
        let how = if round % 2 == 0 { "SIGKILL" } else { "SIGSTOP" };
        // Whatever the answer is, there is a connection to one who stands still.
        let alone = leader.client(&token).with_options(Options { tries: 1, ..Options::default() });
        let _ = alone.list_markets(v1::ListMarketsRequest::default()).await;
        match how {
            "SIGKILL" => leader.kill(),
            _ => leader.freeze(),
        }
        let killed = Instant::now();
        place(&tenant, &format!("first-{round}"), &acked).await;
        waits.entry(how).or_default().push(killed.elapsed());
        if how == "SIGSTOP" {
            wake(leader, &alone, round).await;
        }
        witness.follow(&acked).await;
        leader.restart(&flags);
    }
    stop.store(true, Ordering::Relaxed);
    writers.join_all().await;
    last.send(place(&tenant, "last", &acked).await).expect("somebody watches");
    witness.follow(&acked).await;
    let placed: BTreeSet<u64> = witness.bids.values().copied().collect();
    assert_eq!(watched.await.unwrap(), Vec::from_iter(placed), "who watches sees each bid once, in order");
    assert!(!witness.bids.keys().any(|key| key.starts_with("woken")), "nothing was taken by who was fenced");
    let found = acked.lock().unwrap().clone();
    verify(&tenant, &found).await;
    for (how, waits) in &mut waits {
        waits.sort();
        let all: Vec<u128> = waits.iter().map(Duration::as_millis).collect();
        eprintln!("{how}, lease of {lease_ms} ms: ms to the first acknowledged bid {all:?}");
    }
    eprintln!(
        "{rounds} changes in {:?}, {} acknowledged bids found, {} commands",
        begun.elapsed(),
        found.len(),
        witness.seq()
    );
    if let Some(most) = variable("KUBEBID_FAILOVER_MOST_MS") {
        let most = Duration::from_millis(most.parse().expect("a number"));
        assert!(waits["SIGKILL"].iter().all(|wait| *wait <= most), "{waits:?}");
    }
}

/// The leader wakes when another one leads: it acknowledges nothing more, and ends.
async fn wake(leader: &mut Engine, alone: &Client, round: u32) {
    let command = |n: u32| {
        let (alone, key) = (alone.clone(), format!("woken-{round}-{n}"));
        tokio::spawn(async move { alone.place_bid(bid(&key)).await })
    };
    let before = command(0);
    // It is in the socket by then, or comes a little later: both are to be refused.
    sleep(Duration::from_millis(20)).await;
    leader.signal(Signal::CONT);
    for answer in [before, command(1)] {
        let answer = answer.await.unwrap();
        assert!(matches!(answer, Err(Error::Unavailable(_) | Error::Late(_))), "{answer:?}");
    }
    let woken = Instant::now();
    let status = loop {
        if let Some(status) = leader.ended() {
            break status;
        }
        assert!(woken.elapsed() < STUCK, "it goes on");
        sleep(Duration::from_millis(20)).await;
    };
    assert!(!status.success(), "it says that it was overtaken");
}

pub(crate) async fn place(client: &Client, key: &str, acked: &Acked) -> u64 {
    let placed = client.place_bid(bid(key)).await.expect("a patient client gets its answer");
    acked.lock().unwrap().insert(key.to_owned(), placed.bid);
    placed.bid
}

async fn write(client: Client, writer: usize, stop: Arc<AtomicBool>, acked: Acked) {
    let mut pace = tokio::time::interval(Duration::from_millis(10));
    for n in 0.. {
        pace.tick().await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        place(&client, &format!("w{writer}-{n}"), &acked).await;
    }
}

/// All bids, as one who watches from the beginning sees them placed, up to this one.
pub(crate) async fn watch(client: Client, last: oneshot::Receiver<u64>) -> Vec<u64> {
    let mut watch = client.watch_events_from_start(None);
    let mut placed = Vec::new();
    let mut last = pin!(last);
    let mut until = None;
    while until.is_none_or(|until| placed.last() != Some(&until)) {
        tokio::select! {
            bid = &mut last, if until.is_none() => until = Some(bid.expect("it is told")),
            frame = watch.next() => {
                let frame = frame.expect("it goes on").expect("nothing is gone");
                placed.extend(frame.events.iter().filter_map(|event| match &event.kind {
                    Some(Kind::BidPlaced(placed)) => Some(placed.bid),
                    Some(_) | None => None,
                }));
            }
        }
    }
    placed
}

/// Goes round both, and leaves one that stands still after a second.
pub(crate) fn client(both: &[String], token: &str) -> Client {
    let (timeout, deadline) = (Duration::from_secs(1), Duration::from_secs(60));
    let options = Options { timeout, deadline, tries: u32::MAX, ..Options::default() };
    Client::builder().endpoints(both.to_vec()).token(token).options(options).build().expect("a client")
}

pub(crate) struct Pair([Engine; 2]);

impl Pair {
    pub(crate) fn start(store: &str, folder: &Path, flags: &[&str]) -> Pair {
        Pair([Engine::start(store, folder, flags), Engine::start(store, folder, flags)])
    }

    pub(crate) fn endpoints(&self) -> [String; 2] {
        self.0.each_ref().map(Engine::endpoint)
    }

    /// The one that leads, when the other one follows and has come so far. A machine that is busy elsewhere may let
    /// a lease lapse: whoever ended for that stands by again.
    pub(crate) async fn leader(&mut self, flags: &[&str], seq: u64) -> &mut Engine {
        let begun = Instant::now();
        loop {
            let mut said = Vec::new();
            for engine in &mut self.0 {
                if engine.ended().is_some() {
                    eprintln!("an engine had ended by itself");
                    engine.restart(flags);
                }
                said.push(state(engine));
            }
            match said[..] {
                [State::Leads, State::Follows(followed)] if followed >= seq => return &mut self.0[0],
                [State::Follows(followed), State::Leads] if followed >= seq => return &mut self.0[1],
                _ => {}
            }
            assert!(begun.elapsed() < STUCK, "{said:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Leads,
    /// Up to this command.
    Follows(u64),
    Neither,
}

/// As it says itself.
fn state(engine: &Engine) -> State {
    match engine.ops("/readyz") {
        Some((200, _)) => State::Leads,
        Some((503, answer)) if answer.ends_with("standby\n") => {
            let (_, metrics) = engine.ops("/metrics").unwrap_or_default();
            let seq = metrics.lines().find_map(|line| line.strip_prefix("kubebid_seq "));
            State::Follows(seq.map_or(0, |seq| seq.parse().expect("a number")))
        }
        Some(_) | None => State::Neither,
    }
}

/// Reads the journal, batch by batch without a gap, and plays it for itself.
struct Witness {
    reader: BatchReader,
    exchange: Exchange,
    at: Micros,
    /// By their keys.
    bids: BTreeMap<String, u64>,
}

impl Witness {
    async fn of(store: &str) -> Witness {
        let options = StoreOptions::from_url(store).unwrap();
        let reader = Journal::open_to_read(&options).await.unwrap().read_from(1);
        Witness { reader, exchange: Exchange::new(), at: Micros(0), bids: BTreeMap::new() }
    }

    fn seq(&self) -> u64 {
        self.exchange.seq().0
    }

    /// Up to the journal's end; all that was acknowledged before has to be in it.
    async fn follow(&mut self, acked: &Acked) {
        let acked = acked.lock().unwrap().clone();
        loop {
            let batches = self.reader.next_chunk().await.expect("each continues the one before");
            if batches.is_empty() {
                break;
            }
            for record in batches.iter().flat_map(|batch| batch.records()) {
                let command = command_of(record).expect("a command");
                assert!(command.at >= self.at, "market time goes back behind command {}", self.seq());
                self.at = command.at;
                let answer = self.exchange.apply(&command);
                for event in answer.events {
                    if let Fact::BidPlaced { bidder, .. } = event.fact {
                        let key = command.key.as_ref().expect("all have keys").as_str().to_owned();
                        let before = self.bids.insert(key, bidder.bid.0);
                        assert_eq!(before, None, "a key was applied twice");
                    }
                }
            }
        }
        for (key, bid) in acked {
            assert_eq!(self.bids.get(&key), Some(&bid), "the bid of key {key}");
        }
    }
}

/// So long that it does not lapse within a test.
const LONG: [&str; 2] = ["--lease-ms", "600000"];

#[tokio::test(flavor = "multi_thread")]
async fn who_stops_in_order_hands_over_at_once_to_one_of_those_who_wait() {
    let folder = tempfile::tempdir().unwrap();
    let store = Cluster::shared().database();
    let start = |flags: &[&str]| Engine::start(&store, folder.path(), flags);
    let leader = start(&LONG);
    until("it leads", || state(&leader) == State::Leads).await;
    let token = leader.admin_token().await;
    let standby = [&LONG[..], &["--standby"]].concat();
    let waiting = [start(&standby), start(&standby)];
    for engine in &waiting {
        until("it waits", || matches!(state(engine), State::Follows(_))).await;
        assert_eq!(engine.ops("/livez").unwrap().0, 200);
        until("its metrics say so", || has_metric(engine, "kubebid_leading 0")).await;
        let (status, problem) = engine.rest("/v1/markets", &token);
        assert!(status == 503 && problem.contains("\"code\":\"NOT_LEADING\""), "{problem}");
    }
    let hasty = Options { deadline: Duration::from_secs(4), ..Options::default() };
    let refused = waiting[0].client(&token).with_options(hasty).list_markets(Default::default()).await;
    let Err(Error::Unavailable(end)) = refused else { panic!("{refused:?}") };
    assert!(end.last.message().contains("does not lead"), "{}", end.last);
    assert!(!end.maybe_taken && end.tries > 1);
    leader.signal(Signal::TERM);
    until("one leads", || waiting.iter().any(|engine| state(engine) == State::Leads)).await;
    // The other one goes on waiting, and all of them know who is whom.
    let all = [leader.endpoint(), waiting[0].endpoint(), waiting[1].endpoint()].join(",");
    run(&["--endpoint", &all, "--token", &token, "market", "list"]);
    assert_eq!(waiting.iter().filter(|engine| state(engine) == State::Leads).count(), 1);
    let leading = waiting.iter().find(|engine| state(engine) == State::Leads).unwrap();
    until("its metrics say so", || has_metric(leading, "kubebid_leading 1")).await;
}

fn has_metric(engine: &Engine, line: &str) -> bool {
    engine.ops("/metrics").is_some_and(|(_, metrics)| metrics.contains(&format!("\n{line}\n")))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_leaves_a_living_one_alone_and_follows_a_dead_one_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Cluster::shared().database();
    // Renewed every two seconds: who looks sees that it lives.
    let renewed = ["--lease-ms", "6000"];
    let mut first = Engine::start(&store, folder.path(), &renewed);
    until("it leads", || state(&first) == State::Leads).await;
    let mut second = Engine::start(&store, folder.path(), &LONG);
    until("it gives up", || second.ended().is_some()).await;
    assert_eq!(second.ended().unwrap().code(), Some(1));
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("another engine leads and lives; --standby"), "{log}");
    assert_eq!(state(&first), State::Leads);

    let over = [&LONG[..], &["--take-over"]].concat();
    second.restart(&over);
    until("it takes over", || state(&second) == State::Leads).await;
    until("the other one ends", || first.ended().is_some()).await;
    assert!(!first.ended().unwrap().success());
    // Its lease has ten minutes left, but its session has ended.
    second.restart(&LONG);
    until("it leads again", || state(&second) == State::Leads).await;
}

pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < STUCK, "{what} not");
        sleep(Duration::from_millis(20)).await;
    }
}
