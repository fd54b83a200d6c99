//! Bids over sets of instance types and regions.

use crate::market::Market;
use crate::story::{self, PATIENCE, Story};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use kubebid_client::v1;
use kubebid_client::v1::token::Role;
use kubebid_operator::api::{BidNode, BidNodeStatus, BidSlot, BidSlotStatus};
use kubebid_operator::conversion::conversions;
use kubebid_operator::engine::{Engine, WithdrawOutcome};
use kubebid_testkit::Plane;
use serde_json::{Value, json};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::timeout;

const NOTICE: Duration = Duration::from_secs(20);
const LARGE_EU: &str = "h100-8x/eu-west";
const LARGE_US: &str = "h100-8x/us-east";
const SMALL_US: &str = "h100-4x/us-east";

/// Returns the plane of these stories. Its definition serves v2beta1, so that the sets of types and regions count, which v1 keeps.
fn plane() -> &'static Plane {
    static SERVED: OnceLock<&Plane> = OnceLock::new();
    SERVED.get_or_init(|| {
        let (plane, end) = Plane::start().leak();
        // It ends with the process.
        std::mem::forget(end);
        story::define(plane);
        let served = json!([{"op": "replace", "path": "/spec/versions/1/served", "value": true}]);
        plane.get(&["patch", "crd", "bidnodes.kubebid.io", "--type=json", "-p", &served.to_string()]);
        plane
    })
}

/// Begins a story with a running operator, which reads the definition when it starts.
async fn begin(name: &str) -> Story {
    let mut story = Story::on(plane(), name).await;
    story.start_operator(&[]);
    story
}

/// Returns an object in another version, as the webhook would.
fn convert(object: Value, version: &str) -> Value {
    conversions().convert(object, &format!("kubebid.io/{version}")).unwrap()
}

/// Opens the market of the small type, whose nodes have four GPUs.
async fn open_small(story: &Story) {
    story.market.open(SMALL_US, NOTICE).await;
    let instance_type = v1::InstanceType {
        name: "h100-4x".into(),
        allocatable: [("cpu", "64"), ("memory", "256Gi"), ("nvidia.com/gpu", "4")]
            .map(|(name, amount)| (name.into(), amount.into()))
            .into(),
        ..Default::default()
    };
    let request = v1::PutInstanceTypeRequest { instance_type: Some(instance_type) };
    story.market.admin().put_instance_type(request).await.unwrap();
}

/// Makes a BidNode of this specification of v2beta1, as it is stored.
async fn bid(story: &Story, name: &str, spec: Value) {
    let object = json!({
        "apiVersion": "kubebid.io/v2beta1", "kind": "BidNode", "metadata": {"name": name}, "spec": spec,
    });
    let stored: BidNode = serde_json::from_value(convert(object, "v1")).unwrap();
    story.bidnodes().create(&PostParams::default(), &stored).await.unwrap();
}

/// Changes these fields of a BidNode, as a client of v2beta1 would.
async fn change(story: &Story, name: &str, fields: Value) {
    let stored = serde_json::to_value(story.bidnodes().get(name).await.unwrap()).unwrap();
    let mut object = convert(stored, "v2beta1");
    for (key, value) in fields.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    let stored = convert(object, "v1");
    let patch = json!({
        "metadata": {"annotations": stored["metadata"]["annotations"]}, "spec": stored["spec"],
    });
    story.bidnodes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test]
async fn one_bid_gets_its_node_from_another_market_if_the_first_is_full() {
    let story = begin("sets").await;
    story.market.open(LARGE_EU, NOTICE).await;
    story.market.open(LARGE_US, NOTICE).await;
    open_small(&story).await;
    story.market.offer(LARGE_EU, 1, 1.0).await;
    story.market.rival_bids(LARGE_EU, 1, 9.0).await;
    story.market.offer(SMALL_US, 1, 1.0).await;
    let spec = json!({
        "instanceTypes": ["h100-8x", "h100-4x"], "regions": ["eu-west", "us-east"], "maxBid": "4.50",
    });
    bid(&story, "gpu", spec).await;
    let bidnode = story.running("gpu", 1).await;
    let node = &bidnode.status.as_ref().unwrap().nodes[0];
    assert_eq!((node.instance_type.as_deref(), node.region.as_deref()), (Some("h100-4x"), Some("us-east")));
    let bids = story.market.all_bids().await;
    assert_eq!(bids.len(), 1);
    assert_eq!(bids[0].markets, [LARGE_EU, LARGE_US, SMALL_US], "one bid names the open markets");
    let nodes = story.nodes_of(&bidnode).await;
    assert_eq!(nodes[0].labels()["node.kubernetes.io/instance-type"], "h100-4x");
    let allocatable = nodes[0].status.clone().unwrap().allocatable.unwrap();
    assert_eq!(allocatable["nvidia.com/gpu"], Quantity("4".to_owned()));
    story.delete("gpu").await;
    story.gone("gpu").await;
    assert!(story.market.held().await.is_empty());
}

#[tokio::test]
async fn a_type_that_the_definition_does_not_allow_is_not_bid_for() {
    let story = begin("allowed").await;
    story.market.open(LARGE_EU, NOTICE).await;
    story.market.offer(LARGE_EU, 1, 3.0).await;
    story.market.open("abacus/eu-west", NOTICE).await;
    story.market.offer("abacus/eu-west", 1, 1.0).await;
    // Nothing has checked what v1 keeps for v2beta1.
    let spec = json!({"instanceTypes": ["h100-8x", "abacus"], "regions": ["eu-west"], "maxBid": "4.5"});
    bid(&story, "gpu", spec).await;
    story.running("gpu", 1).await;
    let bids = story.market.all_bids().await;
    assert_eq!(bids.len(), 1);
    assert_eq!(bids[0].markets, [LARGE_EU]);
}

