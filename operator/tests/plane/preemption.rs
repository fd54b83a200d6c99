//! Notices: taint, replace, drain, give back; and staying after all.

use crate::story::Story;
use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use kubebid_client::v1::allocation::EndReason;
use kubebid_operator::api::{SlotPhase, TAINT_LEAVING};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const EU: &str = "h100-8x/eu-west";

/// A BidNode of so many nodes, all running, on a market that has no unit more.
async fn begin(name: &str, nodes: u32, notice: Duration) -> Story {
    let story = Story::begin(name).await;
    story.market.open(EU, notice).await;
    story.market.offer(EU, nodes, 1.0).await;
    let pool = &story.namespace;
    let spec = json!({
        "instanceType": "h100-8x", "maxBid": 2.0, "minNodes": nodes, "maxNodes": nodes.max(10),
        "nodeSelector": {"pool": pool},
    });
    story.bid("gpu", spec).await;
    story.running("gpu", nodes).await;
    story
}

fn on_pool(story: &Story) -> Value {
    json!({"nodeSelector": {"pool": story.namespace}})
}

fn is_tainted(node: &Node) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == TAINT_LEAVING)
}

#[tokio::test]
async fn pods_leave_in_time_and_a_new_bid_stands_before_the_first_goes() {
    let story = begin("notice", 1, Duration::from_secs(20)).await;
    story.pod("work", on_pool(&story)).await;
    story.until_pod("work", "it runs", |pod| phase(pod) == "Running").await;
    story.market.rival_bids(EU, 1, 9.0).await;
    story
        .until_pod("work", "it is evicted", |pod| {
            pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
        })
        .await;
    let bids = story.market.live_bids().await;
    assert!(bids.iter().any(|bid| bid.unmet == 1), "a new bid stands: {bids:?}");
    story
        .until("gpu", "the node is given back and a bid waits", |status| {
            status.pending_bids == 1 && status.nodes.is_empty()
        })
        .await;
    // Before the deadline, for it was empty before.
    let ended = story.market.ended().await;
    assert!(ended.iter().all(|it| it.end_reason() == EndReason::Released), "given back in time: {ended:?}");
    let events: Api<Event> = Api::namespaced(story.client.clone(), &story.namespace);
    let told: Vec<_> = events.list(&Default::default()).await.unwrap().items;
    let about = |kind: &str| {
        let of_kind = |event: &&Event| {
            event.reason.as_deref() == Some("NodePreempted")
                && event.involved_object.kind.as_deref() == Some(kind)
        };
        told.iter().filter(of_kind).count()
    };
    assert_eq!((about("BidNode"), about("Pod")), (1, 1));
}

