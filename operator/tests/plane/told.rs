//! What people are told by events, and who is said to have written what.

use crate::story::Story;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::Api;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

const EU: &str = "h100-8x/eu-west";

/// How many events there are about the BidNode, by reason.
async fn told(story: &Story) -> BTreeMap<String, usize> {
    let events: Api<Event> = Api::namespaced(story.client.clone(), &story.namespace);
    let mut told = BTreeMap::new();
    for event in events.list(&Default::default()).await.unwrap() {
        if event.regarding.and_then(|it| it.kind).as_deref() == Some("BidNode") {
            *told.entry(event.reason.unwrap_or_default()).or_default() += 1;
        }
    }
    told
}

#[tokio::test]
async fn events_tell_the_story_of_a_normal_life() {
    let story = Story::begin("told").await;
    story.market.open(EU, Duration::from_secs(60)).await;
    story.market.offer(EU, 2, 1.0).await;
    let spec = json!({"instanceType": "h100-8x", "maxBid": 2.0, "minNodes": 2, "nodeSelector": {"pool": story.namespace}});
    story.bid("gpu", spec).await;
    let bidnode = story.running("gpu", 2).await;
    story.market.open("h100-8x/us-east", Duration::from_secs(60)).await;
    story.market.offer("h100-8x/us-east", 2, 1.0).await;
    story.market.rival_bids(EU, 2, 9.0).await;
    story
        .until("gpu", "both nodes are replaced", |status| {
            let east = |node: &kubebid_operator::api::NodeStatus| node.region.as_deref() == Some("us-east");
            status.active_nodes == 2 && status.nodes.len() == 2 && status.nodes.iter().all(east)
        })
        .await;
    let all = [
        ("BidPlaced", 4),
        ("NodeWon", 4),
        ("NodeReady", 2),
        ("NodePreempted", 2),
        ("NodeDrained", 2),
        ("NodeReplaced", 2),
        ("NodeReleased", 2),
    ];
    let expected: BTreeMap<_, _> =
        all.into_iter().map(|(reason, times)| (reason.to_owned(), times)).collect();
    story.eventually("all was told", || async { told(&story).await == expected }).await;
    let list = ["get", "events", "-n", &story.namespace, "--field-selector", "reason=NodeWon"];
    assert!(story.plane.get(&list).contains("at 1 USD per hour"), "{}", story.plane.get(&list));

    // Its own name is on all that it writes.
    let node = story.nodes_of(&bidnode).await.remove(0);
    let slot = story.slots().list(&Default::default()).await.unwrap().items.remove(0);
    let fields = [bidnode.managed_fields(), node.managed_fields(), slot.managed_fields()];
    for (what, fields) in ["bidnode", "node", "slot"].into_iter().zip(fields) {
        let managers: Vec<_> = fields.iter().filter_map(|it| it.manager.as_deref()).collect();
        assert!(managers.contains(&"kubebid-operator"), "{what}: {managers:?}");
    }
}
