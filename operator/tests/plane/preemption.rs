//! Notices: taint, replace, drain, give back; and staying after all.

use crate::seen::first_versions;
use crate::story::{PATIENCE, Story};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::jiff::SignedDuration;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kubebid_client::v1::allocation::EndReason;
use kubebid_operator::api::{BidSlot, BidSlotStatus, SlotPhase, TAINT_LEAVING};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

const EU: &str = "h100-8x/eu-west";
/// A notice that ends after all that a story waits for.
const LONG: Duration = Duration::from_secs(300);

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

pub(crate) fn is_tainted(node: &Node) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == TAINT_LEAVING)
}

#[tokio::test]
async fn pods_leave_in_time_and_a_new_bid_stands_before_the_first_goes() {
    let story = begin("notice", 1, LONG).await;
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
    // Nobody waits for what people are told.
    let events: Api<Event> = Api::namespaced(story.client.clone(), &story.namespace);
    story
        .eventually("the BidNode and the pod were told", || async {
            let told = events.list(&Default::default()).await.unwrap().items;
            let preempted = told.iter().filter(|event| event.reason.as_deref() == Some("NodePreempted"));
            let mut about: Vec<_> =
                preempted.filter_map(|event| event.involved_object.kind.as_deref()).collect();
            about.sort_unstable();
            about == ["BidNode", "Pod"]
        })
        .await;
}

fn phase(pod: Option<&Pod>) -> &str {
    pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

#[tokio::test]
async fn a_disruption_budget_is_respected_until_time_runs_out() {
    let story = begin("budget", 1, Duration::from_secs(30)).await;
    story.pod("work", on_pool(&story)).await;
    story.until_pod("work", "it runs", |pod| phase(pod) == "Running").await;
    story.protect("work");
    let before = story.market.live_bids().await[0].bid;
    story.market.rival_bids(EU, 1, 9.0).await;
    let is_draining = |slot: Option<&BidSlot>| {
        slot.and_then(|slot| slot.status.as_ref()).is_some_and(|status| status.phase == SlotPhase::Draining)
    };
    let draining = timeout(PATIENCE, await_condition(story.slots(), "gpu-0", is_draining)).await;
    let status = draining.expect("it drains").unwrap().unwrap().status.unwrap();
    assert_eq!(status.bid, Some(before));
    let ends = |pod: Option<&Pod>| pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
    let pod = story.until_pod("work", "it is deleted in the end", ends).await.expect("it has a grace");
    // A second of grace and five to spare: before that its budget holds it.
    let early = status.deadline.unwrap().0 - SignedDuration::from_secs(8);
    assert!(pod.metadata.deletion_timestamp.unwrap().0 >= early, "the budget holds it while there is time");
    story.until("gpu", "the node is given back", |status| status.nodes.is_empty()).await;
    let ended = story.market.ended().await;
    assert!(ended.iter().all(|it| it.end_reason() == EndReason::Released), "given back in time: {ended:?}");
}

#[tokio::test]
async fn a_notice_taken_back_unties_the_node_and_the_new_bid_goes() {
    let story = begin("rescinded", 1, LONG).await;
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
    let story = begin("both", 1, LONG).await;
    let pool = story.namespace.clone();
    for app in ["a", "b", "c"] {
        story.deploy(app, &pool, 1);
        story.home_of(app).await;
    }
    let first = story.home_of("a").await;
    // Two stay for as long as the notice lasts; the third moves to a node of another region.
    story.protect("a");
    story.protect("b");
    story.market.open("h100-8x/us-east", LONG).await;
    let rival = story.market.rival_bids(EU, 1, 9.0).await;
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
    story.eventually("one unit is held", || async { story.market.held().await.len() == 1 }).await;
}

#[tokio::test]
async fn a_strategy_that_stays_raises_its_bid() {
    let story = Story::begin("stays").await;
    story.market.open(EU, LONG).await;
    story.market.offer(EU, 1, 1.0).await;
    let spec = json!({"instanceType": "h100-8x", "maxBid": 20.0, "bidStrategy": "availability-optimized"});
    story.bid("gpu", spec).await;
    let node = story.running("gpu", 1).await;
    let ceiling = story.market.live_bids().await[0].ceiling_micros;
    story.market.rival_bids(EU, 1, kubebid_operator::api::usd(ceiling) * 2.0).await;
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
    let story = begin("mass", 20, LONG).await;
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
    })
    .await;
    let evicted = first_versions(story.pods(), |pod: &Pod| pod.metadata.deletion_timestamp.is_some()).await;
    story.market.rival_bids(EU, 20, 9.0).await;
    story
        .until("gpu", "all is given back, and twenty bids wait", |status| {
            status.pending_bids == 20 && status.nodes.is_empty()
        })
        .await;
    let seen = || (tainted.lock().unwrap().clone(), evicted.lock().unwrap().clone());
    let all_seen = || std::future::ready((seen().0.len(), seen().1.len()) == (20, 20));
    story.eventually("all taints and evictions were seen", all_seen).await;
    let (tainted, evicted) = seen();
    assert!(tainted.values().max() < evicted.values().min(), "{tainted:?} {evicted:?}");
    let all = story.market.all_bids().await;
    assert_eq!(all.len(), 40, "twenty new ones");
    let ended = story.market.ended().await;
    assert!(ended.iter().all(|it| it.end_reason() == EndReason::Released), "given back in time: {ended:?}");
}

