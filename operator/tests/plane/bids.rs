//! From a BidNode to its nodes, and back.

use crate::market::Times;
use crate::seen::first_versions;
use crate::story::{self, Story};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use kube::runtime::wait::await_condition;
use kubebid_operator::api::{
    BidNodePhase, BidNodeStatus, BidSlot, LABEL_BIDNODE, LABEL_UID, TAINT_UNREGISTERED,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

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
    // A node is closed to pods until it has all that it is to have.
    let bare = first_versions(story.nodes(), |node: &Node| {
        let has = |key: &str| story::taints(node).iter().any(|taint| taint.key == key);
        let labelled = node.labels().contains_key(LABEL_UID) && node.labels().contains_key("pool");
        node.name_any().starts_with("life-") && !(labelled && has("gpu")) && !has(TAINT_UNREGISTERED)
    })
    .await;
    story.bid("life", spec).await;
    let node = story.running("life", 2).await;
    let status = node.status.clone().unwrap();
    assert_eq!(status.phase, BidNodePhase::Running);
    assert_eq!(status.average_price, Some(2.0));
    assert!(status.nodes.iter().all(|node| node.region.as_deref() == Some("eu-west")));
    let nodes = story.nodes_of(&node).await;
    assert_eq!(nodes.len(), 2);
    for node in &nodes {
        assert_eq!(node.metadata.labels.as_ref().unwrap()["pool"], "gpu");
        let taints = story::taints(node);
        assert_eq!(taints.len(), 1, "{taints:?}");
        assert_eq!((taints[0].key.as_str(), taints[0].value.as_deref()), ("gpu", Some("yes")));
    }
    assert_eq!(story.market.live_bids().await.len(), 2);
    let operator = story.operator.as_ref().unwrap();
    assert_eq!(
        (operator.page("/healthz").await, operator.page("/readyz").await),
        ("ok\n".into(), "ok\n".into())
    );
    let series = format!(
        "bidnode_active_nodes{{name=\"life\",namespace=\"{}\",instance_type=\"h100-8x\"}}",
        story.namespace
    );
    let buckets = operator.page("/metrics").await;
    assert!(buckets.contains(&format!("{series} 2\n")));
    let of_life = format!("name=\"life\",namespace=\"{}\"", story.namespace);
    for (metric, value) in [
        ("wanted_nodes", "2"),
        ("pending_bids", "0"),
        ("price_dollars", "2"),
        ("hourly_cost_dollars", "4"),
        ("nodes_for_pods_total", "0"),
        ("condition", "1"),
    ] {
        let begin = format!("kubebid_operator_bidnode_{metric}{{{of_life}");
        let found = buckets.lines().find(|line| line.starts_with(&begin)).unwrap_or_default();
        assert!(found.ends_with(&format!(" {value}")), "{begin}: {found:?}");
    }
    let edges = |line: &&str| line.starts_with("bidnode_reconcile_duration_seconds_bucket{");
    let edges = buckets.lines().filter(edges).map(|line| line.split('"').nth(1).unwrap());
    let factors = ["0.01", "0.02", "0.04", "0.08", "0.16", "0.32", "0.64", "1.28", "2.56", "5.12", "+Inf"];
    assert_eq!(edges.collect::<Vec<_>>(), factors);
    story.delete("life").await;
    story.gone("life").await;
    assert!(!operator.page("/metrics").await.contains(&of_life), "they go with their object");
    assert!(story.market.live_bids().await.is_empty());
    assert!(story.market.held().await.is_empty());
    assert!(story.nodes_of(&node).await.is_empty());
    assert!(bare.lock().unwrap().is_empty(), "{bare:?}");
}

#[tokio::test]
async fn bids_that_wait_stay_as_many_as_they_are() {
    let story = Story::begin("waits").await;
    story.market.open(EU, NOTICE).await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2})).await;
    story
        .until("gpu", "two bids wait", |status| {
            status.pending_bids == 2 && status.phase == BidNodePhase::Bidding
        })
        .await;
    for round in 0..10 {
        // Each change is looked at, and none makes another bid.
        story.change("gpu", json!({"maxNodes": 20 + round})).await;
        let generation = story.bidnodes().get("gpu").await.unwrap().metadata.generation;
        let looked = |status: &BidNodeStatus| status.observed_generation == generation;
        let status = story.until("gpu", "it was looked at", looked).await.status.unwrap();
        assert_eq!((status.pending_bids, status.active_nodes), (2, 0));
    }
    assert_eq!(story.market.all_bids().await.len(), 2);
}

