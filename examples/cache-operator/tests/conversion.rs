//! Round trips of random Caches between the versions, with and without edits between.

use kubebid_cache_operator::conversion::conversions;
use kubebid_testkit::for_each_seed;
use serde_json::{Value, json};

const ALPHA: &str = "infra.archon.dev/v1alpha1";
const BETA: &str = "infra.archon.dev/v1beta1";
/// The number of seeds of a check.
const SEEDS: u64 = 3_000;

fn convert(object: &Value, version: &str) -> Value {
    conversions().convert(object.clone(), version).unwrap()
}

fn one_of(random: &mut fastrand::Rng, values: &[Value]) -> Value {
    values[random.usize(..values.len())].clone()
}

/// Returns a random value of a field; None if it is to be absent.
fn value(random: &mut fastrand::Rng, engine: &Value, field: &str) -> Option<Value> {
    let secret = json!(format!("keys-{}", random.u8(..3)));
    Some(match field {
        "memory" => json!(format!("{}{}", random.u16(16..), if random.bool() { "Mi" } else { "Gi" })),
        "replicas" => json!(random.u8(1..=10)),
        "evictionPolicy" => {
            one_of(random, &["noeviction", "allkeys-lru", "volatile-ttl"].map(|it| json!(it)))
        }
        "tls" => one_of(random, &[json!({"enabled": false}), json!({"enabled": true, "secretName": secret})]),
        // A memcached has none, by the rules of v1beta1.
        "highAvailability" => {
            json!({"enabled": engine != "memcached" && random.bool(), "autoFailover": random.bool()})
        }
        _ => return None,
    })
}

/// Returns a random Cache of a version.
fn cache(random: &mut fastrand::Rng, version: &str) -> Value {
    let engine = one_of(random, &["redis", "memcached", "valkey"].map(|it| json!(it)));
    let mut spec = json!({"engine": engine, "memory": value(random, &engine, "memory")});
    let fields = ["evictionPolicy", "tls", "replicas", "highAvailability"];
    for field in fields.into_iter().filter(|field| *field != "highAvailability" || version == BETA) {
        // The API server fills in what has a default.
        let has_default = field == "evictionPolicy" || field == "replicas" && version == ALPHA;
        if has_default || random.bool() {
            spec[field] = value(random, &engine, field).unwrap();
        }
    }
    let mut metadata = json!({"name": "shop", "namespace": "n", "uid": "u", "generation": random.u8(..)});
    if random.bool() {
        metadata["labels"] = json!({"a": random.u8(..).to_string()});
        metadata["annotations"] = json!({"b": random.u8(..).to_string()});
    }
    let mut cache = json!({"apiVersion": version, "kind": "Cache", "metadata": metadata, "spec": spec});
    if random.bool() {
        let phase = one_of(random, &["Pending", "Ready", "Failed"].map(|it| json!(it)));
        let condition = json!({
            "type": "Ready", "status": "False", "reason": "ReplicasNotReady", "message": "",
            "lastTransitionTime": "2026-11-23T00:00:00Z",
        });
        let conditions = Vec::from_iter(random.bool().then_some(condition));
        let ready = random.u8(..4);
        cache["status"] =
            json!({"phase": phase, "readyReplicas": ready, "endpoint": "e", "conditions": conditions});
    }
    cache
}

#[test]
fn a_cache_is_the_same_after_it_was_converted_there_and_back() {
    for_each_seed(SEEDS, |random| {
        for (own, other) in [(ALPHA, BETA), (BETA, ALPHA)] {
            let cache = cache(random, own);
            let there = convert(&cache, other);
            assert_eq!(convert(&there, own).to_string(), cache.to_string(), "by way of {there:#}");
        }
    });
}

#[test]
fn a_client_of_the_other_version_changes_what_it_edits_and_nothing_else() {
    for_each_seed(SEEDS, |random| {
        for (own, other) in [(ALPHA, BETA), (BETA, ALPHA)] {
            let cache = cache(random, own);
            let mut edited = convert(&cache, other);
            let field = ["memory", "replicas", "evictionPolicy", "tls"][random.usize(..4)];
            let new = value(random, &cache["spec"]["engine"], field).unwrap();
            if edited["spec"][field] == new {
                // It has changed nothing.
                continue;
            }
            edited["spec"][field] = new.clone();
            let mut wanted = cache.clone();
            wanted["spec"][field] = new;
            let back = convert(&edited, own);
            assert_eq!(back.to_string(), wanted.to_string(), "{field} of {edited:#}");
        }
    });
}

#[test]
fn v1alpha1_shows_the_replicas_that_a_cache_has_by_default_and_keeps_the_rest() {
    let high = json!({"enabled": true, "autoFailover": true});
    let spec = json!({"engine": "redis", "memory": "64Mi", "evictionPolicy": "allkeys-lru", "highAvailability": high});
    let cache = json!({"apiVersion": BETA, "kind": "Cache", "metadata": {"name": "shop"}, "spec": spec});
    let older = convert(&cache, ALPHA);
    let shown = json!({"engine": "redis", "memory": "64Mi", "replicas": 3, "evictionPolicy": "allkeys-lru"});
    assert_eq!(older["spec"], shown);
    let annotations = older["metadata"]["annotations"].as_object().unwrap();
    let kept = annotations.keys().filter(|key| key.starts_with("infra.archon.dev/conversion-data"));
    assert_eq!(kept.count(), 3, "the two fields that v1alpha1 cannot say, and that it shows replicas");
    assert_eq!(convert(&older, BETA), cache);
}

#[test]
fn an_annotation_does_not_bring_what_the_rules_of_v1beta1_forbid() {
    let kept = json!({"v1beta1": {"/spec/highAvailability": {"value": {"enabled": true}, "while": {"/spec/highAvailability": null}}}});
    let cache = |engine: &str| {
        let annotations = json!({"infra.archon.dev/conversion-data": kept.to_string()});
        let metadata = json!({"name": "shop", "annotations": annotations});
        let spec =
            json!({"engine": engine, "memory": "64Mi", "replicas": 2, "evictionPolicy": "allkeys-lru"});
        json!({"apiVersion": ALPHA, "kind": "Cache", "metadata": metadata, "spec": spec})
    };
    let available =
        |engine: &str| convert(&cache(engine), BETA)["spec"]["highAvailability"]["enabled"].clone();
    assert_eq!(available("memcached"), Value::Null);
    // A client of v1alpha1 that scales below three replicas takes no protection away.
    assert_eq!(available("valkey"), true);
}

#[test]
fn a_client_of_v1alpha1_stores_nothing_that_v1alpha1_does_not_show() {
    let spec = json!({"engine": "valkey", "memory": "64Mi", "replicas": 3, "evictionPolicy": "allkeys-lru"});
    let shown = json!({"apiVersion": ALPHA, "kind": "Cache", "metadata": {"name": "shop"}, "spec": spec});
    let plain = convert(&shown, BETA);
    for (field, value) in [
        ("engine", json!("memcached")),
        ("memory", json!("\u{20ac}")),
        ("replicas", json!(100_000)),
        ("evictionPolicy", json!("none")),
        ("tls", json!({"enabled": true, "secretName": "a"})),
    ] {
        let pointer = format!("/spec/{field}");
        let belongs = json!({pointer.clone(): spec[field]});
        let kept = json!({"v1beta1": {pointer: {"value": value, "while": belongs}}});
        let mut spoiled = shown.clone();
        spoiled["metadata"]["annotations"] = json!({"infra.archon.dev/conversion-data": kept.to_string()});
        assert_eq!(convert(&spoiled, BETA), plain, "{field}");
    }
}
