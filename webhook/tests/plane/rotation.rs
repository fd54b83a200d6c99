//! Rotations of CAs and certificates while clients read, and replicas come and go.

use crate::story::{DISKS, Story, bundle, definition_alone};
use k8s_openapi::jiff::SignedDuration;
use kubebid_testkit::tls;
use kubebid_webhook::authority::plan::{Content, Lifetimes};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::RwLock;
use tokio::time::sleep;

/// Clients that read all the time, and the requests of theirs that failed.
#[derive(Debug, Default)]
struct Readers {
    /// Held by a request. A replica that is killed takes its requests along, which no client repeats, so it is killed
    /// between two of them.
    gate: RwLock<()>,
    ends: AtomicBool,
    reads: AtomicUsize,
    handshakes: AtomicUsize,
    failures: Mutex<Vec<String>>,
}

impl Readers {
    fn count<T, E: std::fmt::Display>(&self, counter: &AtomicUsize, result: &Result<T, E>) {
        counter.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = result {
            self.failures.lock().unwrap().push(error.to_string());
        }
    }

    /// Reads a disk in the version that is not stored.
    async fn read(&self, story: &Story) {
        let disks = story.alphas();
        while !self.ends.load(Ordering::Relaxed) {
            let _held = self.gate.read().await;
            self.count(&self.reads, &disks.get("blog").await);
        }
    }

    /// Connects with the bundle of the definition, as it was a while before: the API server learns of it late.
    async fn shake_hands(&self, story: &Story) {
        while !self.ends.load(Ordering::Relaxed) {
            let definition = story.definitions().get(DISKS).await.unwrap();
            let client = tls::with_bundle(bundle(&definition).unwrap().as_bytes());
            sleep(Duration::from_millis(200)).await;
            let _held = self.gate.read().await;
            self.count(&self.handshakes, &tls::probe(story.balancer.address(), client).await);
        }
    }
}

/// Rotations of the CA in which a replica is killed.
const CA_ROTATIONS: usize = 5;
/// Renewals of a replica's certificate after which it is killed at once.
const RENEWALS: usize = 20;
const READS: usize = 10_000;

/// The phases of a rotation in which a replica is killed, one after the other.
const PHASES: [fn(&Content) -> bool; 5] = [
    |content| content.next.as_ref().is_some_and(|next| next.seen.is_none()),
    |content| content.next.as_ref().is_some_and(|next| next.seen.is_some()),
    |content| content.next.is_none() && !content.former.is_empty(),
    |content| content.former.is_empty(),
    |content| content.next.is_some(),
];

#[tokio::test(flavor = "multi_thread")]
async fn no_read_fails_while_authorities_and_certificates_rotate_and_replicas_are_killed() {
    let mut story = Story::begin("rotation", "v1beta1").await;
    let seconds = SignedDuration::from_secs;
    story.lifetimes =
        Lifetimes { authority: seconds(27), leaf: seconds(9), settle: seconds(1), skew: seconds(1) };
    let story = Arc::new(story);
    let mut replicas = story.start_both(&definition_alone()).await.map(Some);
    story.create("blog", json!({"gigabytes": 10, "zones": ["a", "b"]})).await;
    // The API server learns of the first bundle a moment after it was written.
    story.until(story.alphas(), "blog", |disk| disk.spec.size == "10Gi").await;

    let readers = Arc::new(Readers::default());
    let reading = tokio::spawn({
        let (story, readers) = (Arc::clone(&story), Arc::clone(&readers));
        async move {
            let reads = || readers.read(&story);
            tokio::join!(reads(), reads(), reads(), readers.shake_hands(&story))
        }
    });
    // The CAs in whose rotation a replica was killed.
    let mut authorities: Vec<String> = Vec::new();
    let (mut round, mut renewals) = (0, 0);
    while authorities.len() < CA_ROTATIONS
        || renewals < RENEWALS
        || readers.reads.load(Ordering::Relaxed) < READS
    {
        let number = round % 2;
        let is_in_phase = |content: &Content| {
            !authorities.contains(&content.current.common_name)
                && PHASES[authorities.len() % PHASES.len()](content)
        };
        tokio::select! {
            content = story.until_authority(is_in_phase) => authorities.push(content.current.common_name),
            () = story.balancer.until_renewed(story.address(number)) => renewals += 1,
        }
        {
            let _gate = readers.gate.write().await;
            replicas[number].take().unwrap().kill();
            story.balancer.until_left(story.address(number)).await;
        }
        replicas[number] = Some(story.start_again(number, &definition_alone()).await);
        if round % 3 == 2 {
            // One that is told to stop answers first, so the clients go on.
            let other = 1 - number;
            replicas[other].take().unwrap().stop().await;
            replicas[other] = Some(story.start_again(other, &definition_alone()).await);
        }
        round += 1;
    }
    readers.ends.store(true, Ordering::Relaxed);
    reading.await.unwrap();
    let (reads, handshakes) = (&readers.reads, &readers.handshakes);
    println!(
        "{authorities:?} {renewals} renewals {} certificates {reads:?} reads {handshakes:?} handshakes",
        story.balancer.certificates()
    );
    assert_eq!(*readers.failures.lock().unwrap(), Vec::<String>::new());
}