#[tokio::test]
async fn without_a_region_the_cheapest_with_capacity_is_taken() {
    let story = Story::begin("regions").await;
    story.market.open("h100-8x/ap-south", NOTICE).await;
    for (market, capacity, reserve) in [(EU, 4, 2.2), ("h100-8x/us-east", 1, 2.0)] {
        story.market.open(market, NOTICE).await;
        story.market.offer(market, capacity, reserve).await;
    }
    // A fifth above the lowest is enough for the second one.
    let strategy = "availability-optimized";
    let spec = json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2, "bidStrategy": strategy});
    story.bid("gpu", spec).await;
    let status = story.running("gpu", 2).await.status.unwrap();
    let mut regions: Vec<_> = status.nodes.iter().map(|node| node.region.clone().unwrap()).collect();
    regions.sort();
    assert_eq!(regions, ["eu-west", "us-east"]);
    assert_eq!(status.average_price, Some(2.1));
}

#[tokio::test]
async fn below_the_floor_it_says_what_would_win() {
    let story = Story::begin("floor").await;
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, 1, 3.8).await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 3.0})).await;
    story
        .until("gpu", "a condition says what would win", |status| {
            status.conditions.iter().any(|it| it.reason == "BelowFloor" && it.message.contains("3.8 USD"))
        })
        .await;
    story.change("gpu", json!({"maxBid": 4.0})).await;
    story.running("gpu", 1).await;
}

#[tokio::test]
async fn a_changed_maximum_amends_the_bids_and_replaces_no_node() {
    let story = Story::begin("raise").await;
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, 1, 3.0).await;
    let spec = json!({"instanceType": "h100-8x", "maxBid": 3.2, "minNodes": 2, "bidStrategy": "availability-optimized"});
    story.bid("gpu", spec).await;
    let one = |status: &BidNodeStatus| status.active_nodes == 1 && status.pending_bids == 1;
    let node = story.until("gpu", "one runs and one waits", one).await;
    let bids = || async {
        let bids = story.market.live_bids().await;
        bids.into_iter().map(|bid| (bid.bid, bid.ceiling_micros)).collect::<BTreeMap<_, _>>()
    };
    let uids = || async {
        let nodes = story.nodes_of(&node).await;
        nodes.into_iter().map(|node| node.metadata.uid).collect::<Vec<_>>()
    };
    let (before, nodes) = (bids().await, uids().await);
    assert_eq!(before.values().collect::<Vec<_>>(), [&3_200_000, &3_200_000]);
    story.change("gpu", json!({"maxBid": 4.0})).await;
    // 1.2 times the reference, or all of it where there is none.
    let raised = |ceiling: &u64| (3_600_000..=4_000_000).contains(ceiling);
    story.eventually("both bids are raised", || async { bids().await.values().all(raised) }).await;
    assert_eq!(bids().await.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    story.change("gpu", json!({"maxBid": 3.1})).await;
    let cut = |ceiling: &u64| *ceiling == 3_100_000;
    story.eventually("both bids are cut", || async { bids().await.values().all(cut) }).await;
    assert_eq!(bids().await.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert_eq!(uids().await, nodes);
}

#[tokio::test]
async fn a_node_given_back_early_costs_the_minimum_and_charges_split_by_name() {
    let story = Story::begin("charge").await;
    let times = Times { notice: NOTICE, min_charge: Duration::from_secs(300), ..Times::default() };
    story.market.open_with(EU, times).await;
    story.market.offer(EU, 2, 3.6).await;
    for name in ["one", "two"] {
        story.bid(name, json!({"instanceType": "h100-8x", "maxBid": 4.0})).await;
        story.running(name, 1).await;
        story.delete(name).await;
        story.gone(name).await;
    }
    // Five minutes at 3.6 dollars an hour.
    let each = BTreeMap::from([("one".to_owned(), 300_000), ("two".to_owned(), 300_000)]);
    story
        .eventually("both are charged", || async { story.market.charged(LABEL_BIDNODE).await == each })
        .await;
}

#[tokio::test]
async fn a_name_of_52_characters_is_one_and_of_53_is_none() {
    let story = Story::begin("names").await;
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, 1, 1.0).await;
    let spec = json!({"instanceType": "h100-8x", "maxBid": 4.0});
    match story.try_bid(&"n".repeat(53), spec.clone()).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 422);
            assert!(status.message.contains("at most 52 characters"), "{}", status.message);
        }
        other => panic!("it is taken: {other:?}"),
    }
    let name = "n".repeat(52);
    story.bid(&name, spec).await;
    story.running(&name, 1).await;
}

