//! Plans the patches of a Node object: labels, taints, annotations.

use crate::api::{
    ANNOTATION_NAMESPACE, BidNode, BidSlot, LABEL_BIDNODE, LABEL_REGION, LABEL_SLOT, LABEL_SLOT_UID,
    LABEL_UID, TAINT_LEAVING, TAINT_UNREGISTERED,
};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The annotation of a Node with the labels and taints that came from its BidNode: those that the BidNode loses are removed.
const ANNOTATION_APPLIED: &str = "kubebid.io/applied";

#[derive(Serialize, Deserialize, Default, PartialEq, Debug)]
struct Applied {
    labels: BTreeSet<String>,
    /// The key and the effect of each taint.
    taints: BTreeSet<(String, String)>,
}

/// Returns the labels that a BidNode gives its nodes.
pub fn labels(bidnode: &BidNode) -> BTreeMap<String, String> {
    let mut labels = bidnode.spec.node_selector.clone();
    labels.insert(LABEL_BIDNODE.to_owned(), bidnode.name_any());
    labels.insert(LABEL_UID.to_owned(), bidnode.uid().unwrap_or_default());
    labels
}

/// Returns the taints that a BidNode gives its nodes.
pub fn taints(bidnode: &BidNode) -> Vec<Taint> {
    let taints = bidnode.spec.taints.iter().map(|taint| Taint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: taint.effect.name().to_owned(),
        time_added: None,
    });
    taints.collect()
}

/// Returns the one patch that registers a node: it sets labels and taints, and removes the taint that the node came with.
/// Returns `None` if the node needs no patch.
pub fn registration(node: &Node, bidnode: &BidNode, slot: &BidSlot) -> Option<Value> {
    let mut wanted = labels(bidnode);
    wanted.insert(LABEL_SLOT.to_owned(), slot.name_any());
    wanted.insert(LABEL_SLOT_UID.to_owned(), slot.uid().unwrap_or_default());
    if let Some(region) = slot.status.as_ref().and_then(|status| status.region()) {
        wanted.insert(LABEL_REGION.to_owned(), region.to_owned());
    }
    let before: Applied = node
        .annotations()
        .get(ANNOTATION_APPLIED)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let ours = taints(bidnode);
    let pair = |taint: &Taint| (taint.key.clone(), taint.effect.clone());
    let applied =
        Applied { labels: wanted.keys().cloned().collect(), taints: ours.iter().map(pair).collect() };

    let mut label_changes: BTreeMap<&str, Value> = BTreeMap::new();
    for key in before.labels.difference(&applied.labels) {
        label_changes.insert(key, Value::Null);
    }
    for (key, value) in &wanted {
        if node.labels().get(key) != Some(value) {
            label_changes.insert(key, json!(value));
        }
    }
    let there = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let mut taints: Vec<Taint> = there
        .iter()
        .filter(|taint| taint.key != TAINT_UNREGISTERED)
        .filter(|taint| !before.taints.contains(&pair(taint)) || applied.taints.contains(&pair(taint)))
        .cloned()
        .collect();
    for taint in ours {
        match taints.iter_mut().find(|it| pair(it) == pair(&taint)) {
            Some(it) => it.value = taint.value,
            None => taints.push(taint),
        }
    }
    if label_changes.is_empty() && taints == there && applied == before {
        return None;
    }
    Some(json!({
        "metadata": {
            "resourceVersion": node.resource_version(),
            "labels": label_changes,
            "annotations": {
                ANNOTATION_NAMESPACE: bidnode.namespace(),
                ANNOTATION_APPLIED: serde_json::to_string(&applied).unwrap_or_default(),
            },
        },
        "spec": {"taints": taints},
    }))
}

/// Returns the patch that adds the taint of nodes that are given up.
pub fn with_leaving(node: &Node) -> Value {
    let mut taints = others(node, TAINT_LEAVING);
    taints.push(Taint { key: TAINT_LEAVING.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() });
    json!({"metadata": {"resourceVersion": node.resource_version()}, "spec": {"taints": taints}})
}

/// Returns the patch that removes a taint.
pub fn without(node: &Node, key: &str) -> Value {
    json!({"metadata": {"resourceVersion": node.resource_version()}, "spec": {"taints": others(node, key)}})
}

fn others(node: &Node, key: &str) -> Vec<Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.key != key).cloned().collect()
}
