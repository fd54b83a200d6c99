//! The objects that a cache consists of, all of the name `NAME-cache`: a ConfigMap, a Service, a StatefulSet and perhaps a
//! PodDisruptionBudget. Pure functions.

mod config;

pub use config::{SENTINEL_PORT, entries_bytes, port};

use crate::api::Engine;
use crate::api::v1beta1::Cache;
use config::TLS_FOLDER;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kubebid_controller::composite::child_metadata;
use serde_json::{Value, json};

/// The container of the server.
pub const SERVER: &str = "server";
/// The container of the Sentinel.
pub const SENTINEL: &str = "sentinel";

/// The memory of a Sentinel.
const SENTINEL_MEMORY: &str = "32Mi";

/// The images of the servers.
#[derive(Clone, Debug)]
pub struct Images {
    /// The image of Redis.
    pub redis: String,
    /// The image of memcached.
    pub memcached: String,
    /// The image of Valkey.
    pub valkey: String,
}

impl Images {
    fn of(&self, engine: Engine) -> &str {
        match engine {
            Engine::Redis => &self.redis,
            Engine::Memcached => &self.memcached,
            Engine::Valkey => &self.valkey,
        }
    }
}

/// Returns the name of all children.
pub fn child_name(cache: &Cache) -> String {
    format!("{}-cache", cache.name_any())
}

/// Returns the host that leads to all servers that are ready.
pub fn host(cache: &Cache) -> String {
    format!("{}.{}.svc.cluster.local", child_name(cache), cache.namespace().unwrap_or_default())
}

/// Returns host and port of the servers.
pub fn endpoint(cache: &Cache) -> String {
    format!("{}:{}", host(cache), port(cache.spec.engine))
}

/// Returns the labels of the pods, as a selector of lists.
pub fn selector(cache: &Cache) -> String {
    format!("app.kubernetes.io/name=cache,app.kubernetes.io/instance={}", cache.name_any())
}

/// Returns the ConfigMap with the settings and scripts.
pub fn config_map(cache: &Cache) -> ConfigMap {
    child(cache, json!({"data": config::files(cache)}))
}

/// Returns the Service that gives the servers a name, and each of them `NAME-cache-N.NAME-cache`.
pub fn service(cache: &Cache) -> Service {
    let mut ports = vec![json!({"name": "cache", "port": port(cache.spec.engine)})];
    if cache.spec.fails_over() {
        ports.push(json!({"name": "sentinel", "port": SENTINEL_PORT}));
    }
    child(cache, json!({"spec": {"clusterIP": "None", "selector": labels(cache), "ports": ports}}))
}

/// Returns the PodDisruptionBudget: nodes that are drained take one server at a time.
pub fn disruption_budget(cache: &Cache) -> PodDisruptionBudget {
    let selector = json!({"matchLabels": labels(cache)});
    child(cache, json!({"spec": {"maxUnavailable": 1, "selector": selector}}))
}

/// Returns the StatefulSet of the servers.
pub fn stateful_set(cache: &Cache, images: &Images) -> StatefulSet {
    let mut containers = vec![server(cache, images)];
    if cache.spec.fails_over() {
        containers.push(sentinel(cache, images));
    }
    // The users of the images.
    let user = if cache.spec.engine == Engine::Memcached { 11211 } else { 999 };
    let mut pod = json!({
        "automountServiceAccountToken": false,
        // A server has nothing to write before it ends.
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": user, "runAsGroup": user, "fsGroup": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": containers,
        "volumes": volumes(cache),
    });
    if cache.spec.is_highly_available() {
        let term =
            json!({"labelSelector": {"matchLabels": labels(cache)}, "topologyKey": "kubernetes.io/hostname"});
        let apart = json!([{"weight": 100, "podAffinityTerm": term}]);
        pod["affinity"] =
            json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": apart}});
    }
    let annotations = json!({"infra.archon.dev/config": config::hash(&config::files(cache))});
    let spec = json!({
        "replicas": cache.spec.replicas(),
        "serviceName": child_name(cache),
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels(cache)},
        "template": {"metadata": {"labels": labels(cache), "annotations": annotations}, "spec": pod},
    });
    child(cache, json!({"spec": spec}))
}

