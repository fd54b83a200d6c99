//! Both versions, defaults and warnings by the webhooks of the operator.

use crate::story::Story;
use kubebid_cache_operator::api::v1beta1::Cache;
use kubebid_cache_operator::api::{Phase, v1alpha1};
use serde_json::{Value, json};
use std::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_both_versions_share_caches_lose_nothing_are_warned_and_move() {
    let story = Story::with_webhooks("versions").await;
    let high = json!({"engine": "valkey", "memory": "64Mi", "highAvailability": {"enabled": true}});
    let cache = story.create("shop", high).await;
    let high = cache.spec.high_availability.clone();
    assert_eq!(high.as_ref().map(|it| it.auto_failover), Some(true), "the default");
    let older = story.api::<v1alpha1::Cache>().get("shop").await.unwrap();
    assert_eq!(older.spec.replicas, 3);
    story.kubectl(&["scale", "caches.v1alpha1.infra.archon.dev/shop", "--replicas=4"]).unwrap();
    story.patch::<v1alpha1::Cache>("shop", json!({"spec": {"memory": "128Mi"}})).await;
    story.until_phase("shop", Phase::Ready).await;
    let spec = story.api::<Cache>().get("shop").await.unwrap().spec;
    assert_eq!((spec.replicas, &spec.memory[..], spec.high_availability), (Some(4), "128Mi", high));

    // A client of v1alpha1 scales below what high availability needs, which its rules do not know: it is warned, nothing is
    // lost, the operator goes on, and the next one who changes the specification in v1beta1 has to decide.
    let scale = |replicas: u8| {
        let patch = json!({"spec": {"replicas": replicas}}).to_string();
        let patched = [
            "-n",
            story.namespace,
            "patch",
            "caches.v1alpha1.infra.archon.dev",
            "shop",
            "--type=merge",
            "-p",
            &patch,
        ];
        let output = story.plane.kubectl(&patched);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let warned = scale(2);
    assert!(
        warned.contains("Warning: highAvailability needs at least 3 replicas, and there are 2"),
        "{warned}"
    );
    let cache = story.until_phase("shop", Phase::Ready).await;
    assert_eq!((cache.spec.replicas, cache.spec.is_highly_available()), (Some(2), true));
    assert_eq!(cache.status.unwrap().ready_replicas, 2);
    let patch = ["patch", "cache", "shop", "--type=merge", "-p", r#"{"spec": {"memory": "64Mi"}}"#];
    let refusal = story.kubectl(&patch).unwrap_err();
    assert!(refusal.contains("highAvailability needs at least 3 replicas"), "{refusal}");
    assert!(!scale(3).contains("Warning"));
    story.kubectl(&patch).unwrap();

    // Two field managers in two versions.
    let apply = |version: &str, manager: &str, spec: Value| {
        let version = format!("infra.archon.dev/{version}");
        let cache =
            json!({"apiVersion": version, "kind": "Cache", "metadata": {"name": "both"}, "spec": spec});
        let manager = format!("--field-manager={manager}");
        let arguments = ["apply", "--server-side", "--force-conflicts", &manager, "-f", "-"];
        story.kubectl_reading(&arguments, &cache.to_string()).unwrap();
    };
    apply("v1alpha1", "one", json!({"engine": "redis", "memory": "64Mi", "replicas": 3}));
    let more = json!({"engine": "redis", "evictionPolicy": "allkeys-lfu", "memory": "64Mi", "highAvailability": {"enabled": true}});
    apply("v1beta1", "two", more);
    apply("v1alpha1", "one", json!({"engine": "redis", "memory": "64Mi", "replicas": 5}));
    let spec = story.api::<Cache>().get("both").await.unwrap().spec;
    assert_eq!(
        (spec.replicas, spec.eviction_policy.word(), spec.is_highly_available()),
        (Some(5), "allkeys-lfu", true)
    );

    let refusal =
        story.try_create("v1alpha1", "least", json!({"engine": "redis", "memory": "64Mi"})).unwrap_err();
    assert!(refusal.contains("redis needs at least 3 replicas: write replicas: 3 or more"), "{refusal}");

    // Objects of an older definition move into the newer version.
    story.store("v1alpha1");
    story.create("old", json!({"engine": "redis", "memory": "64Mi"})).await;
    story.store("v1beta1");
    assert!(!migrate(&story, &["--check"]).0, "some may be stored in v1alpha1");
    let (is_done, said) = migrate(&story, &[]);
    assert!(is_done && said.contains("objects are written"), "{said}");
    assert_eq!(migrate(&story, &["--check"]), (true, MIGRATED.to_owned()));
    assert_eq!(story.api::<Cache>().get("old").await.unwrap().spec.replicas, Some(3));
}

/// The answer if there is nothing to migrate.
const MIGRATED: &str = "stored: v1beta1; objects may be in v1beta1\n";

/// Runs the command `migrate`. Returns true if it succeeds, and what it says.
fn migrate(story: &Story, more: &[&str]) -> (bool, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cache-operator"));
    let done =
        program.arg("migrate").args(more).env("KUBECONFIG", story.plane.kubeconfig()).output().unwrap();
    (done.status.success(), String::from_utf8_lossy(&done.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_from_before_v1beta1_came_is_one_of_both_versions() {
    let mut story = Story::with_v1alpha1("before").await;
    let spec = json!({"engine": "redis", "memory": "64Mi", "replicas": 4});
    story.try_create("v1alpha1", "old", spec).unwrap();
    story.add_webhooks().await;
    let cache = story.until_phase("old", Phase::Ready).await;
    assert_eq!((cache.spec.replicas, cache.spec.is_highly_available()), (Some(4), false));
    story.kubectl(&["scale", "caches.v1alpha1.infra.archon.dev/old", "--replicas=3"]).unwrap();
    story.patch::<Cache>("old", json!({"spec": {"highAvailability": {"enabled": true}}})).await;
    assert_eq!(story.api::<v1alpha1::Cache>().get("old").await.unwrap().spec.replicas, 3);
    assert!(!migrate(&story, &["--check"]).0, "it may be stored in v1alpha1");
    assert!(migrate(&story, &[]).0);
    assert_eq!(migrate(&story, &["--check"]), (true, MIGRATED.to_owned()));
}
