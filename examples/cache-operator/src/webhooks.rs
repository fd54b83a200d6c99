//! The webhooks: conversion, the replicas of a Cache that has none, and warnings about the Secret of its certificate.

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
    webhooks.mutate("/mutate", fill_in_replicas).validate("/validate", Certificates { client })
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

/// The Secrets of certificates.
struct Certificates {
    client: Client,
}

impl Validate for Certificates {
    async fn warnings(&self, cache: Value) -> Vec<String> {
        let text = |pointer: &str| cache.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let is_encrypted = cache.pointer("/spec/tls/enabled") == Some(&Value::Bool(true));
        let (namespace, name) = (text("/metadata/namespace"), text("/spec/tls/secretName"));
        if !is_encrypted || name.is_empty() {
            return Vec::new();
        }
        match Api::<Secret>::namespaced(self.client.clone(), namespace).get_opt(name).await {
            Ok(secret) => warning(name, secret.as_ref()).into_iter().collect(),
            // It is not known what is there.
            Err(_) => Vec::new(),
        }
    }
}

/// Returns what is wrong with the Secret of a certificate.
fn warning(name: &str, secret: Option<&Secret>) -> Option<String> {
    let Some(secret) = secret else {
        return Some(format!("there is no Secret {name}: the servers wait for it"));
    };
    let has = |key: &&str| secret.data.as_ref().is_some_and(|data| data.contains_key(*key));
    let missing: Vec<_> = KEYS.into_iter().filter(|key| !has(key)).collect();
    let message = format!("the Secret {name} lacks {}: the servers cannot start", missing.join(", "));
    (!missing.is_empty()).then_some(message)
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
        assert!(warning("a", None).unwrap().contains("no Secret a"));
        assert!(warning("a", Some(&secret(&["tls.crt"]))).unwrap().contains("lacks tls.key, ca.crt"));
        assert_eq!(warning("a", Some(&secret(&KEYS))), None);
    }
}
