//! Objects that this version of the operator cannot read: the definitions, or another version, came first. What follows from
//! the absence of an object does not follow from that.

use crate::story::{self, Story};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::Api;
use serde_json::{Value, json};
use std::time::Duration;

const EU: &str = "h100-8x/eu-west";
/// Longer than the operator lets a bid live whose slot is gone.
const LONG: Duration = Duration::from_secs(16);

/// Lets a field of the first version of a definition have another value, as the definition of the next version does.
fn allow(story: &Story, crd: &str, field: &str, value: &str) {
    let crd = format!("crd/{crd}");
    let mut definition: Value = serde_json::from_str(&story.plane.get(&["get", &crd, "-o", "json"])).unwrap();
    let pointer = format!("/spec/versions/0/schema/openAPIV3Schema/properties/{field}/enum");
    definition.pointer_mut(&pointer).unwrap().as_array_mut().unwrap().push(json!(value));
    let patch = json!([{"op": "replace", "path": pointer, "value": definition.pointer(&pointer)}]);
    story.plane.get(&["patch", &crd, "--type=json", "-p", &patch.to_string()]);
}

/// Writes a value into an object, as the next version does.
async fn write(story: &Story, object: &str, patch: Value, subresource: &[&str]) {
    let patch = patch.to_string();
    let arguments = ["-n", &story.namespace, "patch", object, "--type=merge", "-p", &patch];
    // The API server sees a changed definition at its own pace.
    story
        .eventually("the value is written", || async {
            story.plane.kubectl(&[&arguments[..], subresource].concat()).status.success()
        })
        .await;
}

async fn told(story: &Story, name: &str, reason: &str) {
    let events: Api<Event> = Api::namespaced(story.client.clone(), &story.namespace);
    let is_told = || async {
        events.list(&Default::default()).await.unwrap().iter().any(|event| {
            event.reason.as_deref() == Some(reason)
                && event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(name)
        })
    };
    story.eventually(reason, is_told).await;
}

#[tokio::test]
async fn a_slot_that_cannot_be_read_keeps_its_node_and_is_not_replaced() {
    let mut story = Story::alone("unreadableslot").await;
    allow(&story, "bidslots.kubebid.io", "status/properties/phase", "Hibernating");
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 8, 1.0).await;
    story.start_operator(&[]);
    for name in ["gpu", "other"] {
        story.bid(name, json!({"instanceType": "h100-8x", "maxBid": 4.5, "maxNodes": 3})).await;
    }
    let bidnode = story.running("gpu", 1).await;
    story.running("other", 1).await;
    let before = story.nodes_of(&bidnode).await;
    write(&story, "bidslot/gpu-0", json!({"status": {"phase": "Hibernating"}}), &["--subresource=status"])
        .await;
    told(&story, "gpu-0", "Unreadable").await;
    told(&story, "gpu", "SlotUnreadable").await;
    // Neither time nor a restart changes that. Others are served.
    tokio::time::sleep(LONG).await;
    story.start_operator(&[]);
    story.change("other", json!({"minNodes": 2})).await;
    story.running("other", 2).await;
    story.change("gpu", json!({"minNodes": 2})).await;
    tokio::time::sleep(LONG).await;
    let after = story.nodes_of(&bidnode).await;
    assert_eq!(
        after.iter().map(|it| it.uid()).collect::<Vec<_>>(),
        before.iter().map(|it| it.uid()).collect::<Vec<_>>()
    );
    assert_eq!(story.market.all_bids().await.len(), 3, "one of gpu, two of other");
    let metrics = story.operator.as_ref().unwrap().page("/metrics").await;
    assert!(metrics.contains("unreadable_objects{resource=\"bidslots\"} 1"), "{metrics}");

    // The version that knows the value is back, or somebody writes another one.
    write(&story, "bidslot/gpu-0", json!({"status": {"phase": "Ready"}}), &["--subresource=status"]).await;
    story.running("gpu", 2).await;
    let after = story.nodes_of(&bidnode).await;
    assert!(after.iter().any(|node| node.uid() == before[0].uid()), "the node was lost");
    let slot = story.slots().get("gpu-0").await.unwrap();
    assert!(slot.status.unwrap().conditions.iter().all(|it| it.type_ != "Readable"));
}

#[tokio::test]
async fn a_bidnode_that_cannot_be_read_keeps_its_nodes() {
    let mut story = Story::alone("unreadablebidnode").await;
    allow(&story, "bidnodes.kubebid.io", "spec/properties/bidStrategy", "clairvoyant");
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 8, 1.0).await;
    story.start_operator(&[]);
    for name in ["gpu", "other"] {
        story.bid(name, json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2})).await;
    }
    let bidnode = story.running("gpu", 2).await;
    story.running("other", 2).await;
    write(&story, "bidnode/gpu", json!({"spec": {"bidStrategy": "clairvoyant"}}), &[]).await;
    told(&story, "gpu", "Unreadable").await;
    story.start_operator(&[]);
    story.change("other", json!({"minNodes": 3})).await;
    story.running("other", 3).await;
    tokio::time::sleep(LONG).await;
    assert_eq!((story.nodes_of(&bidnode).await.len(), story.market.all_bids().await.len()), (2, 5));
    write(&story, "bidnode/gpu", json!({"spec": {"bidStrategy": "balanced", "minNodes": 3}}), &[]).await;
    story.running("gpu", 3).await;
    assert_eq!(story.market.all_bids().await.len(), 6);
    let taints = story::taints(&story.nodes_of(&bidnode).await[0]);
    assert!(taints.is_empty(), "no node was given up: {taints:?}");
}
