//! The files of the ConfigMap: settings of the servers, and the scripts that start and probe them.

use crate::api::v1beta1::Cache;
use crate::api::{Engine, EvictionPolicy};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// The folder of the files of the TLS Secret.
pub(super) const TLS_FOLDER: &str = "/tls";
/// The port of Sentinels.
pub const SENTINEL_PORT: u16 = 26379;

/// The names of the programs of an engine.
pub(super) struct Programs {
    /// The server, which is Sentinel as well.
    pub(super) server: &'static str,
    /// The command line.
    pub(super) cli: &'static str,
}

impl Programs {
    pub(super) fn of(engine: Engine) -> Option<Programs> {
        match engine {
            Engine::Redis => Some(Programs { server: "redis-server", cli: "redis-cli" }),
            Engine::Valkey => Some(Programs { server: "valkey-server", cli: "valkey-cli" }),
            Engine::Memcached => None,
        }
    }
}

/// Returns the port of the servers.
pub fn port(engine: Engine) -> u16 {
    match engine {
        Engine::Redis | Engine::Valkey => 6379,
        Engine::Memcached => 11211,
    }
}

/// Returns the bytes of the memory of a server.
fn memory_bytes(cache: &Cache) -> u64 {
    let text = &cache.spec.memory;
    let (number, unit) = text.split_at(text.len().saturating_sub(2));
    let mebibytes: u64 = number.parse().unwrap_or_default();
    mebibytes.saturating_mul(if unit == "Gi" { 1 << 30 } else { 1 << 20 })
}

/// Returns the bytes of a server that are for entries: three quarters. Connections and replication need the rest.
pub fn entries_bytes(cache: &Cache) -> u64 {
    memory_bytes(cache) / 4 * 3
}

/// Returns the files.
pub(super) fn files(cache: &Cache) -> BTreeMap<&'static str, String> {
    let script = |name, text: &str| (name, text.to_owned());
    if cache.spec.engine == Engine::Memcached {
        let files =
            [("server.conf", memcached_settings(cache)), script("start.sh", include_str!("memcached.sh"))];
        return files.into();
    }
    let mut files = BTreeMap::from([
        ("server.conf", redis_settings(cache)),
        script("functions.sh", include_str!("functions.sh")),
        script("start.sh", include_str!("start.sh")),
        script("ready.sh", include_str!("ready.sh")),
        script("alive.sh", include_str!("alive.sh")),
    ]);
    if cache.spec.fails_over() {
        files.extend([
            ("sentinel.conf", sentinel_settings(cache)),
            script("sentinel.sh", include_str!("sentinel.sh")),
            script("sentinel-alive.sh", include_str!("sentinel-alive.sh")),
        ]);
    }
    files
}

