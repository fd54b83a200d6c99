//! A pod never buys more nodes than it needs, however the nodes come.

use crate::external::begin;
use crate::external::provider::Provider;
use crate::story::Story;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kubebid_operator::api::{BidNodePhase, BidNodeStatus};
use serde_json::{Value, json};
use std::time::Duration;

const EU: &str = "h100-8x/eu-west";

/// A BidNode that pods bring up to six nodes of.
fn spec(pool: &str) -> Value {
    json!({"instanceType": "h100-8x", "maxBid": 4.0, "minNodes": 0, "maxNodes": 6, "nodeSelector": {"pool": pool}})
}

/// A pod that only nodes of this pool take, with these requests.
fn asking(pool: &str, requests: Value) -> Value {
    json!({"nodeSelector": {"pool": pool},
        "containers": [{"name": "main", "image": "work", "resources": {"requests": requests, "limits": requests}}]})
}

fn gpus(pool: &str, gpus: &str) -> Value {
    asking(pool, json!({"nvidia.com/gpu": gpus}))
}

fn runs(pod: Option<&Pod>) -> bool {
    pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()).is_some_and(|phase| phase == "Running")
}

fn is_unschedulable(pod: Option<&Pod>) -> bool {
    pod.is_some_and(kubebid_operator::plan::demand::is_unschedulable)
}

/// A story with a provider whose machines have these resources instead of what is ordered.
async fn with_given(name: &str, given: &[(&'static str, &'static str)], more: &[&str]) -> (Story, Provider) {
    let (story, provider) = begin(name, more).await;
    provider.books().given = given.iter().copied().collect();
    (story, provider)
}

/// Waits until a BidNode has a ready node, and returns its name.
async fn ready_node(story: &Story) -> String {
    let bidnode = story.running("gpu", 1).await;
    story.nodes_of(&bidnode).await[0].name_any()
}

/// Gives a node its GPUs, as a device plugin does that registers.
async fn register_gpus(story: &Story, node: &str) {
    let resources = json!({"nvidia.com/gpu": "8"});
    let patch = Patch::Merge(json!({"status": {"capacity": resources, "allocatable": resources}}));
    let nodes: Api<Node> = Api::all(story.client.clone());
    nodes.patch_status(node, &PatchParams::default(), &patch).await.unwrap();
}

/// Waits until the operator has planned again: a pod that no node of the type can have wakes it.
async fn planned_again(story: &Story, name: &str) {
    story.pod(name, gpus(&story.namespace, "9")).await;
    story.until_pod(name, "the scheduler has looked at it", is_unschedulable).await;
    let resync = json!({"metadata": {"annotations": {"example.com/look": name}}});
    story.bidnodes().patch("gpu", &PatchParams::default(), &Patch::Merge(resync)).await.unwrap();
    // A status that is written after this look has the conditions of it.
    tokio::time::sleep(Duration::from_secs(3)).await;
}

#[tokio::test]
async fn a_node_whose_gpus_come_late_is_the_only_one() {
    let (story, _provider) = with_given("late", &[("nvidia.com/gpu", "0")], &[]).await;
    story.bid("gpu", spec(&story.namespace)).await;
    story.pod("work", gpus(&story.namespace, "8")).await;
    let node = ready_node(&story).await;
    planned_again(&story, "huge").await;
    assert_eq!(story.market.all_bids().await.len(), 1, "the pod waits for the GPUs of the node");
    register_gpus(&story, &node).await;
    story.until_pod("work", "it runs", runs).await;
    assert_eq!(story.market.all_bids().await.len(), 1);
}

#[tokio::test]
async fn a_node_whose_gpus_never_come_is_the_last_one() {
    let (story, _provider) =
        with_given("never", &[("nvidia.com/gpu", "0")], &["--machine-within", "6s"]).await;
    story.bid("gpu", spec(&story.namespace)).await;
    story.pod("work", gpus(&story.namespace, "8")).await;
    let said = story.says("gpu", "NodesInitialize", "False", "NotInitialized").await;
    assert!(said.contains("is ready without nvidia.com/gpu"), "{said}");
    let said = story.says("gpu", "PodsHelped", "False", "NodeNotInitialized").await;
    assert!(said.contains(&format!("{}/work", story.namespace)), "{said}");
    told(&story, "work", "NotHelpedByNode").await;
    // The node was empty for long and is given up: the pod brings no other.
    story
        .until("gpu", "the node is gone", |status| {
            status.nodes.is_empty() && status.phase == BidNodePhase::Idle
        })
        .await;
    planned_again(&story, "huge").await;
    assert_eq!(story.market.all_bids().await.len(), 1);
    story.says("gpu", "PodsHelped", "False", "NotScheduled").await;
}

