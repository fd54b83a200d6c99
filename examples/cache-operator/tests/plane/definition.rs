//! Objects that the API server accepts as a Cache, and the columns that kubectl shows.

use crate::story::Story;
use kubebid_cache_operator::api::v1beta1::Cache;
use serde_json::{Value, json};

/// Returns a specification with more fields, or other ones.
fn with(mut spec: Value, more: Value) -> Value {
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

#[tokio::test]
async fn the_smallest_redis_of_v1alpha1_is_refused_with_a_message_that_says_what_to_write() {
    let story = Story::without_operator("smallest").await;
    let smallest = json!({"engine": "redis", "memory": "64Mi"});
    let refusal = story.try_create("v1alpha1", "shop", smallest.clone()).unwrap_err();
    assert!(refusal.contains("redis needs at least 3 replicas: write replicas: 3 or more"), "{refusal}");
    story.try_create("v1alpha1", "shop", with(smallest.clone(), json!({"replicas": 3}))).unwrap();
    story.try_create("v1beta1", "other", smallest).unwrap();
    for engine in ["memcached", "valkey"] {
        story.try_create("v1alpha1", engine, json!({"engine": engine, "memory": "64Mi"})).unwrap();
        assert_eq!(story.api::<Cache>().get(engine).await.unwrap().spec.replicas, Some(1));
    }
}

#[tokio::test]
async fn what_must_hold_is_refused_otherwise_in_both_versions() {
    let story = Story::without_operator("refused").await;
    let redis = json!({"engine": "redis", "memory": "64Mi", "replicas": 3});
    let memcached = json!({"engine": "memcached", "memory": "64Mi", "replicas": 1});
    let refused = |version: &str, spec: Value, message: &str| {
        let refusal = story.try_create(version, "bad", spec.clone()).expect_err("it is refused");
        assert!(refusal.contains(message), "{spec}: {refusal}");
    };
    for version in ["v1alpha1", "v1beta1"] {
        refused(version, with(redis.clone(), json!({"replicas": 2})), "redis needs at least 3 replicas");
        refused(version, with(redis.clone(), json!({"replicas": 0})), "greater than or equal to 1");
        refused(version, with(redis.clone(), json!({"replicas": 11})), "less than or equal to 10");
        refused(version, with(redis.clone(), json!({"engine": "keydb"})), "Unsupported value");
        for memory in ["64", "64M", "1.5Gi", "-1Gi", "", "Gi", "1Ti", "64mi"] {
            refused(version, with(redis.clone(), json!({"memory": memory})), "should match");
        }
        for memory in ["0Gi", "15Mi", "0000Mi"] {
            refused(version, with(redis.clone(), json!({"memory": memory})), "memory must be at least 16Mi");
        }
        refused(version, json!({"engine": "redis", "replicas": 3}), "spec.memory: Required value");
        refused(
            version,
            with(redis.clone(), json!({"tls": {"secretName": "a"}})),
            "tls.secretName needs tls.enabled",
        );
        refused(
            version,
            with(redis.clone(), json!({"tls": {"enabled": true}})),
            "tls.enabled needs tls.secretName",
        );
        refused(version, with(redis.clone(), json!({"evictionPolicy": "newest"})), "Unsupported value");
        let policy = json!({"evictionPolicy": "volatile-ttl"});
        refused(version, with(memcached.clone(), policy), "memcached knows two policies");
    }
    let high = json!({"highAvailability": {"enabled": true}});
    refused("v1beta1", with(memcached.clone(), high.clone()), "memcached has no highAvailability");
    let valkey = json!({"engine": "valkey", "memory": "64Mi", "replicas": 2});
    refused("v1beta1", with(valkey.clone(), high.clone()), "highAvailability needs at least 3 replicas");
    story
        .try_create("v1beta1", "off", with(memcached, json!({"highAvailability": {"enabled": false}})))
        .unwrap();
    story.try_create("v1beta1", "none", with(valkey, json!({"highAvailability": null}))).unwrap();
    story.try_create("v1beta1", &"a".repeat(46), redis.clone()).unwrap();
    let refusal = story.try_create("v1beta1", &"a".repeat(47), redis.clone()).unwrap_err();
    assert!(refusal.contains("at most 46 characters"), "{refusal}");
    let refusal = story.try_create("v1beta1", "1a", redis).unwrap_err();
    assert!(refusal.contains("that of a Service"), "{refusal}");
}

#[tokio::test]
async fn the_engine_of_a_cache_cannot_change() {
    let story = Story::without_operator("engine").await;
    story.create("shop", json!({"engine": "redis", "memory": "64Mi"})).await;
    let change = ["patch", "cache", "shop", "--type=merge", "-p", r#"{"spec": {"engine": "valkey"}}"#];
    let refusal = story.kubectl(&change).unwrap_err();
    assert!(refusal.contains("engine cannot change"), "{refusal}");
}

#[tokio::test]
async fn kubectl_shows_caches_and_scales_them() {
    let story = Story::without_operator("shown").await;
    let spec = json!({"engine": "redis", "memory": "64Mi", "replicas": 3});
    let cache = story.create("shop", spec).await;
    assert_eq!(cache.spec.eviction_policy.word(), "allkeys-lru", "the default");
    let shown = story.kubectl(&["get", "ch"]).unwrap();
    let words: Vec<_> = shown.split_whitespace().collect();
    assert_eq!(
        words[..10],
        ["NAME", "ENGINE", "MEMORY", "REPLICAS", "PHASE", "AGE", "shop", "redis", "64Mi", "3"]
    );
    assert!(story.kubectl(&["get", "all"]).unwrap().contains("cache.infra.archon.dev/shop"));
    story.kubectl(&["scale", "cache/shop", "--replicas=5"]).unwrap();
    assert_eq!(story.api::<Cache>().get("shop").await.unwrap().spec.replicas, Some(5));
    story.kubectl(&["scale", "caches.v1alpha1.infra.archon.dev/shop", "--replicas=4"]).unwrap();
    assert_eq!(story.api::<Cache>().get("shop").await.unwrap().spec.replicas, Some(4));
    let explained = story.kubectl(&["explain", "cache.spec.highAvailability.autoFailover"]).unwrap();
    assert!(explained.contains("Sentinels choose another server"), "{explained}");
}
