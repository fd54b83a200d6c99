//! Gangs: all nodes or none, by one bid.

use crate::market::Times;
use crate::preemption::is_tainted;
use crate::story::{PATIENCE, Story};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;
use kube::api::Api;
use kubebid_client::v1::Bid;
use kubebid_client::v1::allocation::EndReason;
use kubebid_operator::api::{BidNodePhase, micros};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

const EU: &str = "h100-8x/eu-west";
const US: &str = "h100-8x/us-east";
/// A notice that ends after all that a story waits for.
const LONG: Duration = Duration::from_secs(300);
/// A notice whose end a story waits for. An empty node is drained and given back before it.
const SHORT: Duration = Duration::from_secs(15);

fn gang(nodes: u32, max_bid: f64) -> Value {
    json!({"instanceType": "h100-8x", "maxBid": max_bid, "minNodes": nodes, "maxNodes": nodes, "gang": true})
}

/// A gang of two nodes, both running, on a market that has no unit more.
async fn begin(name: &str, max_bid: f64, notice: Duration) -> Story {
    let story = Story::begin(name).await;
    story.market.open(EU, notice).await;
    story.market.offer(EU, 2, 1.0).await;
    let mut spec = gang(2, max_bid);
    spec["nodeSelector"] = json!({"pool": story.namespace});
    story.bid("gpu", spec).await;
    story.running("gpu", 2).await;
    story.says("gpu", "GangComplete", "True", "Complete").await;
    story
}

/// The only bid that the operator ever placed.
async fn only_bid(story: &Story) -> Bid {
    let mut bids = story.market.all_bids().await;
    assert_eq!(bids.len(), 1, "{bids:?}");
    bids.remove(0)
}

/// The reasons for which nodes ended, sorted.
async fn ends(story: &Story) -> Vec<EndReason> {
    let mut ends: Vec<_> = story.market.ended().await.iter().map(|it| it.end_reason()).collect();
    ends.sort_by_key(|reason| reason.as_str_name());
    ends
}

/// Waits until an event of this reason is about the BidNode; returns its note.
async fn told(story: &Story, reason: &str) -> String {
    let events: Api<Event> = Api::namespaced(story.client.clone(), &story.namespace);
    let find = async || {
        let all = events.list(&Default::default()).await.unwrap().items;
        let is_it = |event: &Event| {
            event.reason.as_deref() == Some(reason)
                && event.involved_object.kind.as_deref() == Some("BidNode")
        };
        all.into_iter().find(is_it).and_then(|event| event.message)
    };
    story.eventually(&format!("{reason} is told"), || async { find().await.is_some() }).await;
    find().await.unwrap()
}

#[tokio::test]
async fn a_gang_gets_all_nodes_or_none() {
    let story = Story::begin("gang").await;
    story.market.open(EU, LONG).await;
    story.market.offer(EU, 2, 1.0).await;
    story.bid("gpu", gang(3, 4.5)).await;
    let waits = story.says("gpu", "GangComplete", "False", "BidWaits").await;
    assert!(waits.ends_with("waits for 3 nodes at once"), "{waits}");
    let node = story.until("gpu", "it is bid for three", |status| status.pending_bids == 3).await;
    assert_eq!(node.status.as_ref().unwrap().phase, BidNodePhase::Bidding);
    assert!(story.market.held().await.is_empty(), "two units are free, and it takes none");
    story.market.offer(EU, 3, 1.0).await;
    let status = story.running("gpu", 3).await.status.unwrap();
    assert_eq!((status.phase, status.average_price), (BidNodePhase::Running, Some(1.0)));
    story.says("gpu", "GangComplete", "True", "Complete").await;
    let bid = only_bid(&story).await;
    assert_eq!((bid.min_nodes, bid.max_nodes, bid.held), (3, 3, 3));
    assert_eq!(story.nodes_of(&node).await.len(), 3);
    let slots = story.slots().list(&Default::default()).await.unwrap().items;
    let mut names: Vec<_> = slots.iter().map(|slot| slot.name_any()).collect();
    names.sort();
    assert_eq!((names.len(), names.last().unwrap().as_str()), (4, "gpu-gang"));
    story.delete("gpu").await;
    story.gone("gpu").await;
    assert!(story.market.held().await.is_empty() && story.market.live_bids().await.is_empty());
    assert!(story.nodes_of(&node).await.is_empty());
    assert_eq!(ends(&story).await, [EndReason::Released; 3], "each was given back when it was empty");
}

#[tokio::test]
async fn a_notice_raises_the_bid_of_a_gang_up_to_its_maximum() {
    // More than `balanced` pays for a single node: 120 % of the reference price.
    let story = begin("gangstays", 20.0, LONG).await;
    let node = story.bidnodes().get("gpu").await.unwrap();
    story.market.rival_bids(EU, 1, 9.0).await;
    story
        .eventually("the bid is raised, and the node stays", || async {
            let bid = only_bid(&story).await;
            bid.ceiling_micros > micros(8.0) && (bid.held, bid.under_notice) == (2, 0)
        })
        .await;
    assert!(!story.nodes_of(&node).await.iter().any(is_tainted));
    assert!(told(&story, "RaisedToStay").await.starts_with("raised to "));
    story.until("gpu", "it shows what is bid", |status| status.bid_price > Some(8.0)).await;
}

