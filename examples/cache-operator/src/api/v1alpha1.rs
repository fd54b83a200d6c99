//! `Cache` in version v1alpha1, the older one.

use super::{CacheStatus, Engine, EvictionPolicy, MEMORY, Tls};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// A cache: servers of one kind with the same settings.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "infra.archon.dev",
    version = "v1alpha1",
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
    validation = Rule::new("self.engine != 'redis' || self.replicas >= 3")
        .message("redis needs at least 3 replicas: write replicas: 3 or more"),
    validation = Rule::new("self.engine != 'memcached' || self.evictionPolicy in ['allkeys-lru', 'noeviction']")
        .message("memcached knows two policies: write evictionPolicy: allkeys-lru or noeviction"),
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
    /// The number of servers.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: i32,
    /// The entries that a full cache gives up for a new one.
    #[serde(default)]
    pub eviction_policy: EvictionPolicy,
    /// Encryption of all connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

fn default_replicas() -> i32 {
    1
}