fn phase(pod: Option<&Pod>) -> &str {
    pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

#[tokio::test]
async fn a_disruption_budget_is_respected_until_time_runs_out() {
    let story = begin("budget", 1, Duration::from_secs(15)).await;
    story.pod("work", on_pool(&story)).await;
    story.until_pod("work", "it runs", |pod| phase(pod) == "Running").await;
    story.protect("work");
    let before = story.market.live_bids().await[0].bid;
    story.market.rival_bids(EU, 1, 9.0).await;
    let draining = kube::runtime::wait::await_condition(
        story.slots(),
        "gpu-0",
        |slot: Option<&kubebid_operator::api::BidSlot>| {
            slot.and_then(|slot| slot.status.as_ref())
                .is_some_and(|status| status.phase == SlotPhase::Draining)
        },
    );
    let slot = draining.await.unwrap().unwrap();
    assert_eq!(slot.status.unwrap().bid, Some(before));
    let pod = story.pods().get("work").await.unwrap();
    assert!(pod.metadata.deletion_timestamp.is_none(), "the budget holds it while there is time");
    story.until_pod("work", "it is deleted in the end", |pod| pod.is_none()).await;
    story.until("gpu", "the node is given back", |status| status.nodes.is_empty()).await;
    let ended = story.market.ended().await;
    assert!(ended.iter().all(|it| it.end_reason() == EndReason::Released), "given back in time: {ended:?}");
}

#[tokio::test]
async fn a_notice_taken_back_unties_the_node_and_the_new_bid_goes() {
    let story = begin("rescinded", 1, Duration::from_secs(40)).await;
    let node = story.bidnodes().get("gpu").await.unwrap();
    // A pod that takes its time, so that the node is there when the notice is taken back.
    story.pod("work", on_pool(&story)).await;
    story.until_pod("work", "it runs", |pod| phase(pod) == "Running").await;
    story.protect("work");
    let rival = story.market.rival_bids(EU, 1, 9.0).await;
    story
        .eventually("the node is tainted and a new bid stands", || async {
            let nodes = story.nodes_of(&node).await;
            nodes.iter().all(is_tainted) && story.market.live_bids().await.len() == 2
        })
        .await;
    story.market.rival_cancels(rival).await;
    story.running("gpu", 1).await;
    story
        .eventually("the taint is gone, and the new bid", || async {
            let nodes = story.nodes_of(&node).await;
            nodes.len() == 1 && !nodes.iter().any(is_tainted) && story.market.live_bids().await.len() == 1
        })
        .await;
    assert_eq!(phase(story.pods().get_opt("work").await.unwrap().as_ref()), "Running");
}

#[tokio::test]
async fn when_a_notice_is_taken_back_and_pods_run_on_both_nodes_the_emptier_goes() {
    let story = begin("both", 1, Duration::from_secs(60)).await;
    let pool = story.namespace.clone();
    for app in ["a", "b", "c"] {
        story.deploy(app, &pool, 1);
        story.home_of(app).await;
    }
    let first = story.home_of("a").await;
    // Two stay for as long as the notice lasts; the third moves to a node of another region.
    story.protect("a");
    story.protect("b");
    let rival = story.market.rival_bids(EU, 1, 9.0).await;
    story.market.open("h100-8x/us-east", Duration::from_secs(60)).await;
    story.market.offer("h100-8x/us-east", 1, 1.0).await;
    story
        .eventually("the third runs on another node", || async {
            let home = story.runs("c").await.and_then(|pod| pod.spec?.node_name);
            home.is_some_and(|home| home != first)
        })
        .await;
    story.market.rival_cancels(rival).await;
    let node = story.running("gpu", 1).await;
    story
        .eventually("one node is left, with all pods", || async {
            let nodes = story.nodes_of(&node).await;
            let home = story.runs("c").await.and_then(|pod| pod.spec?.node_name);
            nodes.len() == 1 && !is_tainted(&nodes[0]) && home.as_ref() == Some(&first)
        })
        .await;
    assert_eq!((story.home_of("a").await, story.home_of("b").await), (first.clone(), first));
    story.eventually("one unit is held", || async { story.market.held().await.unwrap().len() == 1 }).await;
}

#[tokio::test]
async fn a_strategy_that_stays_raises_its_bid() {
    let story = Story::begin("stays").await;
    story.market.open(EU, Duration::from_secs(30)).await;
    story.market.offer(EU, 1, 1.0).await;
    let spec = json!({"instanceType": "h100-8x", "maxBid": 20.0, "bidStrategy": "availability-optimized"});
    story.bid("gpu", spec).await;
    let node = story.running("gpu", 1).await;
    let ceiling = story.market.live_bids().await[0].ceiling_micros;
    story.market.rival_bids(EU, 1, kubebid_operator::api::usd(ceiling) * 1.5).await;
    story
        .eventually("the bid is raised", || async {
            story
                .market
                .live_bids()
                .await
                .iter()
                .any(|bid| bid.ceiling_micros > ceiling && bid.under_notice == 0)
        })
        .await;
    assert_eq!(story.market.live_bids().await.len(), 1);
    assert!(!story.nodes_of(&node).await.iter().any(is_tainted));
}

#[tokio::test]
async fn twenty_notices_at_once_taint_all_before_any_pod_goes() {
    let story = begin("mass", 20, Duration::from_secs(40)).await;
    for pod in 0..20 {
        let mut spec = on_pool(&story);
        spec["containers"] = json!([{
            "name": "main", "image": "work", "resources": {"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}},
        }]);
        story.pod(&format!("work-{pod}"), spec).await;
    }
    story
        .eventually("all pods run", || async {
            let pods = story.pods().list(&Default::default()).await.unwrap().items;
            pods.iter().filter(|pod| phase(Some(pod)) == "Running").count() == 20
        })
        .await;
    // Versions are those of the store: one order for nodes and pods.
    let tainted = first_versions(Api::<Node>::all(story.client.clone()), {
        let pool = story.namespace.clone();
        move |node: &Node| {
            let ours =
                node.metadata.labels.iter().flatten().any(|(key, value)| key == "pool" && *value == pool);
            ours && is_tainted(node)
        }
    });
    let evicted = first_versions(story.pods(), |pod: &Pod| pod.metadata.deletion_timestamp.is_some());
    story.market.rival_bids(EU, 20, 9.0).await;
    story
        .until("gpu", "all is given back, and twenty bids wait", |status| {
            status.pending_bids == 20 && status.nodes.is_empty()
        })
        .await;
    let (tainted, evicted) = (tainted.lock().unwrap().clone(), evicted.lock().unwrap().clone());
    assert_eq!((tainted.len(), evicted.len()), (20, 20));
    assert!(tainted.values().max() < evicted.values().min(), "{tainted:?} {evicted:?}");
    let all = story.market.all_bids().await;
    assert_eq!(all.len(), 40, "twenty new ones");
    let ended = story.market.ended().await;
    assert!(ended.iter().all(|it| it.end_reason() == EndReason::Released), "given back in time: {ended:?}");
}

/// The version at which an object was first so, by name, from here on.
fn first_versions<K>(
    api: Api<K>,
    is_so: impl Fn(&K) -> bool + Send + 'static,
) -> Arc<Mutex<BTreeMap<String, u64>>>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    let versions = Arc::new(Mutex::new(BTreeMap::new()));
    let found = Arc::clone(&versions);
    tokio::spawn(async move {
        let mut objects = std::pin::pin!(watcher(api, watcher::Config::default()).applied_objects());
        while let Ok(Some(object)) = objects.try_next().await {
            if is_so(&object) {
                let version =
                    object.meta().resource_version.as_ref().and_then(|it| it.parse().ok()).unwrap_or(0);
                let name = object.meta().name.clone().unwrap_or_default();
                found.lock().unwrap().entry(name).or_insert(version);
            }
        }
    });
    versions
}