#[tokio::test]
async fn a_bid_that_wins_while_it_is_withdrawn_is_known_to_have_won_at_once() {
    let market = Market::start().await;
    market.open(LARGE_EU, NOTICE).await;
    let engine = Engine::new(market.party("tenant", Role::Tenant).await, "cluster".to_owned());
    let spec = json!({"instanceType": "h100-8x", "maxBid": 4.5});
    let bidnode = BidNode::new("gpu", serde_json::from_value(spec).unwrap());
    let spec = json!({"instanceType": "h100-8x", "region": "eu-west"});
    let mut slot = BidSlot::new("gpu-0", serde_json::from_value(spec).unwrap());
    slot.metadata.uid = Some("slot".to_owned());
    let mut place = async |attempt| {
        let ceiling_micros = Some(2_000_000);
        slot.status = Some(BidSlotStatus { attempt, ceiling_micros, ..BidSlotStatus::default() });
        (slot.clone(), engine.place(&bidnode, &slot, false).await.unwrap())
    };
    let (waits, bid) = place(1).await;
    assert_eq!(engine.withdraw(&waits, bid).await.unwrap(), WithdrawOutcome::Done);
    assert!(engine.bid_cache().bid(bid).is_none());
    market.offer(LARGE_EU, 1, 1.0).await;
    let (won, bid) = place(2).await;
    assert_eq!(engine.withdraw(&won, bid).await.unwrap(), WithdrawOutcome::Won);
    assert_eq!(engine.bid_cache().bid(bid).unwrap().allocations.len(), 1);
}

#[tokio::test]
async fn pods_count_on_the_smallest_type_until_a_larger_one_is_won() {
    let story = begin("smallest").await;
    story.market.open(LARGE_EU, NOTICE).await;
    open_small(&story).await;
    let spec = json!({
        "instanceTypes": ["h100-8x", "h100-4x"], "maxBid": "4.5", "nodes": {"min": 0, "max": 10},
        "labels": {"pool": story.namespace},
    });
    bid(&story, "gpu", spec).await;
    story.deploy("one", &story.namespace, 4);
    story.deploy("two", &story.namespace, 4);
    story.until("gpu", "a bid waits for each pod", |status| status.pending_bids == 2).await;
    story.market.offer(LARGE_EU, 1, 1.0).await;
    // Both pods fit on the node that is won, so the other bid is given up.
    story.running("gpu", 1).await;
    assert_eq!(story.home_of("one").await, story.home_of("two").await);
    assert_eq!(story.market.live_bids().await.len(), 1);
}

#[tokio::test]
async fn slots_of_an_older_operator_go_on_and_a_waiting_one_is_widened() {
    let mut story = begin("widened").await;
    story.market.open(LARGE_EU, NOTICE).await;
    story.market.offer(LARGE_EU, 1, 1.0).await;
    story
        .bid("gpu", json!({"instanceType": "h100-8x", "region": "eu-west", "maxBid": 4.5, "minNodes": 2}))
        .await;
    let half = |status: &BidNodeStatus| status.active_nodes == 1 && status.pending_bids == 1;
    let bidnode = story.until("gpu", "one runs and one waits", half).await;
    let bids = story.market.all_bids().await;
    let before: Vec<_> = story.nodes_of(&bidnode).await.into_iter().map(|node| node.metadata.uid).collect();

    // An older operator writes no lists.
    story.operator = None;
    let params = PatchParams::default();
    for slot in story.slots().list(&Default::default()).await.unwrap() {
        let old = Patch::Merge(json!({"spec": {"instanceTypes": null, "regions": null}}));
        story.slots().patch(&slot.name_any(), &params, &old).await.unwrap();
        let old = Patch::Merge(json!({"status": {"bidMarkets": null}}));
        story.slots().patch_status(&slot.name_any(), &params, &old).await.unwrap();
    }
    story.start_operator(&[]);
    story.change("gpu", json!({"maxNodes": 9})).await;
    let generation = story.bidnodes().get("gpu").await.unwrap().metadata.generation;
    story
        .until("gpu", "it was looked at", |status| half(status) && status.observed_generation == generation)
        .await;
    assert_eq!(story.market.all_bids().await.len(), 2);

    story.market.open(LARGE_US, NOTICE).await;
    open_small(&story).await;
    story.market.offer(SMALL_US, 1, 1.0).await;
    let wider = json!({"instanceTypes": ["h100-8x", "h100-4x"], "regions": ["eu-west", "us-east"]});
    // The first operator ends after it has cancelled the bid, and before it can say so.
    story.start_operator(&["--abort-at", "withdrawn"]);
    change(&story, "gpu", wider).await;
    let operator = story.operator.as_mut().unwrap();
    timeout(PATIENCE, operator.ended()).await.expect("no crash at withdrawn");
    story.start_operator(&[]);
    let bidnode = story.running("gpu", 2).await;
    let nodes = story.nodes_of(&bidnode).await;
    let kept = nodes.iter().filter(|node| before.contains(&node.metadata.uid)).count();
    assert_eq!((nodes.len(), kept), (2, 1), "the node that was held is not touched");
    let types = bidnode.status.unwrap().nodes.into_iter().filter_map(|node| node.instance_type);
    assert_eq!(types.filter(|name| name == "h100-4x").count(), 1);
    let after = story.market.all_bids().await;
    assert_eq!(after.len(), 3, "the bid that waited was replaced by one");
    assert_eq!(after[2].markets, [LARGE_EU, LARGE_US, SMALL_US]);
    let open = after.iter().filter(|bid| bid.state() == v1::bid::State::Open || bid.held > 0);
    assert_eq!(open.count(), 2, "{after:?} after {bids:?}");
}
