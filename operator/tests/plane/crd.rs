//! What the API server makes of a BidNode before the operator sees it.

use crate::story::{self, Story};
use kubebid_operator::api::BidStrategy;
use kubebid_operator::crds::{self, CrdOptions};
use serde_json::{Value, json};

#[tokio::test]
async fn defaults_are_filled_in() {
    let story = Story::without_operator("defaults").await;
    let node = story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5})).await;
    assert_eq!((node.spec.min_nodes, node.spec.max_nodes), (1, 10));
    assert_eq!(node.spec.bid_strategy, BidStrategy::Balanced);
}

#[tokio::test]
async fn nonsense_is_refused_with_the_field_to_blame() {
    let story = Story::without_operator("nonsense").await;
    let refused = async |change: Value, blame: &str| {
        let mut spec = json!({"instanceType": "h100-8x", "maxBid": 4.5});
        for (key, value) in change.as_object().unwrap() {
            spec[key] = value.clone();
        }
        match story.try_bid("gpu", spec).await {
            Err(kube::Error::Api(status)) => {
                assert_eq!(status.code, 422, "{}", status.message);
                assert!(status.message.contains(blame), "{} should blame {blame}", status.message);
            }
            other => panic!("{change} is taken: {other:?}"),
        }
    };
    refused(json!({"minNodes": 5, "maxNodes": 2}), "spec.minNodes").await;
    refused(json!({"maxBid": 0.001}), "spec.maxBid").await;
    refused(json!({"maxBid": 0}), "maxBid must be at least 0.01").await;
    refused(json!({"instanceType": "abacus"}), "spec.instanceType").await;
    refused(json!({"nodeSelector": {"kubernetes.io/x": "1"}}), "spec.nodeSelector").await;
    refused(json!({"nodeSelector": {"a.b.k8s.io/x": "1"}}), "spec.nodeSelector").await;
    refused(json!({"nodeSelector": {"kubebid.io/x": "1"}}), "spec.nodeSelector").await;
    refused(json!({"taints": [{"key": "node.kubernetes.io/x", "effect": "NoSchedule"}]}), "spec.taints")
        .await;
    let long = "x".repeat(64);
    for key in ["", "-a", "a-", "a b", "a/b/c", "/a", "a/", "A/b", "a..b/c", "ä", long.as_str()] {
        refused(json!({"nodeSelector": {key: "1"}}), "spec.nodeSelector").await;
        refused(json!({"taints": [{"key": key, "effect": "NoSchedule"}]}), "spec.taints").await;
    }
    let far = format!("{}/x", ["a".repeat(63).as_str(); 4].join("."));
    refused(json!({"nodeSelector": {far.as_str(): "1"}}), "spec.nodeSelector").await;
    refused(json!({"taints": [{"key": far, "effect": "NoSchedule"}]}), "spec.taints").await;
    for value in ["-a", "a-", "a b", "a/b", "ä", long.as_str()] {
        refused(json!({"nodeSelector": {"a": value}}), "spec.nodeSelector").await;
        refused(json!({"taints": [{"key": "a", "value": value, "effect": "NoSchedule"}]}), "spec.taints")
            .await;
    }
    refused(json!({"region": "eu west"}), "spec.region").await;
    refused(json!({"gang": true, "minNodes": 1, "maxNodes": 1}), "spec.minNodes").await;
    refused(json!({"gang": true, "minNodes": 2}), "spec.maxNodes").await;
    let gang = json!({"gang": true, "minNodes": 2, "maxNodes": 2, "minRequestedGpus": 8});
    refused(gang, "spec.minRequestedGpus").await;
    let twice =
        json!([{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "1", "effect": "NoSchedule"}]);
    refused(json!({"taints": twice}), "spec.taints").await;
}

#[tokio::test]
async fn only_the_prefixes_of_others_are_reserved() {
    let story = Story::without_operator("prefixes").await;
    let far = format!("{}.{}/x", ["a".repeat(63).as_str(); 3].join("."), "a".repeat(61));
    let labels = json!({
        "mykubernetes.io/x": "1", "pool": "gpu", "kubernetes.io.example.com/x": "1", "A_b.c-d": "", far.as_str(): "1_a.B",
    });
    let taints = json!([{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]);
    story
        .bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 1, "nodeSelector": labels, "taints": taints}))
        .await;
}

#[tokio::test]
async fn the_type_and_the_region_stay() {
    let story = Story::without_operator("immutable").await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5})).await;
    for spec in [json!({"instanceType": "a100-8x"}), json!({"region": "eu-west"})] {
        let patch = kube::api::Patch::Merge(json!({"spec": spec}));
        let refused = story.bidnodes().patch("gpu", &Default::default(), &patch).await;
        assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 422), "{refused:?}");
    }
}

#[tokio::test]
async fn a_gang_stays_a_gang_of_as_many_nodes() {
    let story = Story::without_operator("gangs").await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2, "maxNodes": 2})).await;
    let gang = json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2, "maxNodes": 2, "gang": true});
    story.bid("gang", gang.clone()).await;
    assert!(story.try_bid(&"n".repeat(43), gang).await.is_err(), "the name is too long");
    let changes = [
        ("gpu", json!({"gang": true})),
        ("gang", json!({"gang": false})),
        ("gang", json!({"minNodes": 3, "maxNodes": 3})),
        ("gang", json!({"maxNodes": 3})),
    ];
    for (name, spec) in changes {
        let patch = kube::api::Patch::Merge(json!({"spec": spec}));
        let refused = story.bidnodes().patch(name, &Default::default(), &patch).await;
        assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 422), "{refused:?}");
    }
    story.change("gang", json!({"maxBid": 5})).await;
}

#[test]
fn the_definitions_are_applied_without_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("crds.yaml");
    std::fs::write(&file, crds::yaml(&CrdOptions::default()).unwrap()).unwrap();
    let applied = story::plane().kubectl(&["apply", "--dry-run=server", "-f", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&applied.stderr);
    assert!(applied.status.success(), "{said}");
    assert!(!said.contains("unrecognized format"), "{said}");
}
