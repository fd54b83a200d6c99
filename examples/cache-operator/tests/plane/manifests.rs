//! `manifests/`: the definition is that of the types, and the rights are those that are used.

use crate::story::Story;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kubebid_cache_operator::api::Phase;
use kubebid_cache_operator::api::v1beta1::Cache;
use serde_json::json;
use std::path::Path;
use std::process::Command;

#[test]
fn the_definition_is_what_the_program_prints() {
    let printed = Command::new(env!("CARGO_BIN_EXE_cache-operator")).arg("crds").output().unwrap();
    let kept = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/crd.yaml")).unwrap();
    assert!(
        kept == printed.stdout,
        "the types have changed: cargo run -p kubebid-cache-operator -- crds > examples/cache-operator/manifests/crd.yaml"
    );
}

/// Rights that no request of this story shows: to write the next authority, after twenty days, to count the same event again, after
/// more than two minutes and less than six, and those that the admission plugin OwnerReferencesPermissionEnforcement asks for.
const UNSEEN: [&str; 6] = [
    "delete /configmaps",
    "delete /services",
    "delete apps/statefulsets",
    "patch /secrets",
    "patch events.k8s.io/events",
    "update infra.archon.dev/caches/finalizers",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_of_the_manifests_are_enough_and_not_too_many() {
    let story = Story::with_webhooks("rights").await;
    let secret = json!({"metadata": {"name": "keys"}, "data": {}});
    story.make::<k8s_openapi::api::core::v1::Secret>(secret).await;
    let tls = json!({"enabled": true, "secretName": "keys"});
    story
        .create(
            "shop",
            json!({"engine": "valkey", "memory": "64Mi", "tls": tls, "highAvailability": {"enabled": true}}),
        )
        .await;
    story.until_phase("shop", Phase::Ready).await;
    story.patch::<Service>("shop-cache", json!({"spec": {"selector": null}})).await;
    story.until::<Service>("shop-cache", |it| it.spec.as_ref().unwrap().selector.is_some()).await;
    // Its owner had an older version.
    let owners = |it: &Service| it.metadata.owner_references.clone().unwrap_or_default();
    let service = story.until::<Service>("shop-cache", |_| true).await;
    let mut older = owners(&service);
    older[0].api_version = "infra.archon.dev/v1alpha1".to_owned();
    story.patch::<Service>("shop-cache", json!({"metadata": {"ownerReferences": older}})).await;
    let is_new =
        |it: &Service| owners(it).iter().all(|owner| owner.api_version == "infra.archon.dev/v1beta1");
    story.until::<Service>("shop-cache", is_new).await;
    story.patch::<ConfigMap>("shop-cache", json!({"data": null})).await;
    story.until::<ConfigMap>("shop-cache", |it| it.data.is_some()).await;
    story.patch::<StatefulSet>("shop-cache", json!({"spec": {"replicas": 0}})).await;
    story.until::<StatefulSet>("shop-cache", |it| it.spec.as_ref().unwrap().replicas == Some(3)).await;
    story.patch::<PodDisruptionBudget>("shop-cache", json!({"spec": {"maxUnavailable": 2}})).await;
    let is_restored = |it: &PodDisruptionBudget| json!(it.spec.as_ref().unwrap().max_unavailable) == 1;
    story.until::<PodDisruptionBudget>("shop-cache", is_restored).await;
    story.patch::<Cache>("shop", json!({"spec": {"highAvailability": null}})).await;
    story.until_gone::<PodDisruptionBudget>("shop-cache").await;
    story.until_phase("shop", Phase::Ready).await;
    story.delete::<Cache>("shop").await;
    story.until_gone::<Cache>("shop").await;
    let mut granted = story.plane.granted_rights(&["clusterrole", "cache-operator"]);
    assert!(granted.iter().all(|right| !right.ends_with(" /secrets")), "Secrets of all namespaces");
    granted.extend(story.plane.granted_rights(&["clusterrole", "cache-operator-tls"]));
    granted.extend(story.plane.granted_rights(&["role", "cache-operator", "-n", story.namespace]));
    let unused = || granted.difference(&story.account.used_rights()).cloned().collect::<Vec<_>>();
    story.eventually("all rights are used", || std::future::ready(unused() == UNSEEN)).await;
    assert_eq!(story.account.used_rights().difference(&granted).collect::<Vec<_>>(), Vec::<&String>::new());
    for replica in story.webhooks.unwrap().replicas {
        assert!(!replica.log().contains("orbidden"), "{}", replica.log());
    }
}

#[tokio::test]
async fn the_sample_becomes_ready_and_the_deployment_is_taken() {
    let story = Story::begin("sample").await;
    let sample = include_str!("../../manifests/sample.yaml");
    story.plane.apply(&sample.replace("namespace: default", &format!("namespace: {}", story.namespace)));
    story.until_phase("shop", Phase::Ready).await;
    let deployment = include_str!("../../manifests/deployment.yaml");
    let namespace = format!("namespace: {}", story.namespace);
    story.plane.apply(&deployment.replace("namespace: cache-system", &namespace));
}
