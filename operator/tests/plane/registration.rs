//! Labels and taints that the API server does not take.

use crate::story::Story;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use std::time::Duration;

const EU: &str = "h100-8x/eu-west";

/// Forbids nodes of this pool, and waits until that holds.
async fn forbid(story: &Story, pool: &str) {
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]});
    let expression = format!("object.metadata.?labels.pool.orValue('') != '{pool}'");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": pool},
        "spec": {
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": "no such pool"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": pool}, "spec": {"policyName": pool, "validationActions": ["Deny"]},
    });
    story.plane.apply(&policy.to_string());
    story.plane.apply(&binding.to_string());
    let probe = format!("probe-{pool}");
    let metadata = ObjectMeta { name: Some(probe.clone()), ..ObjectMeta::default() };
    story.nodes().create(&PostParams::default(), &Node { metadata, ..Node::default() }).await.unwrap();
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"pool": pool}}}));
    let tried = PatchParams { dry_run: true, ..PatchParams::default() };
    story
        .eventually("the policy holds", || async {
            let refused = story.nodes().patch(&probe, &tried, &labelled).await;
            matches!(refused, Err(kube::Error::Api(status)) if status.message.contains("no such pool"))
        })
        .await;
    story.nodes().delete(&probe, &DeleteParams::default()).await.unwrap();
}

/// Returns the passes over BidNodes that succeeded, by the metrics of an operator.
fn passes(metrics: &str) -> u64 {
    let counts =
        metrics.lines().filter_map(|line| line.strip_prefix("bidnode_reconcile_total{result=\"ok\"} "));
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn a_registration_that_fails_for_good_ends_the_lease_and_buys_no_other() {
    let mut story = Story::begin("refusedlabels").await;
    let pool = story.namespace.clone();
    forbid(&story, &pool).await;
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 4, 1.0).await;
    let spec = json!({"instanceType": "h100-8x", "maxBid": 4.5, "nodeSelector": {"pool": pool}});
    let node = story.bid("gpu", spec).await;
    let message = story.says("gpu", "NodesRegister", "False", "RegistrationRefused").await;
    assert!(message.contains("no such pool"), "{message}");
    story
        .eventually("the slot is gone, and what it held", || async {
            let slots = story.slots().list(&Default::default()).await.unwrap();
            slots.items.is_empty() && story.market.held().await.is_empty()
        })
        .await;
    story
        .eventually("people were told", || async {
            let told = ["get", "events", "--field-selector", "reason=RegistrationRefused", "-n", &pool];
            story.plane.get(&told).contains("no such pool")
        })
        .await;
    // Not even after a restart.
    story.start_operator(&[]);
    story
        .eventually("it was looked at", || async {
            let operator = story.operator.as_ref().unwrap();
            operator.log().contains("address=") && passes(&operator.page("/metrics").await) >= 2
        })
        .await;
    assert_eq!(story.market.all_bids().await.len(), 1);
    assert!(story.nodes_of(&node).await.is_empty());
    // Another pool is not forbidden.
    story.change("gpu", json!({"nodeSelector": {"pool": "another"}})).await;
    story.running("gpu", 1).await;
    story.says("gpu", "NodesRegister", "True", "Registered").await;
    assert_eq!(story.market.all_bids().await.len(), 2);
}

#[tokio::test]
async fn nodes_that_run_are_kept_when_other_labels_are_refused() {
    let story = Story::begin("keptlabels").await;
    let pool = story.namespace.clone();
    forbid(&story, &pool).await;
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 4, 1.0).await;
    let spec = json!({"instanceType": "h100-8x", "maxBid": 4.5, "nodeSelector": {"pool": "fine"}});
    story.bid("gpu", spec).await;
    story.running("gpu", 1).await;
    story.change("gpu", json!({"nodeSelector": {"pool": pool}})).await;
    story.says("gpu", "NodesRegister", "False", "RegistrationRefused").await;
    story.change("gpu", json!({"nodeSelector": {"pool": "fine"}})).await;
    story.says("gpu", "NodesRegister", "True", "Registered").await;
    story.running("gpu", 1).await;
    assert_eq!(story.market.all_bids().await.len(), 1);
}
