//! `Cache` in version v1beta1, which is stored.

use super::{CacheStatus, Engine, EvictionPolicy, MEMORY, Tls};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A cache: servers of one kind with the same settings.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "infra.archon.dev",
    version = "v1beta1",
    kind = "Cache",
    plural = "caches",
    shortname = "ch",
    category = "all",
    namespaced,
    derive = "PartialEq",
    status = "CacheStatus",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.readyReplicas"),
    doc = "A cache: servers of one kind with the same settings.",
    printcolumn(name = "Engine", type_ = "string", json_path = ".spec.engine"),
    printcolumn(name = "Memory", type_ = "string", json_path = ".spec.memory"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 46")
        .message("the name must have at most 46 characters: labels of the pods are longer than it"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("the name must be that of a Service: letters, digits and '-', with a letter first")
)]
#[x_kube(
    validation = Rule::new("self.engine == oldSelf.engine").message("engine cannot change: create another Cache"),
    validation = Rule::new("self.engine != 'redis' || !has(self.replicas) || self.replicas >= 3")
        .message("redis needs at least 3 replicas: write replicas: 3 or more, or leave it out"),
    validation = Rule::new("self.engine != 'memcached' || self.evictionPolicy in ['allkeys-lru', 'noeviction']")
        .message("memcached knows two policies: write evictionPolicy: allkeys-lru or noeviction"),
    validation = Rule::new("self.engine != 'memcached' || !has(self.highAvailability) || !self.highAvailability.enabled")
        .message("memcached has no highAvailability: its servers do not know each other"),
    validation = Rule::new("!has(self.highAvailability) || !self.highAvailability.enabled || !has(self.replicas) || self.replicas >= 3")
        .message("highAvailability needs at least 3 replicas: write replicas: 3 or more, or leave it out"),
)]
pub struct CacheSpec {
    /// The kind of servers.
    pub engine: Engine,
    /// The memory of each server. Three quarters of it are for entries.
    #[schemars(length(max = 10), extend("pattern" = MEMORY))]
    #[x_kube(
        validation = Rule::new("!isQuantity(self) || quantity(self).compareTo(quantity('16Mi')) >= 0")
            .message("memory must be at least 16Mi")
    )]
    pub memory: String,
    /// The number of servers. Without it, redis and valkey have 3, and memcached has 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
    /// The entries that a full cache gives up for a new one.
    #[serde(default)]
    pub eviction_policy: EvictionPolicy,
    /// Encryption of all connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Protection against the loss of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_availability: Option<HighAvailability>,
}

impl CacheSpec {
    /// Returns the number of servers.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or_else(|| self.engine.default_replicas())
    }

    /// Returns true if the servers are kept apart, and are not all ended at once.
    pub fn is_highly_available(&self) -> bool {
        self.high_availability.as_ref().is_some_and(|it| it.enabled)
    }

    /// Returns true if Sentinels choose another first server when it fails.
    pub fn fails_over(&self) -> bool {
        self.high_availability.as_ref().is_some_and(|it| it.enabled && it.auto_failover)
    }
}

/// Protection against the loss of a server.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct HighAvailability {
    /// True if the servers are on different nodes, where there are so many, and are not all ended at once.
    #[serde(default)]
    pub enabled: bool,
    /// True if Sentinels choose another server when the one fails that takes the writes.
    #[serde(default = "default_auto_failover")]
    pub auto_failover: bool,
}

fn default_auto_failover() -> bool {
    true
}
