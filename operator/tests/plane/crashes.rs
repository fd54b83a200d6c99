//! The operator ends where it hurts most, and another takes its place.

use crate::story::{PATIENCE, Story};
use kubebid_testkit::Account;
use serde_json::json;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::timeout;

const EU: &str = "h100-8x/eu-west";

#[tokio::test]
async fn a_crash_between_any_two_steps_bids_for_nothing_twice() {
    let mut story = Story::without_operator("crash").await;
    story.market.open(EU, Duration::from_secs(20)).await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2})).await;
    // One crash after the other, each where the next step is; at the end two nodes run.
    for point in ["slot-created", "begun", "placed", "placed"] {
        story.start_operator(&["--abort-at", point]);
        let operator = story.operator.as_mut().unwrap();
        timeout(PATIENCE, operator.ended()).await.unwrap_or_else(|_| panic!("no crash at {point}"));
    }
    story.market.offer(EU, 4, 1.0).await;
    for point in ["ordered", "registered", "reported"] {
        story.start_operator(&["--abort-at", point]);
        let operator = story.operator.as_mut().unwrap();
        timeout(PATIENCE, operator.ended()).await.unwrap_or_else(|_| panic!("no crash at {point}"));
    }
    story.start_operator(&[]);
    let node = story.running("gpu", 2).await;
    assert_eq!(story.market.all_bids().await.len(), 2, "no bid was ever placed twice");
    assert_eq!(story.nodes_of(&node).await.len(), 2);
    // And on the way out: by nobody else's doing.
    story.operator = None;
    story.delete("gpu").await;
    for point in ["tainted", "node-deleted", "cancelled"] {
        story.start_operator(&["--abort-at", point]);
        let operator = story.operator.as_mut().unwrap();
        timeout(PATIENCE, operator.ended()).await.unwrap_or_else(|_| panic!("no crash at {point}"));
    }
    story.start_operator(&[]);
    story.gone("gpu").await;
    assert!(story.market.held().await.is_empty());
}

#[tokio::test]
async fn a_panic_in_one_look_harms_nothing() {
    let mut story = Story::without_operator("panic").await;
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 4, 1.0).await;
    story.start_operator(&["--panic-at", "placed"]);
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2})).await;
    story.running("gpu", 2).await;
    assert_eq!(story.market.all_bids().await.len(), 2, "the bid that was placed is found again");
    let metrics = story.operator.as_ref().unwrap().page("/metrics").await;
    assert!(metrics.contains("bidnode_reconcile_total{result=\"panicked\"} 1\n"), "{metrics}");
}

/// The lease of two replicas, each a service account of its own.
struct Replicas {
    namespace: String,
    accounts: [Account; 2],
    _folder: TempDir,
}

impl Replicas {
    fn of(story: &Story) -> Replicas {
        let folder = tempfile::tempdir().unwrap();
        let accounts = ["one", "two"].map(|name| story.account(name, folder.path()));
        Replicas { namespace: story.namespace.clone(), accounts, _folder: folder }
    }

    /// Starts the first or the second.
    fn start(&self, story: &mut Story, which: usize) {
        self.start_with(story, which, "20");
    }

    /// The same, with a Lease that lasts for so many seconds.
    fn start_with(&self, story: &mut Story, which: usize, seconds: &str) {
        story.kubeconfig = self.accounts[which].kubeconfig().to_owned();
        let identity = ["one", "two"][which];
        story.start_operator(&[
            "--lease-name",
            "op",
            "--lease-seconds",
            seconds,
            "--lease-namespace",
            &self.namespace,
            "--identity",
            identity,
        ]);
    }

    /// Waits until the second one has looked at the Lease.
    async fn second_waits(&self, story: &Story) {
        story
            .eventually("the other has looked at the lease", || {
                let requests = self.accounts[1].requests();
                std::future::ready(requests.iter().any(|it| it["objectRef"]["resource"] == "leases"))
            })
            .await;
    }

    /// Asserts that the API server has seen no write of the first one after a write of the second.
    fn wrote_in_turn(&self) {
        let [one, two] = self.accounts.each_ref().map(Account::writes);
        assert!(!one.is_empty() && one.iter().max() < two.iter().min(), "{one:?} {two:?}");
    }
}

#[tokio::test]
async fn a_leader_that_stands_still_writes_nothing_when_it_goes_on() {
    let mut story = Story::without_operator("leader").await;
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 4, 1.0).await;
    let replicas = Replicas::of(&story);
    replicas.start(&mut story, 0);
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5})).await;
    story.running("gpu", 1).await;
    let mut first = story.operator.take().unwrap();
    first.signal("STOP");
    replicas.start(&mut story, 1);
    story.change("gpu", json!({"minNodes": 3})).await;
    story.running("gpu", 3).await;
    first.signal("CONT");
    timeout(PATIENCE, first.ended()).await.expect("the old leader ends by itself");
    assert_eq!(story.market.all_bids().await.len(), 3);
    let since = first.log();
    let (_, after) =
        ["stood still", "lease is lost"].iter().find_map(|end| since.split_once(end)).expect("it says why");
    assert!(!after.contains("step="), "it did nothing after it stood still:\n{after}");
    replicas.wrote_in_turn();
}

#[tokio::test]
async fn another_replica_is_idle_until_the_leader_is_gone() {
    let mut story = Story::without_operator("idleone").await;
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 4, 1.0).await;
    let replicas = Replicas::of(&story);
    replicas.start(&mut story, 0);
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5})).await;
    story.running("gpu", 1).await;
    let first = story.operator.take().unwrap();
    replicas.start(&mut story, 1);
    replicas.second_waits(&story).await;
    story.change("gpu", json!({"minNodes": 2})).await;
    story.running("gpu", 2).await;
    drop(first);
    story.change("gpu", json!({"minNodes": 3})).await;
    story.running("gpu", 3).await;
    replicas.wrote_in_turn();
}

#[tokio::test]
async fn a_replica_that_is_told_to_stop_hands_over_without_waiting_for_its_lease_to_end() {
    let mut story = Story::without_operator("handover").await;
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 4, 1.0).await;
    let replicas = Replicas::of(&story);
    // The Lease lasts for longer than the story.
    replicas.start_with(&mut story, 0, "3600");
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5})).await;
    story.running("gpu", 1).await;
    let mut first = story.operator.take().unwrap();
    replicas.start_with(&mut story, 1, "3600");
    replicas.second_waits(&story).await;
    first.signal("TERM");
    timeout(PATIENCE, first.ended()).await.expect("it ends");
    assert!(first.log().contains("the lease is released"), "{}", first.log());
    story.change("gpu", json!({"minNodes": 2})).await;
    story.running("gpu", 2).await;
    replicas.wrote_in_turn();
}
