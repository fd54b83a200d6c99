//! The webhooks: conversion, the replicas of a Cache that has none, and warnings.

use crate::api::Engine;
use crate::conversion::conversions;
use kube::Client;
use kubebid_webhook::admission::Validate;
use kubebid_webhook::authority::Target;
use kubebid_webhook::server::Webhooks;
use serde::Deserialize as _;
use serde_json::{Value, json};

/// The name of the configurations of the webhooks.
const CONFIGURATION: &str = "cache-operator";

/// Returns the webhooks.
pub fn webhooks(_: Client) -> Webhooks {
    let webhooks = Webhooks::new().conversions(conversions());
    webhooks.mutate("/mutate", fill_in_replicas).validate("/validate", Warnings)
}

/// Returns the objects that say which authority the API server trusts.
pub fn targets() -> Vec<Target> {
    vec![
        Target::Definition("caches.infra.archon.dev".to_owned()),
        Target::Mutating(CONFIGURATION.to_owned()),
        Target::Validating(CONFIGURATION.to_owned()),
    ]
}

/// Gives replicas to a Cache that has none.
fn fill_in_replicas(cache: &mut Value) {
    let Some(spec) = cache.get_mut("spec").filter(|spec| spec["replicas"].is_null()) else { return };
    if let Ok(engine) = Engine::deserialize(&spec["engine"]) {
        spec["replicas"] = json!(engine.default_replicas());
    }
}

/// The warnings about a Cache. They come from the object alone: whoever reaches the port of the webhooks may ask, so that an
/// answer must tell nothing of what else is in the cluster.
struct Warnings;

impl Validate for Warnings {
    async fn warnings(&self, cache: Value) -> Vec<String> {
        too_few_replicas(&cache).into_iter().collect()
    }
}

/// Warns of a Cache that has come from v1alpha1 with too few replicas. The rules of v1beta1 would refuse it.
fn too_few_replicas(cache: &Value) -> Option<String> {
    let is_highly_available = cache.pointer("/spec/highAvailability/enabled") == Some(&Value::Bool(true));
    let replicas = cache.pointer("/spec/replicas")?.as_i64()?;
    (is_highly_available && replicas < 3)
        .then(|| format!("highAvailability needs at least 3 replicas, and there are {replicas}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_without_replicas_gets_those_of_its_engine() {
        let filled = |spec: Value| {
            let mut cache = json!({"spec": spec});
            fill_in_replicas(&mut cache);
            cache["spec"]["replicas"].clone()
        };
        assert_eq!(filled(json!({"engine": "redis"})), 3);
        assert_eq!(filled(json!({"engine": "valkey"})), 3);
        assert_eq!(filled(json!({"engine": "memcached"})), 1);
        assert_eq!(filled(json!({"engine": "redis", "replicas": 5})), 5);
        assert_eq!(filled(json!({"engine": "unknown"})), Value::Null);
    }

    #[test]
    fn too_few_replicas_for_high_availability_are_a_warning() {
        let warned = |spec: Value| too_few_replicas(&json!({"spec": spec})).is_some();
        let high = json!({"enabled": true});
        assert!(warned(json!({"replicas": 2, "highAvailability": high})));
        assert!(!warned(json!({"replicas": 3, "highAvailability": high})));
        assert!(!warned(json!({"highAvailability": high})));
        assert!(!warned(json!({"replicas": 2, "highAvailability": {"enabled": false}})));
    }
}
