//! Pods bring nodes, and lose them again.

use crate::story::{self, Story};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use kubebid_operator::api::BidNodePhase;
use serde_json::json;
use std::time::Duration;

const EU: &str = "h100-8x/eu-west";

#[tokio::test]
async fn a_pod_brings_a_node_survives_its_loss_and_lets_it_go() {
    let story = Story::begin("demand").await;
    story.market.open(EU, Duration::from_secs(60)).await;
    story.market.offer(EU, 1, 1.0).await;
    let pool = &story.namespace;
    let spec = json!({
        "instanceType": "h100-8x", "maxBid": 2.0, "minNodes": 0,
        "nodeSelector": {"pool": pool}, "taints": [{"key": "gpu", "effect": "NoSchedule"}],
    });
    story.bid("gpu", spec).await;
    story.until("gpu", "it is idle", |status| status.phase == BidNodePhase::Idle).await;
    assert!(story.market.live_bids().await.is_empty());

    story.deploy("work", pool, 8);
    let first = story.home_of("work").await;
    let pod = story.runs("work").await.unwrap().name_any();

    let rival = story.market.rival_bids(EU, 1, 9.0).await;
    let leaves = |pod: Option<&Pod>| pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
    story.until_pod(&pod, "it is evicted", leaves).await;
    let bids = story.market.live_bids().await;
    assert!(bids.iter().any(|bid| bid.unmet == 1), "a bid stands in its node's place: {bids:?}");
    story
        .until("gpu", "the node is lost and a bid waits", |status| {
            status.nodes.is_empty() && status.pending_bids == 1
        })
        .await;
    story.market.rival_cancels(rival).await;
    story
        .eventually("it runs on another node", || async {
            let home = story.runs("work").await.and_then(|pod| pod.spec?.node_name);
            home.is_some_and(|home| home != first)
        })
        .await;
    story.running("gpu", 1).await;
    assert_eq!(story.market.live_bids().await.len(), 1);
    assert_eq!(story.market.all_bids().await.len(), 2, "one for each node, and none besides");

    let deployments: Api<Deployment> = Api::namespaced(story.client.clone(), &story.namespace);
    deployments.delete("work", &DeleteParams::default()).await.unwrap();
    story
        .until("gpu", "it is idle again", |status| {
            status.phase == BidNodePhase::Idle && status.nodes.is_empty()
        })
        .await;
    story.eventually("nothing is held", || async { story.market.held().await.is_empty() }).await;
}

#[tokio::test]
async fn changed_labels_and_taints_are_applied_in_place() {
    let story = Story::begin("inplace").await;
    story.market.open(EU, Duration::from_secs(15)).await;
    story.market.offer(EU, 1, 1.0).await;
    let spec = json!({
        "instanceType": "h100-8x", "maxBid": 2.0, "nodeSelector": {"pool": "a", "tier": "1"},
        "taints": [{"key": "gpu", "effect": "NoSchedule"}],
    });
    story.bid("gpu", spec).await;
    let node = story.running("gpu", 1).await;
    story
        .change("gpu", json!({"nodeSelector": {"pool": "b", "tier": null}, "taints": [{"key": "cpu", "effect": "NoSchedule"}]}))
        .await;
    story
        .eventually("the node has the other labels and taints", || async {
            let nodes = story.nodes_of(&node).await;
            let labels = nodes[0].metadata.labels.clone().unwrap();
            let taints: Vec<_> = story::taints(&nodes[0]).into_iter().map(|taint| taint.key).collect();
            labels["pool"] == "b" && !labels.contains_key("tier") && taints == ["cpu"]
        })
        .await;
    assert_eq!(story.nodes_of(&node).await.len(), 1);
}

#[tokio::test]
async fn pods_that_keep_each_other_away_bring_a_node_each() {
    let story = Story::begin("apart").await;
    story.market.open(EU, Duration::from_secs(15)).await;
    story.market.offer(EU, 4, 1.0).await;
    let pool = &story.namespace;
    let spec =
        json!({"instanceType": "h100-8x", "maxBid": 2.0, "minNodes": 1, "nodeSelector": {"pool": pool}});
    story.bid("gpu", spec).await;
    story.running("gpu", 1).await;
    for name in ["one", "two"] {
        let apart = json!({
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["one", "two"]}]},
            "topologyKey": "kubernetes.io/hostname",
        });
        let affinity =
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}});
        story.pod(name, json!({"nodeSelector": {"pool": pool}, "affinity": affinity})).await;
    }
    for name in ["one", "two"] {
        let runs = |pod: Option<&Pod>| {
            pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()).is_some_and(|phase| phase == "Running")
        };
        story.until_pod(name, "it runs", runs).await;
    }
    story.running("gpu", 2).await;
    assert_eq!(story.market.all_bids().await.len(), 2);
}
