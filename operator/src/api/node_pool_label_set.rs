//! `NodePoolLabelSet`: the labels of the nodes of one pool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::bidnode::{QUALIFIED_NAME, label_value_schema};

/// Labels of the nodes of a pool. Its name is the name of the pool.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "labels.banzaicloud.io",
    version = "v1alpha1",
    kind = "NodePoolLabelSet",
    namespaced,
    shortname = "npls",
    status = "NodePoolLabelSetStatus",
    derive = "PartialEq",
    doc = "Labels of the nodes of a pool. Its name is the name of the pool.",
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".status.desired",
        description = "Nodes of the pool"
    ),
    printcolumn(
        name = "Updated",
        type_ = "integer",
        json_path = ".status.updated",
        description = "Nodes of the pool that have its labels"
    ),
    printcolumn(
        name = "Conflicts",
        type_ = "integer",
        json_path = ".status.conflicts",
        description = "Nodes whose BidNode has another value for a label"
    ),
    printcolumn(
        name = "Synced",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Synced\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Synced\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message("the name must have at most 63 characters: it is the value of a label")
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolLabelSetSpec {
    /// The labels of the nodes.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = label_value_schema()))]
    #[x_kube(
        validation = Rule::new(format!(
            "self.all(key, key.matches('{QUALIFIED_NAME}') && key.indexOf('/') <= 253)"
        )).message("a label's key is a name of at most 63 letters, digits, '-', '_' and '.', after a DNS name and a '/' or not")
    )]
    pub labels: BTreeMap<String, String>,
}

/// The observed state of a set.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolLabelSetStatus {
    /// The number of nodes of the pool.
    #[serde(default)]
    pub desired: u32,
    /// The number of nodes of the pool that have the labels.
    #[serde(default)]
    pub updated: u32,
    /// The number of nodes whose BidNode has another value for one of the labels: that value stands.
    #[serde(default)]
    pub conflicts: u32,
    /// The generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions `Synced` and `Conflict`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
