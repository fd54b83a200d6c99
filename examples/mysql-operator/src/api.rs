//! `Mysql`, the object that people write.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, CustomResourceExt as _, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The annotation that, with the value `true`, lets a server have a new password although its volume has the old one.
pub const NEW_PASSWORD: &str = "fnjoin.com/new-password";

/// A whole number of bytes, as in `1Gi`.
const BYTES: &str = "^[1-9][0-9]*([kMGTPE]|[KMGTPE]i)?$";
/// A number of cores, as in `500m` or `1.5`.
const CORES: &str = r"^([1-9][0-9]*m?|[0-9]+\.[0-9]{1,3})$";

/// A MySQL server: one pod, its volume, its address and its password.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "fnjoin.com",
    version = "v1",
    kind = "Mysql",
    plural = "mysqls",
    namespaced,
    status = "MysqlStatus",
    doc = "A MySQL server: one pod, its volume, its address and its password.",
    printcolumn(name = "Storage", type_ = "string", json_path = ".spec.storage"),
    printcolumn(name = "Memory", type_ = "string", json_path = ".spec.memory"),
    printcolumn(name = "CPU", type_ = "string", json_path = ".spec.cpu"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 52")
        .message("the name must have at most 52 characters: labels of the pod are longer than it"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("the name must be that of a Service: letters, digits and '-', with a letter first")
)]
#[serde(rename_all = "camelCase")]
pub struct MysqlSpec {
    /// The size of the volume. It can grow, if the storage class allows that, but not shrink.
    #[serde(default = "default_storage")]
    #[schemars(with = "String", length(max = 20), extend("pattern" = BYTES))]
    #[x_kube(
        validation = Rule::new("quantity(self).compareTo(quantity(oldSelf)) >= 0")
            .message("storage can grow, but not shrink")
    )]
    pub storage: Quantity,
    /// The memory that is reserved for the server.
    #[serde(default = "default_memory")]
    #[schemars(with = "String", length(max = 20), extend("pattern" = BYTES))]
    pub memory: Quantity,
    /// The cores that are reserved for the server.
    #[serde(default = "default_cpu")]
    #[schemars(with = "String", length(max = 20), extend("pattern" = CORES))]
    pub cpu: Quantity,
    /// The rule for the volume and for its password, which belong together, when the object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// The rule for a volume and for the Secret with its password when their Mysql is deleted.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// Both stay. The next Mysql of the name has them.
    #[default]
    Retain,
    /// Both are deleted.
    Delete,
}

fn default_storage() -> Quantity {
    Quantity("1Gi".to_owned())
}

fn default_memory() -> Quantity {
    Quantity("512Mi".to_owned())
}

fn default_cpu() -> Quantity {
    Quantity("500m".to_owned())
}

/// The observed state of a server.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct MysqlStatus {
    /// True if the server answers to its password.
    #[serde(default)]
    pub ready: bool,
    /// The state of its Secret, its Service and its StatefulSet, and whether it is ready.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Returns the definition of the object.
pub fn crd() -> CustomResourceDefinition {
    Mysql::crd()
}
