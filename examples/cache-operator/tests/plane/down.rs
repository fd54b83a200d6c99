//! The table of the README: what works while no replica of the operator runs.

use crate::story::Story;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kubebid_cache_operator::api::v1beta1::Cache;
use kubebid_cache_operator::api::{Phase, v1alpha1};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn without_a_replica_v1beta1_works_and_v1alpha1_does_not() {
    let mut story = Story::with_webhooks("down").await;
    story.create("shop", json!({"engine": "valkey", "memory": "64Mi"})).await;
    story.until_phase("shop", Phase::Ready).await;
    for mut replica in story.webhooks.take().unwrap().replicas {
        replica.signal("KILL");
        replica.ended().await;
    }
    let caches = story.api::<Cache>();

    // v1beta1: reads, writes, server-side apply, the scale subresource, CEL rules and defaults of the schema.
    assert_eq!(caches.list(&ListParams::default()).await.unwrap().items.len(), 1);
    story.patch::<Cache>("shop", json!({"spec": {"memory": "128Mi"}})).await;
    let cache = json!({
        "apiVersion": "infra.archon.dev/v1beta1", "kind": "Cache", "metadata": {"name": "sessions"},
        "spec": {"engine": "memcached", "memory": "64Mi", "tls": {"enabled": true, "secretName": "absent"}},
    });
    let apply = PatchParams::apply("a-person");
    let sessions = caches.patch("sessions", &apply, &Patch::Apply(cache)).await.unwrap();
    assert_eq!(sessions.spec.eviction_policy.word(), "allkeys-lru");
    story.kubectl(&["scale", "cache/shop", "--replicas=4"]).unwrap();
    let refusal = story.kubectl(&["scale", "cache/shop", "--replicas=11"]).unwrap_err();
    assert!(refusal.contains("less than or equal to 10"), "{refusal}");
    // No defaults of the webhook.
    assert_eq!(sessions.spec.replicas, None);
    // v1alpha1: nothing.
    let refusal = story.api::<v1alpha1::Cache>().get("shop").await.unwrap_err().to_string();
    assert!(refusal.contains("conversion webhook"), "{refusal}");
    // Garbage collection.
    let owner = json!({
        "apiVersion": "infra.archon.dev/v1beta1", "kind": "Cache", "name": "sessions", "uid": sessions.metadata.uid,
    });
    let owned = json!({"metadata": {"name": "owned", "ownerReferences": [owner]}});
    story.make::<ConfigMap>(owned).await;
    story.delete::<Cache>("sessions").await;
    story.until_gone::<ConfigMap>("owned").await;

    // The operator does the rest when it is back.
    story.create("later", json!({"engine": "valkey", "memory": "64Mi"})).await;
    story.start_operator(&["--alone"]);
    assert_eq!(story.until_phase("later", Phase::Ready).await.spec.replicas, Some(3));
    assert_eq!(story.until_phase("shop", Phase::Ready).await.spec.replicas, Some(4));
}

#[tokio::test]
async fn a_namespace_of_caches_is_deleted_after_uninstall() {
    let mut story = Story::begin("abandoned").await;
    story.create("shop", json!({"engine": "memcached", "memory": "64Mi"})).await;
    story.until_phase("shop", Phase::Ready).await;
    story.operator = None;
    // The deletion waits for the finalizer, and the documented command removes it.
    story.plane.get(&["delete", "namespace", story.namespace, "--wait=false"]);
    story.until::<Cache>("shop", |cache| cache.metadata.deletion_timestamp.is_some()).await;
    assert_eq!(story.uninstall(), "abandoned/shop has no finalizer\n");
    story.plane.get(&["wait", "--for=delete", "namespace", story.namespace, "--timeout=180s"]);
}
