//! The webhooks: conversion, the replicas of a Cache that has none, and warnings.

use crate::api::Engine;
use crate::conversion::conversions;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::Api;
use kubebid_webhook::admission::Validate;
use kubebid_webhook::authority::Target;
use kubebid_webhook::server::Webhooks;
use serde::Deserialize as _;
use serde_json::{Value, json};

/// The keys of the Secret of a certificate.
const KEYS: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

/// The name of the configurations of the webhooks.
const CONFIGURATION: &str = "cache-operator";

/// Returns the webhooks.
pub fn webhooks(client: Client) -> Webhooks {
    let webhooks = Webhooks::new().conversions(conversions());
    webhooks.mutate("/mutate", fill_in_replicas).validate("/validate", Warnings { client })
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

/// The warnings about a Cache.
struct Warnings {
    client: Client,
}

impl Validate for Warnings {
    async fn warnings(&self, cache: Value) -> Vec<String> {
        let mut warnings: Vec<String> = too_few_replicas(&cache).into_iter().collect();
        let text = |pointer: &str| cache.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let is_encrypted = cache.pointer("/spec/tls/enabled") == Some(&Value::Bool(true));
        let (namespace, name) = (text("/metadata/namespace"), text("/spec/tls/secretName"));
        if is_encrypted && !name.is_empty() {
            let secrets = Api::<Secret>::namespaced(self.client.clone(), namespace);
            // After an error it is not known what is there.
            let secret = secrets.get_opt(name).await;
            warnings.extend(secret.ok().and_then(|secret| incomplete_secret(name, secret.as_ref())));
        }
        warnings
    }
}

/// Warns of a Cache that has come from v1alpha1 with too few replicas. The rules of v1beta1 would refuse it.
fn too_few_replicas(cache: &Value) -> Option<String> {
    let is_highly_available = cache.pointer("/spec/highAvailability/enabled") == Some(&Value::Bool(true));
    let replicas = cache.pointer("/spec/replicas")?.as_i64()?;
    (is_highly_available && replicas < 3)
        .then(|| format!("highAvailability needs at least 3 replicas, and there are {replicas}"))
}

/// Warns of a Secret that is not one of a certificate. Whoever reaches the port of the webhooks can ask about any Secret, so the
/// answer does not tell if there is another Secret of this name.
fn incomplete_secret(name: &str, secret: Option<&Secret>) -> Option<String> {
    let data = secret.and_then(|secret| secret.data.as_ref());
    let is_complete = KEYS.iter().all(|key| data.is_some_and(|data| data.contains_key(*key)));
    let keys = KEYS.join(", ");
    (!is_complete)
        .then(|| format!("the Secret {name} is absent or lacks one of {keys}: the servers wait for it"))
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
    fn a_secret_that_is_missing_or_lacks_keys_is_a_warning() {
        let secret = |keys: &[&str]| {
            let data: serde_json::Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), json!(""))).collect();
            serde_json::from_value::<Secret>(json!({"data": data})).unwrap()
        };
        let warning =
            "the Secret a is absent or lacks one of tls.crt, tls.key, ca.crt: the servers wait for it";
        assert_eq!(incomplete_secret("a", None).as_deref(), Some(warning));
        assert_eq!(incomplete_secret("a", Some(&secret(&["tls.crt"]))).as_deref(), Some(warning));
        assert_eq!(incomplete_secret("a", Some(&secret(&KEYS))), None);
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
