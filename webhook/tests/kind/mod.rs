//! Disks, a kind with two versions, neither of which can say all that the other says.

#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use kubebid_webhook::conversion::{Conversions, Converter, Version};
use serde_json::{Map, Value, json};

/// The annotation of v1alpha1 for what v1beta1 has as a field.
pub const DRAIN: &str = "example.com/drain-seconds";

/// The zone of a disk whose conversion to v1alpha1 panics.
pub const PANICS: &str = "panics";

pub mod v1beta1 {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1beta1", kind = "Disk", namespaced, status = "DiskStatus")]
    #[serde(rename_all = "camelCase")]
    pub struct DiskSpec {
        pub gigabytes: u64,
        pub zones: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fast: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub encryption: Option<Encryption>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub mounts: Vec<Mount>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub drain_seconds: Option<u32>,
    }

    #[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct Encryption {
        pub key: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rotate_days: Option<u32>,
    }

    #[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct Mount {
        pub path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub read_only: Option<bool>,
    }

    #[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct DiskStatus {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub used_bytes: Option<u64>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub conditions: Vec<Condition>,
    }
}

pub mod v1alpha1 {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1alpha1", kind = "Disk", namespaced, status = "DiskStatus")]
    #[serde(rename_all = "camelCase")]
    pub struct DiskSpec {
        /// Gigabytes or terabytes, as in 10Gi.
        pub size: String,
        pub zone: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub encryption_key: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub mounts: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub note: Option<String>,
    }

    #[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct DiskStatus {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub used_gigabytes: Option<u64>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub conditions: Vec<Condition>,
    }
}

impl Version for v1beta1::Disk {
    type Hub = v1beta1::Disk;

    fn to_hub(self) -> v1beta1::Disk {
        self
    }

    fn from_hub(hub: v1beta1::Disk) -> Self {
        hub
    }

    fn belongs_to(field: &str) -> &'static [&'static str] {
        if field == "/spec/fast" { &["/spec/gigabytes"] } else { &[] }
    }
}

impl Version for v1alpha1::Disk {
    type Hub = v1beta1::Disk;

    fn to_hub(self) -> v1beta1::Disk {
        let (mut metadata, spec) = (self.metadata, self.spec);
        let annotations = metadata.annotations.as_mut();
        let drain = annotations.and_then(|annotations| annotations.remove(DRAIN));
        let terabytes = spec.size.strip_suffix("Ti").and_then(|size| size.parse::<u64>().ok());
        let gigabytes = spec.size.strip_suffix("Gi").and_then(|size| size.parse::<u64>().ok());
        let mounts = spec.mounts.into_iter().map(|path| v1beta1::Mount { path, read_only: None });
        v1beta1::Disk {
            metadata,
            spec: v1beta1::DiskSpec {
                gigabytes: terabytes.map(|size| size * 1024).or(gigabytes).unwrap_or(1),
                zones: vec![spec.zone],
                fast: None,
                encryption: spec.encryption_key.map(|key| v1beta1::Encryption { key, rotate_days: None }),
                mounts: mounts.collect(),
                drain_seconds: drain.and_then(|text| text.parse().ok()),
            },
            status: self.status.map(|status| v1beta1::DiskStatus {
                used_bytes: status.used_gigabytes.map(|used| used << 30),
                conditions: status.conditions,
            }),
        }
    }

    fn from_hub(hub: v1beta1::Disk) -> Self {
        let (mut metadata, spec) = (hub.metadata, hub.spec);
        assert!(!spec.zones.iter().any(|zone| zone == PANICS), "a test asked for it");
        if let Some(seconds) = spec.drain_seconds {
            metadata.annotations.get_or_insert_default().insert(DRAIN.to_owned(), seconds.to_string());
        }
        v1alpha1::Disk {
            metadata,
            spec: v1alpha1::DiskSpec {
                size: format!("{}Gi", spec.gigabytes),
                zone: spec.zones.into_iter().next().unwrap_or_default(),
                encryption_key: spec.encryption.map(|encryption| encryption.key),
                mounts: spec.mounts.into_iter().map(|mount| mount.path).collect(),
                note: None,
            },
            status: hub.status.map(|status| v1alpha1::DiskStatus {
                used_gigabytes: status.used_bytes.map(|used| used >> 30),
                conditions: status.conditions,
            }),
        }
    }
}

/// Returns the conversions between the two versions.
pub fn conversions() -> Conversions {
    Conversions::new().kind(Converter::new().version::<v1alpha1::Disk>().version::<v1beta1::Disk>())
}

/// Returns the definition with both versions, of which one is stored, and a webhook at a URL.
pub fn definition(stored: &str, url: &str) -> CustomResourceDefinition {
    let versions = vec![v1beta1::Disk::crd(), v1alpha1::Disk::crd()];
    let mut definition = kube::core::crd::merge_crds(versions, stored).unwrap();
    definition.spec.conversion = serde_json::from_value(json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": url}},
    }))
    .unwrap();
    definition
}

fn one_of<'a>(random: &mut fastrand::Rng, words: &[&'a str]) -> &'a str {
    words[random.usize(..words.len())]
}