#[tokio::test]
async fn below_the_reserve_of_a_held_node_the_node_is_given_back() {
    let story = Story::begin("cut").await;
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, 1, 2.0).await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.0})).await;
    story.running("gpu", 1).await;
    story.change("gpu", json!({"maxBid": 1.0})).await;
    story
        .until("gpu", "the node is given back and a bid waits", |status| {
            status.active_nodes == 0 && status.pending_bids == 1 && status.nodes.is_empty()
        })
        .await;
    story.eventually("nothing is held", || async { story.market.held().await.is_empty() }).await;
}

#[tokio::test]
async fn a_cut_waits_for_the_protection_and_says_until_when() {
    let story = Story::begin("protected").await;
    // One is protected for longer than the story lasts, the other for as long as it is worth waiting for.
    for (region, seconds) in [("long", 3600), ("short", 15)] {
        let min_runtime = Duration::from_secs(seconds);
        let times = Times { notice: NOTICE, min_runtime, ..Times::default() };
        let market = format!("h100-8x/{region}");
        story.market.open_with(&market, times).await;
        story.market.offer(&market, 1, 1.0).await;
        let strategy = "availability-optimized";
        let spec =
            json!({"instanceType": "h100-8x", "region": region, "maxBid": 4.0, "bidStrategy": strategy});
        story.bid(region, spec).await;
        story.running(region, 1).await;
        story.change(region, json!({"maxBid": 1.1})).await;
    }
    story
        .until("long", "it says that the cut waits", |status| {
            let waits = |it: &Condition| {
                it.type_ == "MaxBidApplied" && it.status == "False" && it.message.contains("is lowered at")
            };
            status.conditions.iter().any(waits)
        })
        .await;
    let ceilings = || async {
        let bids = story.market.live_bids().await;
        let by_name = bids.into_iter().map(|bid| (bid.labels[LABEL_BIDNODE].clone(), bid.ceiling_micros));
        by_name.collect::<BTreeMap<_, _>>()
    };
    story.eventually("the cut is applied", || async { ceilings().await["short"] == 1_100_000 }).await;
    story
        .until("short", "it says so", |status| {
            status.conditions.iter().any(|it| it.type_ == "MaxBidApplied" && it.status == "True")
        })
        .await;
    assert!(ceilings().await["long"] > 1_100_000);
}

#[tokio::test]
async fn an_idle_bidnode_is_not_written() {
    // Longer than everything is listed again and looked at again.
    is_idle_for(Duration::from_secs(75)).await;
}

#[tokio::test]
#[ignore = "takes five minutes: just idle"]
async fn an_idle_bidnode_is_not_written_in_five_minutes() {
    is_idle_for(Duration::from_secs(300)).await;
}

async fn is_idle_for(time: Duration) {
    let story = Story::begin("idle").await;
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, 2, 2.0).await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2})).await;
    let node = story.running("gpu", 2).await;
    let (api, version) = (story.bidnodes(), node.metadata.resource_version);
    let changed = move |node: Option<&kubebid_operator::api::BidNode>| {
        node.is_some_and(|node| node.metadata.resource_version != version)
    };
    let changed = tokio::time::timeout(time, await_condition(api, "gpu", changed));
    if let Ok(written) = changed.await {
        panic!("written while idle: {:#?} after {:#?}", written.unwrap().unwrap().status, node.status);
    }
}

#[tokio::test]
async fn scaling_moves_the_minimum() {
    let story = Story::begin("scale").await;
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, 4, 2.0).await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5})).await;
    story.running("gpu", 1).await;
    let scale = |nodes: u32| {
        let nodes = format!("--replicas={nodes}");
        story.plane.get(&["-n", &story.namespace, "scale", "bn", "gpu", &nodes]);
    };
    scale(3);
    story.running("gpu", 3).await;
    let table = story.plane.get(&["-n", &story.namespace, "get", "bn"]);
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let heading = ["NAME", "INSTANCE", "NODES", "PRICE", "BID", "COST", "CURRENCY", "PHASE", "READY", "AGE"];
    assert_eq!(lines[0], heading);
    assert_eq!(lines[1][..4], ["gpu", "h100-8x", "3", "2"]);
    assert_eq!(lines[1][6..9], ["USD", "Running", "True"]);
    assert!(lines[1][4].parse::<f64>().unwrap() >= 2.0 && lines[1][5].parse::<f64>().is_ok(), "{table}");
    scale(1);
    let node = story.running("gpu", 1).await;
    story.eventually("one node is left", || async { story.nodes_of(&node).await.len() == 1 }).await;
    story.eventually("one unit is held", || async { story.market.held().await.len() == 1 }).await;
}