/// Notices for all nodes of a BidNode, each with a pod of its own, while another market has units for all. Pods take
/// `grace` seconds to end, and of `protected` of them a budget forbids the eviction.
async fn replace(name: &str, nodes: u32, notice: Duration, grace: u32, protected: u32) {
    let story = begin(name, nodes, notice).await;
    let apps: Vec<_> = (0..nodes).map(|app| format!("work-{app}")).collect();
    for app in &apps {
        story.deploy_slow(app, &story.namespace, 8, grace);
    }
    let mut homes = std::collections::BTreeSet::new();
    for app in &apps {
        homes.insert(story.home_of(app).await);
    }
    assert_eq!(homes.len(), apps.len(), "each has a node of its own");
    for app in apps.iter().take(protected as usize) {
        story.protect(app);
    }
    story.market.open("h100-8x/us-east", notice).await;
    story.market.offer("h100-8x/us-east", 3 * nodes, 1.0).await;
    story.market.rival_bids(EU, nodes, 9.0).await;
    let node = story.bidnodes().get("gpu").await.unwrap();
    story
        .eventually("all pods run on other nodes, and the old ones are gone", || async {
            let nodes = story.nodes_of(&node).await;
            if nodes.iter().any(|node| homes.contains(node.metadata.name.as_ref().unwrap())) {
                return false;
            }
            for app in &apps {
                if story.runs(app).await.is_none() {
                    return false;
                }
            }
            true
        })
        .await;
    story.running("gpu", nodes).await;
    let all = story.market.all_bids().await;
    assert_eq!(all.len(), 2 * nodes as usize, "one for each node, and one for each notice: {all:?}");
}

#[tokio::test]
async fn a_notice_buys_one_node_when_supply_is_free_also_while_its_pod_is_slow_to_end() {
    replace("oneforone", 1, LONG, 6, 0).await;
}

#[tokio::test]
async fn many_notices_at_once_buy_one_node_each_when_supply_is_free() {
    replace("manyforone", 8, Duration::from_secs(40), 3, 2).await;
}

/// So many nodes under notice at once, with pods that never end: all are given back before the deadline. `KUBEBID_NOTICES` says how many.
#[tokio::test]
async fn nodes_whose_pods_never_end_are_given_back_before_the_deadline() {
    let nodes: u32 = std::env::var("KUBEBID_NOTICES").map_or(24, |text| text.parse().unwrap());
    let notice = Duration::from_secs(20.max(u64::from(nodes) / 4));
    let story = begin("reserve", nodes, notice).await;
    for number in 0..nodes {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("work-{number}"), "finalizers": ["example.com/never"]},
            "spec": {
                "terminationGracePeriodSeconds": 1, "nodeSelector": {"pool": story.namespace},
                "containers": [{"name": "main", "image": "work", "resources": {
                    "requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"},
                }}],
            },
        });
        story.pods().create(&Default::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    story
        .eventually("all pods run", || async {
            let pods = story.pods().list(&Default::default()).await.unwrap().items;
            pods.iter().filter(|pod| phase(Some(pod)) == "Running").count() == nodes as usize
        })
        .await;
    story.market.rival_bids(EU, nodes, 9.0).await;
    let deadlines = async || -> BTreeMap<u64, u64> {
        let slots = story.slots().list(&Default::default()).await.unwrap().items;
        let of_status = |status: BidSlotStatus| {
            let deadline_us = u64::try_from(status.deadline?.0.as_microsecond()).unwrap();
            Some((status.allocation?, deadline_us))
        };
        slots.into_iter().filter_map(|slot| of_status(slot.status?)).collect()
    };
    story.eventually("all know their deadline", || async { deadlines().await.len() == nodes as usize }).await;
    let deadlines = deadlines().await;
    story.eventually("all have ended", || async { story.market.ended().await.len() == nodes as usize }).await;
    let ended = story.market.ended().await;
    let late = ended.iter().filter(|it| it.end_reason() != EndReason::Released).count();
    let left = ended.iter().filter_map(|it| deadlines[&it.allocation].checked_sub(it.ended_at_us?));
    println!("{nodes} notices: {late} late; the last one ended {:?} µs before its deadline", left.min());
    assert_eq!(late, 0, "{ended:?}");
    for pod in story.pods().list(&Default::default()).await.unwrap().items {
        let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let name = pod.metadata.name.unwrap();
        let _ = story.pods().patch(&name, &PatchParams::default(), &none).await;
    }
}