fn server(cache: &Cache, images: &Images) -> Value {
    let memory = json!({"memory": cache.spec.memory});
    let mut container = container(cache, images, SERVER, "start.sh");
    container["ports"] = json!([{"name": "cache", "containerPort": port(cache.spec.engine)}]);
    container["resources"] = json!({"requests": memory, "limits": memory});
    let (alive, ready) = if cache.spec.engine == Engine::Memcached {
        (json!({"tcpSocket": {"port": "cache"}}), json!({"tcpSocket": {"port": "cache"}}))
    } else {
        (script("alive.sh"), script("ready.sh"))
    };
    // A server that has to find its leader takes up to a minute.
    container["startupProbe"] = probe(&alive, 1, 120);
    container["livenessProbe"] = probe(&alive, 10, 3);
    container["readinessProbe"] = probe(&ready, 5, 3);
    container
}

fn sentinel(cache: &Cache, images: &Images) -> Value {
    let memory = json!({"memory": SENTINEL_MEMORY});
    let mut container = container(cache, images, SENTINEL, "sentinel.sh");
    container["ports"] = json!([{"name": "sentinel", "containerPort": SENTINEL_PORT}]);
    container["resources"] = json!({"requests": memory, "limits": memory});
    let alive = script("sentinel-alive.sh");
    container["startupProbe"] = probe(&alive, 2, 90);
    container["livenessProbe"] = probe(&alive, 15, 8);
    container
}

fn container(cache: &Cache, images: &Images, name: &str, file: &str) -> Value {
    let mut mounts = vec![json!({"name": "config", "mountPath": "/config", "readOnly": true})];
    if cache.spec.engine != Engine::Memcached {
        mounts.push(json!({"name": "data", "mountPath": "/data"}));
    }
    if tls_secret(cache).is_some() {
        mounts.push(json!({"name": "tls", "mountPath": TLS_FOLDER, "readOnly": true}));
    }
    json!({
        "name": name,
        "image": images.of(cache.spec.engine),
        "command": ["sh", format!("/config/{file}")],
        "env": config::variables(cache, &child_name(cache)),
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        },
    })
}

fn volumes(cache: &Cache) -> Vec<Value> {
    let mut volumes = vec![json!({"name": "config", "configMap": {"name": child_name(cache)}})];
    if cache.spec.engine != Engine::Memcached {
        volumes.push(json!({"name": "data", "emptyDir": {}}));
    }
    volumes.extend(tls_secret(cache).map(|secret| json!({"name": "tls", "secret": {"secretName": secret}})));
    volumes
}

/// Returns the name of the Secret with the certificate, if connections are encrypted.
pub fn tls_secret(cache: &Cache) -> Option<&str> {
    cache.spec.tls.as_ref().filter(|tls| tls.enabled)?.secret_name.as_deref()
}

fn script(name: &str) -> Value {
    json!({"exec": {"command": ["sh", format!("/config/{name}")]}})
}

fn probe(action: &Value, period_seconds: u32, failures: u32) -> Value {
    let mut probe = action.clone();
    probe["periodSeconds"] = json!(period_seconds);
    probe["timeoutSeconds"] = json!(5);
    probe["failureThreshold"] = json!(failures);
    probe
}

fn labels(cache: &Cache) -> Value {
    json!({"app.kubernetes.io/name": "cache", "app.kubernetes.io/instance": cache.name_any()})
}

/// Returns a child with these fields, its name and labels.
fn child<C: serde::de::DeserializeOwned>(cache: &Cache, fields: Value) -> C {
    let mut object = fields;
    object["metadata"] = json!(child_metadata(cache, &child_name(cache)));
    object["metadata"]["labels"] = labels(cache);
    object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("cache-operator");
    serde_json::from_value(object).expect("an object of this kind")
}