/// Waits until a pod has an event with this reason.
async fn told(story: &Story, pod: &str, reason: &str) {
    let events: Api<k8s_openapi::api::events::v1::Event> =
        Api::namespaced(story.client.clone(), &story.namespace);
    let params = ListParams::default().fields(&format!("reason={reason}"));
    story
        .eventually(&format!("{pod} has an event {reason}"), || async {
            let events = events.list(&params).await.unwrap().items;
            events.iter().any(|event| event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(pod))
        })
        .await;
}

#[tokio::test]
async fn a_node_that_is_smaller_than_its_type_is_the_last_one() {
    let (story, _provider) = with_given("smaller", &[("memory", "510Gi")], &[]).await;
    story.bid("gpu", spec(&story.namespace)).await;
    story.pod("work", asking(&story.namespace, json!({"memory": "512Gi"}))).await;
    let said = story.says("gpu", "PodsHelped", "False", "NodeTooSmall").await;
    assert!(said.ends_with("it requests 512Gi of memory, and an empty node has 510Gi"), "{said}");
    story.until("gpu", "the node is given up", |status| status.nodes.is_empty()).await;
    assert_eq!(story.market.all_bids().await.len(), 1);
    story.pod("less", asking(&story.namespace, json!({"memory": "510Gi"}))).await;
    story.until_pod("less", "it runs", runs).await;
    assert_eq!(story.market.all_bids().await.len(), 2);
}

#[tokio::test]
async fn two_bidnodes_that_a_pod_fits_buy_one_node() {
    let story = Story::begin("pools").await;
    story.market.open(EU, Duration::from_secs(15)).await;
    story.market.offer(EU, 6, 1.0).await;
    let weighted = |weight: u32| {
        let mut spec = spec(&story.namespace);
        spec["weight"] = json!(weight);
        spec
    };
    story.bid("second", weighted(0)).await;
    story.bid("first", weighted(10)).await;
    for name in ["one", "two", "three"] {
        story.pod(name, gpus(&story.namespace, "8")).await;
    }
    for name in ["one", "two", "three"] {
        story.until_pod(name, "it runs", runs).await;
    }
    story.running("first", 3).await;
    story.until("second", "it is idle", |status| status.phase == BidNodePhase::Idle).await;
    assert_eq!(story.market.all_bids().await.len(), 3);
}

#[tokio::test]
async fn the_next_bidnode_bids_when_the_first_has_waited() {
    let mut story = Story::without_operator("next").await;
    story.start_operator(&["--next-pool-after", "3s"]);
    let other = "a100-8x/eu-west";
    story.market.open(EU, Duration::from_secs(15)).await;
    story.market.open(other, Duration::from_secs(15)).await;
    story.market.offer(other, 1, 1.0).await;
    let mut first = spec(&story.namespace);
    first["weight"] = json!(10);
    let mut second = spec(&story.namespace);
    second["instanceType"] = json!("a100-8x");
    story.bid("first", first).await;
    story.bid("second", second).await;
    story.pod("work", gpus(&story.namespace, "8")).await;
    story.until("first", "it bids", |status| status.pending_bids == 1).await;
    story.until_pod("work", "it runs", runs).await;
    story.running("second", 1).await;
    story.until("first", "its bid is gone", |status| status.phase == BidNodePhase::Idle).await;
    assert_eq!(story.market.live_bids().await.len(), 1);
    assert_eq!(story.market.all_bids().await.len(), 2);
}

