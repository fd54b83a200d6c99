//! Pods bring nodes, and lose them again.

use crate::story::{self, Story};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DeleteParams, PostParams};
use kubebid_operator::api::NodePhase;
use serde_json::json;
use std::time::Duration;

const EU: &str = "h100-8x/eu-west";

#[tokio::test]
async fn a_pod_brings_a_node_survives_its_loss_and_lets_it_go() {
    let story = Story::begin("demand").await;
    story.market.open(EU, Duration::from_secs(15)).await;
    story.market.offer(EU, 1, 1.0).await;
    let pool = &story.namespace;
    let spec = json!({
        "instanceType": "h100-8x", "maxBid": 2.0, "minNodes": 0,
        "nodeSelector": {"pool": pool}, "taints": [{"key": "gpu", "effect": "NoSchedule"}],
    });
    story.bid("gpu", spec).await;
    story.until("gpu", "it is idle", |status| status.phase == NodePhase::Idle).await;
    assert!(story.market.live_bids().await.is_empty());

    let deployments: Api<Deployment> = Api::namespaced(story.client.clone(), &story.namespace);
    let template = json!({
        "metadata": {"labels": {"app": "work"}},
        "spec": {
            "terminationGracePeriodSeconds": 1, "nodeSelector": {"pool": pool},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "containers": [{"name": "main", "image": "work"}],
        },
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "work"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "work"}}, "template": template},
    });
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    let runs = || async {
        let pods = story.pods().list(&Default::default()).await.unwrap().items;
        let running = pods.iter().find(|pod| {
            let ending = pod.metadata.deletion_timestamp.is_some();
            !ending && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        });
        running.and_then(|pod| pod.spec.as_ref()?.node_name.clone())
    };
    story.eventually("the pod runs", || async { runs().await.is_some() }).await;
    let first = runs().await.unwrap();

    let rival = story.market.rival_bids(EU, 1, 9.0).await;
    story
        .until("gpu", "the node is lost and a bid waits", |status| {
            status.nodes.is_empty() && status.pending_bids == 1
        })
        .await;
    story.market.rival_cancels(rival).await;
    story
        .eventually("it runs on another node", || async { runs().await.is_some_and(|node| node != first) })
        .await;
    story.running("gpu", 1).await;
    assert_eq!(story.market.live_bids().await.len(), 1);

    deployments.delete("work", &DeleteParams::default()).await.unwrap();
    story
        .until("gpu", "it is idle again", |status| status.phase == NodePhase::Idle && status.nodes.is_empty())
        .await;
    assert!(story.market.held().await.unwrap().is_empty());
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
