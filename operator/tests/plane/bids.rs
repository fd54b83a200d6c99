//! From a BidNode to its nodes, and back.

use crate::story::Story;
use kubebid_operator::api::NodePhase;
use serde_json::json;
use std::time::Duration;

const NOTICE: Duration = Duration::from_secs(20);
const EU: &str = "h100-8x/eu-west";

#[tokio::test]
async fn bids_become_labelled_nodes_and_are_given_back() {
    let story = Story::begin("life").await;
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, 4, 2.0).await;
    let spec = json!({
        "instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2,
        "nodeSelector": {"pool": "gpu"}, "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
    });
    story.bid("gpu", spec).await;
    let node = story.running("gpu", 2).await;
    let status = node.status.clone().unwrap();
    assert_eq!(status.phase, NodePhase::Running);
    assert_eq!(status.average_price, Some(2.0));
    assert!(status.nodes.iter().all(|node| node.region.as_deref() == Some("eu-west")));
    let nodes = story.nodes_of(&node).await;
    assert_eq!(nodes.len(), 2);
    for node in &nodes {
        assert_eq!(node.metadata.labels.as_ref().unwrap()["pool"], "gpu");
        let mut taints = node.spec.as_ref().unwrap().taints.clone().unwrap();
        // The cluster takes its own away a moment after the node is ready.
        taints.retain(|taint| !taint.key.starts_with("node.kubernetes.io/"));
        assert_eq!(taints.len(), 1, "{taints:?}");
        assert_eq!((taints[0].key.as_str(), taints[0].value.as_deref()), ("gpu", Some("yes")));
    }
    assert_eq!(story.market.live_bids().await.len(), 2);
    story.delete("gpu").await;
    story.gone("gpu").await;
    assert!(story.market.live_bids().await.is_empty());
    assert!(story.market.held().await.unwrap().is_empty());
    assert!(story.nodes_of(&node).await.is_empty());
}

#[tokio::test]
async fn bids_that_wait_stay_as_many_as_they_are() {
    let story = Story::begin("waits").await;
    story.market.open(EU, NOTICE).await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2})).await;
    story
        .until("gpu", "two bids wait", |status| {
            status.pending_bids == 2 && status.phase == NodePhase::Bidding
        })
        .await;
    for round in 0..10 {
        // Each change is looked at, and none makes another bid.
        story.change("gpu", json!({"maxNodes": 20 + round})).await;
        let generation = story.bidnodes().get("gpu").await.unwrap().metadata.generation;
        story.until("gpu", "it was looked at", |status| status.observed_generation == generation).await;
    }
    assert_eq!(story.market.live_bids().await.len(), 2);
}
