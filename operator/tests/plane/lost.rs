//! What people, a restore or a policy takes away from the operator costs no second node, and is said.

use crate::story::Story;
use kube::api::{Patch, PatchParams};
use kubebid_operator::api::{BidNodePhase, BidNodeStatus};
use serde_json::{Value, json};
use std::time::Duration;

const EU: &str = "h100-8x/eu-west";

fn spec(nodes: u32) -> Value {
    json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": nodes, "maxNodes": nodes})
}

/// Removes the status of a slot, as a restore of a backup does.
async fn wipe(story: &Story, slot: &str) {
    let patch = serde_json::from_value(json!([{"op": "remove", "path": "/status"}])).unwrap();
    story.slots().patch_status(slot, &PatchParams::default(), &Patch::Json::<()>(patch)).await.unwrap();
}

#[tokio::test]
async fn a_slot_whose_status_is_lost_goes_on_with_its_bid_and_its_node() {
    let mut story = Story::begin("wiped").await;
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 1, 1.0).await;
    story.bid("gpu", spec(2)).await;
    let half = |status: &BidNodeStatus| status.active_nodes == 1 && status.pending_bids == 1;
    let bidnode = story.until("gpu", "one runs and one waits", half).await;
    let node = story.nodes_of(&bidnode).await[0].metadata.uid.clone();
    // At another price the bid of a first attempt is another one.
    story.change("gpu", json!({"maxBid": 4.0})).await;
    for restarts in [false, true] {
        if restarts {
            story.operator = None;
        }
        for slot in ["gpu-0", "gpu-1"] {
            wipe(&story, slot).await;
        }
        if restarts {
            story.start_operator(&[]);
        }
        story
            .eventually("both slots have their status", || async {
                let slots = story.slots().list(&Default::default()).await.unwrap().items;
                let phases = slots.iter().filter_map(|slot| Some(slot.status.as_ref()?.bid));
                phases.filter(Option::is_some).count() == 2
            })
            .await;
        let bidnode = story.until("gpu", "as before", half).await;
        assert_eq!(story.nodes_of(&bidnode).await[0].metadata.uid, node, "the node is the same");
        assert_eq!(story.market.all_bids().await.len(), 2);
        assert_eq!(story.market.live_bids().await.len(), 2);
    }
}

#[tokio::test]
async fn a_bidnode_has_a_status_although_its_slots_are_refused() {
    let story = Story::begin("refusedslots").await;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": story.namespace},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["kubebid.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["bidslots"],
            }]},
            "validations": [{"expression": "false", "message": "no slots here"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": story.namespace},
        "spec": {
            "policyName": story.namespace, "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": story.namespace}}},
        },
    });
    story.plane.apply(&policy.to_string());
    story.plane.apply(&binding.to_string());
    // A policy takes a moment to count.
    story
        .eventually("the policy counts", || async {
            let slot = json!({"apiVersion": "kubebid.io/v1", "kind": "BidSlot", "metadata": {"name": "probe"},
                "spec": {"instanceType": "h100-8x"}});
            let params = kube::api::PostParams { dry_run: true, ..Default::default() };
            story.slots().create(&params, &serde_json::from_value(slot).unwrap()).await.is_err()
        })
        .await;
    story.bid("gpu", spec(1)).await;
    let says = |status: &BidNodeStatus| {
        status.phase == BidNodePhase::Pending && status.observed_generation == Some(1)
    };
    story.until("gpu", "it has a status", says).await;
    // It is kept up to date.
    story.change("gpu", json!({"maxBid": 4.0})).await;
    story.until("gpu", "the status is of the change", |status| status.observed_generation == Some(2)).await;
    assert!(story.market.all_bids().await.is_empty());
}

#[tokio::test]
async fn an_annotation_that_is_no_length_of_time_is_a_condition() {
    let story = Story::begin("annotation").await;
    story.bid("gpu", spec(1)).await;
    story.annotate(&story.bidnodes(), "gpu", "kubebid.io/drain-within", "ten").await;
    let said = story.says("gpu", "AnnotationsValid", "False", "InvalidAnnotation").await;
    assert!(said.starts_with("annotation kubebid.io/drain-within is \"ten\""), "{said}");
    story.annotate(&story.bidnodes(), "gpu", "kubebid.io/drain-within", "10m").await;
    let is_right =
        |status: &BidNodeStatus| !status.conditions.iter().any(|it| it.type_ == "AnnotationsValid");
    story.until("gpu", "the condition is gone", is_right).await;
}