#[tokio::test]
async fn a_refused_bid_is_said_and_tried_again_less_and_less_often() {
    let story = Story::begin("refused").await;
    story.market.open(EU, NOTICE).await;
    story.market.limit_nodes_wanted(Some(1)).await;
    let began = Instant::now();
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 3})).await;
    let message = story.says("gpu", "BidsAccepted", "False", "BidRefused").await;
    assert!(message.contains("LIMIT"), "{message}");
    let fifth = |slot: &BidSlot| slot.status.as_ref().is_some_and(|status| status.attempt >= 5);
    story
        .eventually("it was tried five times", || async {
            story.slots().list(&Default::default()).await.unwrap().iter().any(fifth)
        })
        .await;
    // After a quarter of a second at least, and then twice as long each time.
    assert!(began.elapsed() >= Duration::from_millis(3750), "{:?}", began.elapsed());
    let is_refused = |slot: &&BidSlot| {
        let conditions = slot.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|it| it.type_ == "Allocated" && it.reason == "BidRefused")
    };
    story
        .eventually("two slots say that they are refused", || async {
            story.slots().list(&Default::default()).await.unwrap().iter().filter(is_refused).count() == 2
        })
        .await;
    story.market.limit_nodes_wanted(None).await;
    story.market.offer(EU, 3, 1.0).await;
    story.running("gpu", 3).await;
    story.says("gpu", "BidsAccepted", "True", "Accepted").await;
}

#[tokio::test]
async fn a_ceiling_is_said_to_suffice_only_where_something_is_offered() {
    let mut story = Story::begin("suffices").await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5})).await;
    let message = story.says("gpu", "CeilingSuffices", "Unknown", "NoMarket").await;
    assert!(message.contains("NO_MARKET"), "{message}");
    story.market.open(EU, NOTICE).await;
    let message = story.says("gpu", "CeilingSuffices", "Unknown", "NoSupply").await;
    assert!(message.contains("NO_SUPPLY"), "{message}");
    story.market.offer(EU, 1, 1.0).await;
    story.running("gpu", 1).await;
    story.says("gpu", "CeilingSuffices", "True", "AtOrAboveFloor").await;
    story.market.stop().await;
    story.says("gpu", "CeilingSuffices", "Unknown", "AuctionUnavailable").await;
    story.market.resume().await;
}

#[tokio::test]
async fn no_node_is_not_ready_on_the_way_to_its_first_readiness() {
    let story = Story::begin("starts").await;
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, 4, 1.0).await;
    let is_not_ready = |node: &kubebid_operator::api::BidNode| {
        node.status.as_ref().is_some_and(|status| status.phase == BidNodePhase::NotReady)
    };
    let not_ready = first_versions(story.bidnodes(), is_not_ready).await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 4})).await;
    story.running("gpu", 4).await;
    assert!(not_ready.lock().unwrap().is_empty());
}

#[tokio::test]
async fn nodes_that_a_person_scales_away_go_at_once_busy_ones_too() {
    let story = Story::begin("fewer").await;
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, 4, 2.0).await;
    let spec = json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 4, "nodeSelector": {"pool": story.namespace}});
    story.bid("gpu", spec).await;
    story.annotate(&story.bidnodes(), "gpu", "kubebid.io/release-empty-after", "1h").await;
    let node = story.running("gpu", 4).await;
    let gpus = json!({"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}});
    for name in ["a", "b"] {
        let containers = json!([{"name": "main", "image": "work", "resources": gpus}]);
        story.pod(name, json!({"nodeSelector": {"pool": story.namespace}, "containers": containers})).await;
        let is_bound =
            |pod: Option<&Pod>| pod.is_some_and(|pod| pod.spec.as_ref().unwrap().node_name.is_some());
        story.until_pod(name, "it is bound", is_bound).await;
    }
    let scale = |nodes: u32| {
        let nodes = format!("--replicas={nodes}");
        story.plane.get(&["-n", &story.namespace, "scale", "bn", "gpu", &nodes]);
    };
    scale(2);
    story.eventually("two nodes are left", || async { story.nodes_of(&node).await.len() == 2 }).await;
    let left = story.pods().list(&Default::default()).await.unwrap().items;
    assert!(left.len() == 2 && left.iter().all(|pod| pod.metadata.deletion_timestamp.is_none()), "{left:?}");
    scale(1);
    story.running("gpu", 1).await;
    story.eventually("one unit is held", || async { story.market.held().await.len() == 1 }).await;
    let left = story.pods().list(&Default::default()).await.unwrap().items;
    assert_eq!(left.len(), 1, "the other was drained: {left:?}");
}
