//! `Cache`, the object that people write, in the version that is stored and in an older one.

pub mod v1alpha1;
pub mod v1beta1;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::crd::MergeError;
use kube::{CustomResourceExt as _, KubeSchema};
use kubebid_webhook::definition::merge;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The group of the objects.
pub const GROUP: &str = "infra.archon.dev";

/// The version that is stored.
pub const STORED: &str = "v1beta1";

/// A whole number of mebibytes or gibibytes, as in `256Mi`.
const MEMORY: &str = r"^\d+(Mi|Gi)$";

/// A kind of server.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Redis.
    Redis,
    /// Memcached.
    Memcached,
    /// Valkey, a fork of Redis.
    Valkey,
}

impl Engine {
    /// Returns the replicas of a cache that does not say how many it wants.
    pub fn default_replicas(self) -> i32 {
        match self {
            Engine::Redis | Engine::Valkey => 3,
            Engine::Memcached => 1,
        }
    }
}

/// The entries that a full cache gives up for a new one.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum EvictionPolicy {
    /// None: writes fail.
    #[serde(rename = "noeviction")]
    NoEviction,
    /// The entries that were not used for the longest time.
    #[default]
    AllkeysLru,
    /// The entries that are used least often.
    AllkeysLfu,
    /// Any.
    AllkeysRandom,
    /// The entries with a time to live that were not used for the longest time.
    VolatileLru,
    /// The entries with a time to live that are used least often.
    VolatileLfu,
    /// Any with a time to live.
    VolatileRandom,
    /// The entries that end soonest.
    VolatileTtl,
}

impl EvictionPolicy {
    /// Returns the word that Redis has for it.
    pub fn word(self) -> &'static str {
        match self {
            EvictionPolicy::NoEviction => "noeviction",
            EvictionPolicy::AllkeysLru => "allkeys-lru",
            EvictionPolicy::AllkeysLfu => "allkeys-lfu",
            EvictionPolicy::AllkeysRandom => "allkeys-random",
            EvictionPolicy::VolatileLru => "volatile-lru",
            EvictionPolicy::VolatileLfu => "volatile-lfu",
            EvictionPolicy::VolatileRandom => "volatile-random",
            EvictionPolicy::VolatileTtl => "volatile-ttl",
        }
    }
}

/// Encryption of all connections.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.secretName) || self.enabled")
        .message("tls.secretName needs tls.enabled: true"),
    validation = Rule::new("!self.enabled || has(self.secretName)")
        .message("tls.enabled needs tls.secretName: the Secret with tls.crt, tls.key and ca.crt")
)]
pub struct Tls {
    /// True if the servers accept TLS only.
    #[serde(default)]
    pub enabled: bool,
    /// The Secret with the keys tls.crt, tls.key and ca.crt. The certificate must be valid for the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("pattern" = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret_name: Option<String>,
}

/// A phase in the life of a cache.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// There are no servers yet.
    #[default]
    Pending,
    /// The servers start, or start again.
    Provisioning,
    /// All replicas are available.
    Ready,
    /// The children cannot be made as they should be.
    Failed,
    /// The cache is being deleted.
    Terminating,
}

/// The observed state of a cache.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CacheStatus {
    /// The phase in the life of the cache.
    #[serde(default)]
    pub phase: Phase,
    /// The replicas that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Host and port of the servers.
    #[serde(default)]
    pub endpoint: String,
    /// Ready: all replicas are available. Synced: the children are as they should be.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Returns the definition of the object, which stores a version and converts by the webhook of a service.
///
/// # Errors
/// A version that there is not.
pub fn crd(stored: &str, namespace: &str, service: &str) -> Result<CustomResourceDefinition, MergeError> {
    merge(vec![v1beta1::Cache::crd(), v1alpha1::Cache::crd()], stored, namespace, service)
}
