//! The operator ends where it hurts most, and another takes its place.

use crate::story::{PATIENCE, Story};
use kube::runtime::wait::await_condition;
use serde_json::json;
use std::process::Command;
use std::time::Duration;
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
    // And on the way out.
    story.delete("gpu").await;
    for point in ["tainted", "node-deleted", "cancelled"] {
        story.start_operator(&["--abort-at", point]);
        let operator = story.operator.as_mut().unwrap();
        timeout(PATIENCE, operator.ended()).await.unwrap_or_else(|_| panic!("no crash at {point}"));
    }
    story.start_operator(&[]);
    story.gone("gpu").await;
    assert!(story.market.held().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_leader_that_stands_still_writes_nothing_when_it_goes_on() {
    let mut story = Story::without_operator("leader").await;
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 4, 1.0).await;
    let namespace = story.namespace.clone();
    story.start_operator(&lease(&namespace, "one"));
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5})).await;
    story.running("gpu", 1).await;
    let mut first = story.operator.take().unwrap();
    signal(first.pid(), "STOP");
    story.start_operator(&lease(&namespace, "two"));
    story.change("gpu", json!({"minNodes": 3})).await;
    story.running("gpu", 3).await;
    signal(first.pid(), "CONT");
    timeout(PATIENCE, first.ended()).await.expect("the old leader ends by itself");
    assert_eq!(story.market.all_bids().await.len(), 3);
    let since = first.log();
    let (_, after) =
        ["stood still", "lease is lost"].iter().find_map(|end| since.split_once(end)).expect("it says why");
    assert!(!after.contains("step="), "it did nothing after it stood still:\n{after}");
}

/// Arguments for a replica of this name.
fn lease<'a>(namespace: &'a str, identity: &'a str) -> [&'a str; 8] {
    ["--lease-name", "op", "--lease-seconds", "6", "--lease-namespace", namespace, "--identity", identity]
}

fn signal(pid: u32, name: &str) {
    let done = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap();
    assert!(done.success());
}

#[tokio::test]
async fn another_replica_waits_until_the_leader_is_gone() {
    let mut story = Story::without_operator("idleone").await;
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 4, 1.0).await;
    let namespace = story.namespace.clone();
    story.start_operator(&lease(&namespace, "one"));
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5})).await;
    story.running("gpu", 1).await;
    let first = story.operator.take().unwrap();
    story.start_operator(&lease(&namespace, "two"));
    drop(first);
    story.change("gpu", json!({"minNodes": 2})).await;
    let looked = await_condition(story.bidnodes(), "gpu", |node: Option<&kubebid_operator::api::BidNode>| {
        node.and_then(|node| node.status.as_ref()).is_some_and(|status| status.active_nodes == 2)
    });
    timeout(PATIENCE, looked).await.expect("the other replica goes on").unwrap();
}