/// Returns a hash of the files. The template of the pods has it, so that a change of the files makes new pods.
pub(super) fn hash(files: &BTreeMap<&str, String>) -> String {
    let digest = Sha256::digest(json!(files).to_string());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn is_encrypted(cache: &Cache) -> bool {
    cache.spec.tls.as_ref().is_some_and(|tls| tls.enabled)
}

fn redis_settings(cache: &Cache) -> String {
    let policy = cache.spec.eviction_policy.word();
    let own = format!(
        "dir /data\nsave \"\"\nappendonly no\nmaxmemory {}\nmaxmemory-policy {policy}\nrepl-diskless-sync-delay 0\n",
        entries_bytes(cache)
    );
    own + &network_settings(cache, port(cache.spec.engine))
}

fn sentinel_settings(cache: &Cache) -> String {
    format!("dir /data\n{}", network_settings(cache, SENTINEL_PORT))
}

/// Returns the settings of a server or a Sentinel on the network. There is no password: TLS and network policies say who
/// may come.
fn network_settings(cache: &Cache, port: u16) -> String {
    let encryption = if is_encrypted(cache) {
        format!(
            "port 0\ntls-port {port}\ntls-replication yes\ntls-auth-clients no\ntls-cert-file {TLS_FOLDER}/tls.crt\n\
             tls-key-file {TLS_FOLDER}/tls.key\ntls-ca-cert-file {TLS_FOLDER}/ca.crt\n"
        )
    } else {
        format!("port {port}\n")
    };
    format!("protected-mode no\n{encryption}")
}

/// Returns the options of memcached.
fn memcached_settings(cache: &Cache) -> String {
    let mut options = format!("--memory-limit={}\n", entries_bytes(cache) >> 20);
    if cache.spec.eviction_policy == EvictionPolicy::NoEviction {
        options.push_str("--disable-evictions\n");
    }
    if is_encrypted(cache) {
        let files = format!("ssl_chain_cert={TLS_FOLDER}/tls.crt,ssl_key={TLS_FOLDER}/tls.key");
        options.push_str(&format!("--enable-ssl\n--extended={files}\n"));
    }
    options
}

/// Returns the variables of the scripts.
pub(super) fn variables(cache: &Cache, service: &str) -> Vec<Value> {
    let engine = cache.spec.engine;
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let value = |name: &str, value: &str| json!({"name": name, "value": value});
    let mut variables = vec![field("POD_IP", "status.podIP"), value("PORT", &port(engine).to_string())];
    let Some(programs) = Programs::of(engine) else { return variables };
    let tls = if is_encrypted(cache) { format!("--tls --cacert {TLS_FOLDER}/ca.crt") } else { String::new() };
    variables.extend([
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
        value("SENTINEL_PORT", &SENTINEL_PORT.to_string()),
        value("SERVICE", service),
        value("SERVER", programs.server),
        value("CLI", programs.cli),
        value("FAILS_OVER", if cache.spec.fails_over() { "true" } else { "false" }),
    ]);
    if !tls.is_empty() {
        variables.push(value("TLS_OPTIONS", &tls));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(spec: Value) -> Cache {
        let metadata = json!({"name": "shop", "namespace": "n", "uid": "u"});
        let cache = json!({"apiVersion": "infra.archon.dev/v1beta1", "kind": "Cache", "metadata": metadata, "spec": spec});
        serde_json::from_value(cache).unwrap()
    }

    #[test]
    fn three_quarters_of_the_memory_are_for_entries() {
        let bytes = |memory: &str| entries_bytes(&cache(json!({"engine": "redis", "memory": memory})));
        assert_eq!((bytes("16Mi"), bytes("1Gi")), (12 << 20, 768 << 20));
        assert_eq!(bytes("99999999Gi") >> 30, 74_999_999);
    }

    #[test]
    fn each_setting_changes_the_hash() {
        let hash = |more: Value| {
            let mut spec = json!({"engine": "redis", "memory": "64Mi"});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            super::hash(&files(&cache(spec)))
        };
        let hashes = [
            json!({}),
            json!({"memory": "65Mi"}),
            json!({"evictionPolicy": "noeviction"}),
            json!({"tls": {"enabled": true, "secretName": "a"}}),
            json!({"highAvailability": {"enabled": true}}),
        ]
        .map(hash);
        let distinct: std::collections::BTreeSet<_> = hashes.iter().collect();
        assert_eq!(distinct.len(), hashes.len());
        assert_eq!(
            hashes[0],
            super::hash(&files(&cache(json!({"engine": "redis", "memory": "64Mi", "replicas": 5}))))
        );
    }

    #[test]
    fn memcached_has_options_for_its_settings() {
        let tls = json!({"enabled": true, "secretName": "a"});
        let spec =
            json!({"engine": "memcached", "memory": "64Mi", "evictionPolicy": "noeviction", "tls": tls});
        let options = &files(&cache(spec))["server.conf"];
        assert_eq!(
            options,
            "--memory-limit=48\n--disable-evictions\n--enable-ssl\n--extended=ssl_chain_cert=/tls/tls.crt,ssl_key=/tls/tls.key\n"
        );
    }
}
