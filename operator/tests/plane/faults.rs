//! Things that break: nodes, the engine, the API server.

use crate::story::Story;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kubebid_testkit::Component;
use serde_json::json;
use std::time::Duration;

const EU: &str = "h100-8x/eu-west";
const NOTICE: Duration = Duration::from_secs(20);

async fn begin(name: &str, nodes: u32) -> Story {
    let story = Story::begin(name).await;
    fill(&story, nodes).await;
    story
}

async fn fill(story: &Story, nodes: u32) {
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, nodes + 2, 1.0).await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": nodes})).await;
    story.running("gpu", nodes).await;
}

#[tokio::test]
async fn a_node_that_vanishes_is_replaced() {
    let story = begin("vanish", 1).await;
    let node = story.bidnodes().get("gpu").await.unwrap();
    let old = story.nodes_of(&node).await.remove(0).name_any();
    let nodes: Api<Node> = Api::all(story.client.clone());
    nodes.delete(&old, &DeleteParams::default()).await.unwrap();
    story
        .eventually("another node is ready", || async {
            let nodes = story.nodes_of(&node).await;
            nodes.iter().any(|node| node.name_any() != old)
                && !nodes.iter().any(|node| node.name_any() == old)
        })
        .await;
    story.running("gpu", 1).await;
    // The provider may still bring it back: the allocation is kept for a while.
    assert_eq!(story.market.held().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_node_that_is_not_ready_for_long_is_replaced() {
    let story = begin("notready", 2).await;
    let annotate = json!({"metadata": {"annotations": {"kubebid.io/replace-not-ready-after": "3s"}}});
    story.bidnodes().patch("gpu", &PatchParams::default(), &Patch::Merge(annotate)).await.unwrap();
    let node = story.bidnodes().get("gpu").await.unwrap();
    let sick = story.nodes_of(&node).await.remove(0).name_any();
    let annotate = json!({"metadata": {"annotations": {"testplane.kubebid.io/not-ready": "1"}}});
    story.nodes().patch(&sick, &PatchParams::default(), &Patch::Merge(annotate)).await.unwrap();
    story
        .eventually("it is replaced", || async {
            let nodes = story.nodes_of(&node).await;
            nodes.len() == 2 && !nodes.iter().any(|node| node.name_any() == sick)
        })
        .await;
    story.running("gpu", 2).await;
    story.eventually("and given back", || async { story.market.held().await.unwrap().len() == 2 }).await;
}

#[tokio::test]
async fn deletion_waits_for_an_engine_that_is_away() {
    let mut story = begin("away", 1).await;
    story.market.stop().await;
    story.delete("gpu").await;
    story
        .until("gpu", "it says why it does not go", |status| {
            let said = |it: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
                it.type_ == "Releasing" && it.status == "False" && it.reason == "AuctionUnavailable"
            };
            status.conditions.iter().any(said)
        })
        .await;
    story.market.resume().await;
    story.gone("gpu").await;
    assert!(story.market.held().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_abandoned_bidnode_goes_without_the_engine() {
    let mut story = begin("abandon", 1).await;
    story.market.stop().await;
    let annotate = json!({"metadata": {"annotations": {"kubebid.io/abandon": "true"}}});
    story.bidnodes().patch("gpu", &PatchParams::default(), &Patch::Merge(annotate)).await.unwrap();
    story.delete("gpu").await;
    story.gone("gpu").await;
}

#[tokio::test]
async fn an_engine_that_restarts_is_found_again() {
    let mut story = begin("restart", 1).await;
    story.market.stop().await;
    story.change("gpu", json!({"minNodes": 3})).await;
    story
        .until("gpu", "it says that the engine is away", |status| {
            status.conditions.iter().any(|it| it.type_ == "AuctionAvailable" && it.status == "False")
        })
        .await;
    story.market.resume().await;
    story.running("gpu", 3).await;
    assert_eq!(story.market.live_bids().await.len(), 3);
}

#[tokio::test]
async fn an_api_server_that_restarts_with_its_past_forgotten_is_followed_again() {
    let mut story = Story::alone("apiserver").await;
    story.start_operator(&[]);
    fill(&story, 1).await;
    story.plane.compact();
    story.plane.restart(Component::ApiServer);
    story.change("gpu", json!({"minNodes": 3})).await;
    let node = story.running("gpu", 3).await;
    assert_eq!(story.market.live_bids().await.len(), 3);
    assert_eq!(story.nodes_of(&node).await.len(), 3);
}

#[tokio::test]
async fn two_of_one_name_in_two_namespaces_do_not_meet() {
    let mut story = Story::alone("twins").await;
    story.start_everywhere();
    fill(&story, 1).await;
    let other = story.neighbour("twins-other").await;
    other.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2})).await;
    let theirs = other.running("gpu", 2).await;
    let ours = story.bidnodes().get("gpu").await.unwrap();
    assert_eq!((story.nodes_of(&ours).await.len(), story.nodes_of(&theirs).await.len()), (1, 2));
    story.delete("gpu").await;
    story.gone("gpu").await;
    assert_eq!(story.nodes_of(&theirs).await.len(), 2);
    assert_eq!(story.market.held().await.unwrap().len(), 2);
}
