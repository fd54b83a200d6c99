//! Replicas that are killed, and passes that panic: clients and other Caches go on.

use crate::story::{Story, Webhooks};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kubebid_cache_operator::api::v1beta1::Cache;
use kubebid_cache_operator::api::{Phase, v1alpha1};
use serde_json::{Value, json};
use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::RwLock;

/// Requests of each kind that a replica has to see before it is killed.
const REQUESTS: usize = 20;
/// The kinds of requests.
const KINDS: usize = 5;

/// Clients of both versions, and their requests that failed.
#[derive(Default)]
struct Clients {
    /// Held by a request. A replica that is killed takes its requests along, which the API server does not repeat, so it is
    /// killed between two of them.
    gate: RwLock<()>,
    ends: AtomicBool,
    answered: [AtomicUsize; KINDS],
    failures: Mutex<Vec<String>>,
}

impl Clients {
    /// Makes requests of a kind, one after the other. Each gets its number.
    async fn repeat<T, E: Display>(&self, kind: usize, request: impl AsyncFn(usize) -> Result<T, E>) {
        while !self.ends.load(Ordering::Relaxed) {
            let _held = self.gate.read().await;
            match request(self.answered[kind].load(Ordering::Relaxed)).await {
                Ok(_) => drop(self.answered[kind].fetch_add(1, Ordering::Relaxed)),
                Err(error) => {
                    self.failures.lock().unwrap().push(error.to_string());
                    self.ends.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    async fn run(&self, story: &Story) {
        let (older, newer) = (story.api::<v1alpha1::Cache>(), story.api::<Cache>());
        let params = PatchParams::default();
        let note = |number: usize| {
            Patch::Merge(json!({"metadata": {"annotations": {"number": number.to_string()}}}))
        };
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let unfilled = json!({
            "apiVersion": "infra.archon.dev/v1beta1", "kind": "Cache", "metadata": {"name": "unfilled"},
            "spec": {"engine": "valkey", "memory": "64Mi"},
        });
        let unfilled: Cache = serde_json::from_value(unfilled).unwrap();
        tokio::join!(
            self.repeat(0, async |_| older.get("read").await),
            self.repeat(1, async |_| older.list(&ListParams::default()).await),
            self.repeat(2, async |number| older.patch("older", &params, &note(number)).await),
            self.repeat(3, async |number| newer.patch("newer", &params, &note(number)).await),
            self.repeat(4, async |_| match newer.create(&dry_run, &unfilled).await {
                Ok(cache) if cache.spec.replicas == Some(3) => Ok(()),
                Ok(cache) => Err(format!("the replicas are not filled in: {:?}", cache.spec)),
                Err(error) => Err(error.to_string()),
            }),
        );
    }

    /// Waits until so many more requests of each kind are answered.
    async fn until_answered(&self, story: &Story, more: usize) {
        let counts = || self.answered.each_ref().map(|count| count.load(Ordering::Relaxed));
        let before = counts();
        let are_answered = || async {
            self.ends.load(Ordering::Relaxed)
                || counts().iter().zip(before).all(|(count, before)| *count >= before + more)
        };
        story.eventually("all clients are answered", are_answered).await;
        assert_eq!(*self.failures.lock().unwrap(), Vec::<String>::new(), "{:?}", counts());
    }
}

/// Returns the requests that a replica has answered at a path.
fn answered(metrics: &str, path: &str) -> u64 {
    let of_path = metrics.lines().filter(|line| {
        line.starts_with("cache_operator_webhook_requests_total")
            && line.contains(&format!("path=\"{path}\""))
    });
    let counts = of_path.map(|line| {
        assert!(line.contains("code=\"200\""), "{line}");
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    });
    counts.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_read_or_write_fails_while_each_of_two_replicas_is_killed() {
    let mut story = Story::with_webhooks("replicas").await;
    let Webhooks { balancer, ports, mut replicas } = story.webhooks.take().unwrap();
    for name in ["read", "older", "newer"] {
        story.create(name, json!({"engine": "valkey", "memory": "64Mi"})).await;
        story.until_phase(name, Phase::Ready).await;
    }

    let clients = Clients::default();
    let killing = async {
        for place in [0, 1] {
            clients.until_answered(&story, REQUESTS).await;
            {
                let _gate = clients.gate.write().await;
                replicas[place].signal("KILL");
                replicas[place].ended().await;
                balancer.until_left(ports[place].address()).await;
            }
            clients.until_answered(&story, REQUESTS).await;
            let metrics = replicas[1 - place].page("/metrics").await;
            for path in ["/convert", "/mutate", "/validate"] {
                assert!(answered(&metrics, path) > 0, "{path}: {metrics}");
            }
            replicas[place] = story.start_replica(place, ports[place].address());
            balancer.until_ready(2).await;
        }
        clients.until_answered(&story, REQUESTS).await;
        clients.ends.store(true, Ordering::Relaxed);
    };
    tokio::join!(clients.run(&story), killing);
    assert_eq!(*clients.failures.lock().unwrap(), Vec::<String>::new());
    // Each client has seen the writes of the other version.
    let number = |annotations: &Value| annotations["number"].as_str().unwrap().parse::<usize>().unwrap();
    let older = json!(story.api::<Cache>().get("older").await.unwrap().metadata.annotations);
    let newer = json!(story.api::<v1alpha1::Cache>().get("newer").await.unwrap().metadata.annotations);
    let answered = clients.answered.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("{answered:?} requests");
    assert_eq!((number(&older) + 1, number(&newer) + 1), (answered[2], answered[3]));
}

#[tokio::test]
async fn a_pass_that_panics_is_repeated_and_other_caches_go_on() {
    let mut story = Story::without_operator("panic").await;
    story.start_operator(&["--alone", "--panic-at", "children-written", "--backoff", "200ms..1s"]);
    for name in ["one", "two", "three"] {
        story.create(name, json!({"engine": "memcached", "memory": "64Mi"})).await;
    }
    for name in ["one", "two", "three"] {
        story.until_phase(name, Phase::Ready).await;
    }
    let mut operator = story.operator.take().unwrap();
    assert!(operator.lives(), "{}", operator.log());
    let metrics = operator.page("/metrics").await;
    let panicked = r#"cache_operator_reconcile_total{controller="caches",result="panicked"} 1"#;
    assert!(metrics.contains(panicked), "{metrics}");
    let log = operator.log();
    assert!(log.contains("a pass failed; it will be repeated"), "{log}");
}