#[tokio::test]
async fn a_pod_that_waits_for_a_volume_brings_no_node() {
    let story = Story::begin("volume").await;
    story.market.open(EU, Duration::from_secs(15)).await;
    story.market.offer(EU, 6, 1.0).await;
    story.bid("gpu", spec(&story.namespace)).await;
    let mut waits = gpus(&story.namespace, "8");
    waits["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]);
    story.pod("work", waits).await;
    let said = story.says("gpu", "PodsHelped", "False", "VolumeMissing").await;
    assert!(said.contains("missing"), "{said}");
    assert!(story.market.all_bids().await.is_empty());
}

#[tokio::test]
async fn a_pod_that_the_scheduler_binds_to_no_node_brings_one() {
    let story = Story::begin("refused").await;
    story.market.open(EU, Duration::from_secs(15)).await;
    story.market.offer(EU, 6, 1.0).await;
    story.bid("gpu", spec(&story.namespace)).await;
    // No pod of this label runs in any zone.
    let term = json!({"labelSelector": {"matchLabels": {"app": "nowhere"}}, "topologyKey": "topology.kubernetes.io/region"});
    let mut refused = gpus(&story.namespace, "8");
    refused["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    story.pod("work", refused).await;
    let said = story.says("gpu", "PodsHelped", "False", "NotScheduled").await;
    assert!(said.contains("the scheduler does not bind it to the empty node"), "{said}");
    told(&story, "work", "NotHelpedByNode").await;
    story.until("gpu", "the node is given up", |status| status.nodes.is_empty()).await;
    planned_again(&story, "huge").await;
    assert_eq!(story.market.all_bids().await.len(), 1);
}

#[tokio::test]
async fn a_bidnode_has_no_more_nodes_than_its_cost_per_hour_allows() {
    let story = Story::begin("cost").await;
    story.market.open(EU, Duration::from_secs(15)).await;
    story.market.offer(EU, 6, 1.0).await;
    let mut limited = spec(&story.namespace);
    limited["maxHourlyCost"] = json!(9.5);
    story.bid("gpu", limited).await;
    for name in ["one", "two", "three"] {
        story.pod(name, gpus(&story.namespace, "8")).await;
    }
    story.running("gpu", 2).await;
    planned_again(&story, "huge").await;
    assert_eq!(story.market.all_bids().await.len(), 2, "maxBid is 4: a third node may cost 12 an hour");
}

#[tokio::test]
async fn three_nodes_in_a_row_that_no_pod_uses_are_the_last_ones() {
    let (story, _provider) = with_given("unused", &[("nvidia.com/gpu", "0")], &[]).await;
    story.bid("gpu", spec(&story.namespace)).await;
    for round in 1..=3 {
        let name = format!("work-{round}");
        story.pod(&name, gpus(&story.namespace, "8")).await;
        let node = ready_node(&story).await;
        // The pod is deleted before it can be bound, as that of a job that is made again and again.
        story.pods().delete(&name, &DeleteParams::default()).await.unwrap();
        register_gpus(&story, &node).await;
        story.until("gpu", "the node is given up", |status| status.nodes.is_empty()).await;
        let unused =
            |status: &BidNodeStatus| status.unused_nodes.as_ref().is_some_and(|it| it.count == round);
        story.until("gpu", "it is counted", unused).await;
    }
    story.says("gpu", "NodesUsed", "False", "NodesUnused").await;
    told(&story, "gpu", "NodesUnused").await;
    let metrics = story.operator.as_ref().unwrap().page("/metrics").await;
    let unused = format!("name=\"gpu\",namespace=\"{}\",outcome=\"unused\"}} 3", story.namespace);
    assert!(metrics.contains(&unused), "{metrics}");
    story.pod("work-4", gpus(&story.namespace, "8")).await;
    planned_again(&story, "huge").await;
    assert_eq!(story.market.all_bids().await.len(), 3);
    // Another specification begins anew.
    story.change("gpu", json!({"maxBid": 4.1})).await;
    let node = ready_node(&story).await;
    register_gpus(&story, &node).await;
    story.until_pod("work-4", "it runs", runs).await;
    story.until("gpu", "the row is forgotten", |status| status.unused_nodes.is_none()).await;
}

#[tokio::test]
async fn a_node_that_people_protect_is_not_given_up_when_it_is_empty() {
    let (story, _provider) = with_given("protected", &[], &[]).await;
    story.bid("gpu", spec(&story.namespace)).await;
    story.pod("work", gpus(&story.namespace, "8")).await;
    let node = ready_node(&story).await;
    story.until_pod("work", "it runs", runs).await;
    story.annotate(&story.nodes(), &node, "karpenter.sh/do-not-disrupt", "true").await;
    story.pods().delete("work", &DeleteParams::default()).await.unwrap();
    planned_again(&story, "huge").await;
    planned_again(&story, "larger").await;
    assert_eq!(story.bidnodes().get("gpu").await.unwrap().status.unwrap().active_nodes, 1);
    story.annotate(&story.nodes(), &node, "karpenter.sh/do-not-disrupt", "false").await;
    story.until("gpu", "the node is given up", |status| status.nodes.is_empty()).await;
}