#[tokio::test]
async fn a_node_that_a_gang_loses_is_replaced_before_the_deadline() {
    let story = begin("gangreplaced", 2.0, LONG).await;
    let bid = only_bid(&story).await.bid;
    story.market.rival_bids(EU, 1, 9.0).await;
    let why = story.says("gpu", "GangComplete", "False", "Replacing").await;
    assert!(why.contains(" is taken away at ") && why.ends_with("and maxBid is 2 USD"), "{why}");
    story.market.open(US, LONG).await;
    story.market.offer(US, 1, 1.0).await;
    story.says("gpu", "GangComplete", "True", "Complete").await;
    let status = story.running("gpu", 2).await.status.unwrap();
    let mut regions: Vec<_> = status.nodes.iter().filter_map(|node| node.region.clone()).collect();
    regions.sort();
    assert_eq!(regions, ["eu-west", "us-east"]);
    assert_eq!(only_bid(&story).await.bid, bid);
    story
        .eventually("the lost node is given back", || async { ends(&story).await == [EndReason::Released] })
        .await;
}

#[tokio::test]
async fn without_a_replacement_a_gang_is_regrouped_at_the_deadline_and_says_why() {
    let story = begin("gangregroups", 2.0, SHORT).await;
    let node = story.bidnodes().get("gpu").await.unwrap();
    let bid = only_bid(&story).await.bid;
    let mut homes = Vec::new();
    for app in ["a", "b"] {
        story.deploy(app, &story.namespace, 8);
        homes.push(story.home_of(app).await);
    }
    assert_ne!(homes[0], homes[1], "each has a node of its own");
    let rival = story.market.rival_bids(EU, 1, 9.0).await;
    let why = told(&story, "Regrouping").await;
    assert!(homes.iter().any(|home| why.starts_with(&format!("node {home} is taken away at "))), "{why}");
    assert!(why.contains("maxBid is 2 USD; no replacement was found, and 1 of 2 nodes"), "{why}");
    told(&story, "Regrouped").await;
    let waits = story.says("gpu", "GangComplete", "False", "BidWaits").await;
    assert!(
        waits.contains("waits for 2 nodes at once again, because node ") && waits.contains(&why),
        "{waits}"
    );
    story.until("gpu", "all are bid for", |status| status.pending_bids == 2 && status.nodes.is_empty()).await;
    assert!(story.market.held().await.is_empty());
    assert!(story.nodes_of(&node).await.is_empty());
    let regrouped = [EndReason::Regrouped, EndReason::Released];
    assert_eq!(
        ends(&story).await,
        regrouped,
        "the one was drained for its notice, and the other for the gang"
    );
    story.market.rival_cancels(rival).await;
    story.running("gpu", 2).await;
    story.says("gpu", "GangComplete", "True", "Complete").await;
    for app in ["a", "b"] {
        let home = story.home_of(app).await;
        assert!(!homes.contains(&home), "it was drained, and runs on a new node");
    }
    assert_eq!(only_bid(&story).await.bid, bid);
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_gang_places_no_second_bid() {
    let mut story = Story::without_operator("gangcrash").await;
    story.market.open(EU, SHORT).await;
    story.market.offer(EU, 2, 1.0).await;
    story.bid("gpu", gang(2, 2.0)).await;
    for point in ["slot-created", "begun", "placed", "member-created", "member-created", "registered"] {
        crash(&mut story, point).await;
    }
    story.start_operator(&[]);
    story.running("gpu", 2).await;
    story.says("gpu", "GangComplete", "True", "Complete").await;
    let bid = only_bid(&story).await;
    assert_eq!(story.market.held().await.len(), 2);
    story.operator = None;
    let rival = story.market.rival_bids(EU, 1, 9.0).await;
    for point in ["given-back", "member-released", "regrouping", "regrouped"] {
        crash(&mut story, point).await;
    }
    story.start_operator(&[]);
    story.says("gpu", "GangComplete", "False", "BidWaits").await;
    assert!(story.market.held().await.is_empty());
    story.market.rival_cancels(rival).await;
    story.running("gpu", 2).await;
    assert_eq!(only_bid(&story).await.bid, bid.bid, "no bid was ever placed twice");
    assert_eq!(story.market.held().await.len(), 2);
}

/// Starts an operator, and waits until it ends at this step.
async fn crash(story: &mut Story, point: &str) {
    story.start_operator(&["--abort-at", point]);
    let operator = story.operator.as_mut().unwrap();
    timeout(PATIENCE, operator.ended()).await.unwrap_or_else(|_| panic!("no crash at {point}"));
}

#[tokio::test]
async fn a_lower_maximum_waits_for_the_protection_of_a_gang_and_below_the_reserve_all_of_it_goes() {
    let story = Story::begin("gangmaximum").await;
    let times = Times { notice: LONG, min_runtime: Duration::from_secs(20), ..Times::default() };
    story.market.open_with(EU, times).await;
    story.market.offer(EU, 2, 1.0).await;
    let mut spec = gang(2, 3.0);
    spec["bidStrategy"] = json!("availability-optimized");
    story.bid("gpu", spec).await;
    story.running("gpu", 2).await;
    let bid = only_bid(&story).await;
    story.change("gpu", json!({"maxBid": 1.1})).await;
    story.says("gpu", "MaxBidApplied", "False", "Protected").await;
    story.says("gpu", "MaxBidApplied", "True", "Applied").await;
    let lowered = only_bid(&story).await;
    assert_eq!((lowered.bid, lowered.ceiling_micros, lowered.held), (bid.bid, micros(1.1), 2));
    story.change("gpu", json!({"maxBid": 0.5})).await;
    story
        .until("gpu", "all is given back, and a bid waits", |status| {
            status.pending_bids == 2 && status.nodes.is_empty() && status.bid_price == Some(0.5)
        })
        .await;
    assert!(story.market.held().await.is_empty());
    assert_eq!(story.market.live_bids().await.len(), 1);
}
