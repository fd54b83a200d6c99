//! A kubelet that writes about its own node gets nothing by it that the admission plugin NodeRestriction forbids it.

use crate::story::{self, Story};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kubebid_operator::api::{ANNOTATION_MANAGED_LABELS, BidSlot, LABEL_SLOT, PREVIOUS_SUFFIX};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

const EU: &str = "h100-8x/eu-west";
/// A label that no kubelet may write.
const RESTRICTED: &str = "node-restriction.kubernetes.io/trusted";
/// Another one.
const ROLE: &str = "node-role.kubernetes.io/control-plane";

async fn patch(story: &Story, node: &str, patch: Value) {
    story.nodes().patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn until(story: &Story, node: &str, what: &str, is_so: impl Fn(&Node) -> bool) -> Node {
    let look = |node: Option<&Node>| node.is_some_and(&is_so);
    let reached = timeout(story::PATIENCE, await_condition(story.nodes(), node, look)).await;
    reached.unwrap_or_else(|_| panic!("never so: {what}")).unwrap().unwrap()
}

fn has_taint(node: &Node, key: &str) -> bool {
    story::taints(node).iter().any(|taint| taint.key == key)
}

#[tokio::test]
async fn a_kubelet_cannot_have_labels_and_taints_of_others_written() {
    let story = Story::begin("trust").await;
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 4, 2.0).await;
    let taint = |value: &str| json!([{"key": "gpu", "value": value, "effect": "NoSchedule"}]);
    let spec = json!({
        "instanceType": "h100-8x", "maxBid": 4.5, "nodeSelector": {"pool": "gpu", "team": "ml"}, "taints": taint("a"),
    });
    story.bid("gpu", spec).await;
    let bidnode = story.running("gpu", 1).await;
    let name = story.nodes_of(&bidnode).await[0].name_any();
    let slot: BidSlot = story.slots().get("gpu-0").await.unwrap();
    let applied = slot.status.unwrap().applied.unwrap();
    assert!(
        applied.labels.contains("team") && applied.taints.iter().any(|it| it.key == "gpu"),
        "{applied:?}"
    );

    // An administrator has given it a label and a taint.
    let theirs = json!({"key": "dedicated", "effect": "NoSchedule"});
    let add = json!([{"op": "add", "path": "/spec/taints/-", "value": theirs}]);
    let add = Patch::Json::<()>(serde_json::from_value(add).unwrap());
    story.nodes().patch(&name, &PatchParams::default(), &add).await.unwrap();
    patch(&story, &name, json!({"metadata": {"labels": {RESTRICTED: "no"}}})).await;
    // Its kubelet says that these came from its BidNode, and that it had others before.
    let applied =
        json!({"labels": [RESTRICTED, "pool"], "taints": [["dedicated", "NoSchedule"]]}).to_string();
    let previous = format!("{ANNOTATION_MANAGED_LABELS}{PREVIOUS_SUFFIX}");
    let annotations = json!({
        "kubebid.io/applied": applied,
        ANNOTATION_MANAGED_LABELS: json!([RESTRICTED, ROLE]).to_string(),
        previous: json!({RESTRICTED: "yes", ROLE: ""}).to_string(),
    });
    patch(&story, &name, json!({"metadata": {"annotations": annotations, "labels": {LABEL_SLOT: null}}}))
        .await;
    let is_restored = |node: &Node| {
        node.labels().contains_key(LABEL_SLOT)
            && node.annotations().get("kubebid.io/applied").is_some_and(|it| *it != applied)
    };
    until(&story, &name, "the node is registered again", is_restored).await;

    // What the BidNode gives up goes, and nothing else.
    story.change("gpu", json!({"nodeSelector": {"pool": "gpu", "team": null}, "taints": []})).await;
    let node = until(&story, &name, "the BidNode's taint is gone", |node| !has_taint(node, "gpu")).await;
    let labels = node.labels();
    assert_eq!((labels.get("team"), labels.get("pool").map(String::as_str)), (None, Some("gpu")));
    assert_eq!((labels.get(RESTRICTED).map(String::as_str), labels.get(ROLE)), (Some("no"), None));
    assert!(has_taint(&node, "dedicated"));
    assert_eq!(story.market.all_bids().await.len(), 1);
}

#[tokio::test]
async fn what_v1_keeps_for_v2beta1_does_not_count_while_v2beta1_is_not_served() {
    let story = Story::begin("keptbyhand").await;
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 1, 1.0).await;
    let types = json!(["h100-8x", "a100-8x"]);
    let kept = json!({"value": types, "while": {"/spec/instanceTypes": ["h100-8x"]}});
    let kept = json!({"v2beta1": {"/spec/instanceTypes": kept}}).to_string();
    let bidnode = json!({
        "apiVersion": "kubebid.io/v1", "kind": "BidNode",
        "metadata": {"name": "gpu", "namespace": story.namespace, "annotations": {"kubebid.io/conversion-data": kept}},
        "spec": {"instanceType": "h100-8x", "maxBid": 4.5},
    });
    let object: kubebid_operator::api::BidNode = serde_json::from_value(bidnode.clone()).unwrap();
    assert_eq!(
        json!(kubebid_operator::conversion::hub(&object).spec.instance_types),
        types,
        "the annotation is right"
    );
    story.plane.apply(&bidnode.to_string());
    story.running("gpu", 1).await;
    let slot: BidSlot = story.slots().get("gpu-0").await.unwrap();
    assert_eq!(slot.spec.instance_types, ["h100-8x"]);
}