fn word(random: &mut fastrand::Rng) -> String {
    one_of(random, &["", "a", "b", "ä/~\"\\", "zone-1", "~1", "x y"]).to_owned()
}

fn metadata(random: &mut fastrand::Rng, drain: bool) -> Value {
    let mut metadata = json!({
        "name": format!("disk-{}", random.u8(..)), "namespace": "default", "uid": "0a", "resourceVersion": "7",
        "creationTimestamp": "2026-01-02T03:04:05Z", "generation": random.u32(..),
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:size": {}}}}],
        "finalizers": ["example.com/x"],
    });
    for key in ["labels", "annotations"] {
        let mut map: Map<String, Value> =
            (0..random.usize(..3)).map(|at| (format!("k{at}"), json!(word(random)))).collect();
        if key == "annotations" && drain && random.bool() {
            let text = one_of(random, &["30", "007", "soon", ""]);
            map.insert(DRAIN.to_owned(), json!(text));
        }
        if !map.is_empty() {
            metadata[key] = Value::Object(map);
        }
    }
    metadata
}

fn conditions(random: &mut fastrand::Rng) -> Value {
    let condition = |random: &mut fastrand::Rng| {
        json!({
            "type": "Ready", "status": one_of(random, &["True", "False"]), "reason": "Made", "message": word(random),
            "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": random.u8(..),
        })
    };
    (1..=random.usize(1..3)).map(|_| condition(random)).collect()
}

/// Sets a field or leaves it absent.
fn maybe(
    random: &mut fastrand::Rng,
    object: &mut Value,
    key: &str,
    value: impl FnOnce(&mut fastrand::Rng) -> Value,
) {
    if random.bool() {
        object[key] = value(random);
    }
}

/// The fields of a version, each with a random value, or None for one that is removed.
pub type Edit = (&'static str, Option<Value>);

/// Returns a random value for each field that a client of v1beta1 may set.
pub fn v1beta1_fields(random: &mut fastrand::Rng) -> Vec<Edit> {
    let mut encryption = json!({"key": word(random)});
    maybe(random, &mut encryption, "rotateDays", |random| json!(random.u8(..)));
    let mounts = (0..=random.usize(..3)).map(|_| {
        let mut mount = json!({"path": word(random)});
        maybe(random, &mut mount, "readOnly", |random| json!(random.bool()));
        mount
    });
    let mounts: Value = mounts.collect();
    let zones: Value = (0..random.usize(1..4)).map(|_| json!(word(random))).collect();
    let gigabytes = json!(random.u64(1..4) * 512);
    let edits = [
        ("/spec/gigabytes", Some(gigabytes)),
        ("/spec/zones", Some(zones)),
        ("/spec/fast", random.bool().then_some(Value::Bool(true))),
        ("/spec/encryption", random.bool().then_some(encryption)),
        ("/spec/mounts", random.bool().then_some(mounts)),
        ("/spec/drainSeconds", random.bool().then(|| json!(random.u8(..)))),
        ("/status/usedBytes", random.bool().then(|| json!(random.u64(..1 << 40)))),
        ("/status/conditions", Some(conditions(random))),
    ];
    edits.into()
}

/// Returns a random value for each field that a client of v1alpha1 may set.
pub fn v1alpha1_fields(random: &mut fastrand::Rng) -> Vec<Edit> {
    let mounts: Value = (0..=random.usize(..3)).map(|_| json!(word(random))).collect();
    let edits = [
        ("/spec/size", Some(json!(one_of(random, &["1Ti", "1024Gi", "01Gi", "7Gi", "512Gi"])))),
        ("/spec/zone", Some(json!(word(random)))),
        ("/spec/encryptionKey", random.bool().then(|| json!(word(random)))),
        ("/spec/mounts", random.bool().then_some(mounts)),
        ("/spec/note", random.bool().then(|| json!(word(random)))),
        ("/status/usedGigabytes", random.bool().then(|| json!(random.u8(..)))),
        ("/status/conditions", Some(conditions(random))),
    ];
    edits.into()
}

/// Sets or removes a field.
pub fn edit(object: &mut Value, (pointer, value): Edit) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let Some(Value::Object(parent)) = object.pointer_mut(parent) else { return };
    match value {
        Some(value) => parent.insert(key.to_owned(), value),
        None => parent.remove(key),
    };
}

fn object(random: &mut fastrand::Rng, version: &str, drain: bool, fields: Vec<Edit>) -> Value {
    let mut object = json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Disk", "metadata": metadata(random, drain), "spec": {},
    });
    if random.bool() {
        object["status"] = json!({});
    }
    for field in fields {
        edit(&mut object, field);
    }
    object
}

/// Returns a random object of v1beta1.
pub fn random_v1beta1(random: &mut fastrand::Rng) -> Value {
    let fields = v1beta1_fields(random);
    object(random, "v1beta1", false, fields)
}

/// Returns a random object of v1alpha1.
pub fn random_v1alpha1(random: &mut fastrand::Rng) -> Value {
    let fields = v1alpha1_fields(random);
    object(random, "v1alpha1", true, fields)
}
