//! Plans the patches of a Node object: labels, taints, annotations.

use super::labels::{LabelPatch, Pools, merge, plan_after};
use crate::api::{
    ANNOTATION_NAMESPACE, Applied, AppliedTaint, BidNode, BidSlot, LABEL_BIDNODE, LABEL_REGION, LABEL_SLOT,
    LABEL_SLOT_UID, LABEL_UID, TAINT_LEAVING, TAINT_UNREGISTERED,
};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The annotation of a Node with the labels that came from its BidNode. It tells the controller of node pool labels, which may
/// be another process, whose value of a label stands. Nothing is removed because of it: the node's kubelet can write it.
const ANNOTATION_APPLIED: &str = "kubebid.io/applied";

#[derive(Deserialize, Default)]
struct AppliedAnnotation {
    labels: BTreeSet<String>,
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

/// Returns the keys of the labels that a node has from its BidNode, as the node says.
pub(super) fn applied_labels(node: &Node) -> BTreeSet<String> {
    let annotation = node.annotations().get(ANNOTATION_APPLIED);
    let applied = annotation.and_then(|text| serde_json::from_str::<AppliedAnnotation>(text).ok());
    applied.unwrap_or_default().labels
}

/// Returns the labels and taints that the node of a slot is to have from its BidNode.
pub fn applied(bidnode: &BidNode, slot: &BidSlot) -> Applied {
    let taints = taints(bidnode).into_iter();
    Applied {
        labels: labels_of_slot(bidnode, slot).into_keys().collect(),
        taints: taints.map(|taint| AppliedTaint { key: taint.key, effect: taint.effect }).collect(),
    }
}

/// Returns the labels that the node of a slot is to have from its BidNode.
fn labels_of_slot(bidnode: &BidNode, slot: &BidSlot) -> BTreeMap<String, String> {
    let mut labels = labels(bidnode);
    labels.insert(LABEL_SLOT.to_owned(), slot.name_any());
    labels.insert(LABEL_SLOT_UID.to_owned(), slot.uid().unwrap_or_default());
    if let Some(region) = slot.status.as_ref().and_then(|status| status.region()) {
        labels.insert(LABEL_REGION.to_owned(), region.to_owned());
    }
    labels
}

/// Returns the one patch that registers a node: it sets labels and taints, those of the node's NodePoolLabelSet too, and
/// removes the taint that the node came with. What the node had from its BidNode before is in the status of the slot. Returns
/// `None` if the node needs no patch and the status is up to date.
pub fn registration(
    node: &Node,
    bidnode: &BidNode,
    slot: &BidSlot,
    pools: Option<&Pools<'_>>,
) -> Option<Value> {
    let wanted = labels_of_slot(bidnode, slot);
    let before = slot.status.as_ref().and_then(|status| status.applied.clone());
    let (applied, ours) = (applied(bidnode, slot), taints(bidnode));
    // A slot of an earlier operator has no record.
    let is_recorded = before.as_ref().is_none_or(|before| *before == applied);
    let before = before.unwrap_or_default();
    let pair = |taint: &Taint| AppliedTaint { key: taint.key.clone(), effect: taint.effect.clone() };
    let annotation = json!({"labels": applied.labels}).to_string();

    let mut label_changes = Map::new();
    for key in before.labels.difference(&applied.labels) {
        label_changes.insert(key.clone(), Value::Null);
    }
    for (key, value) in &wanted {
        if node.labels().get(key) != Some(value) {
            label_changes.insert(key.clone(), json!(value));
        }
    }
    let of_set = pools.map(|pools| {
        let mut labels = node.labels().clone();
        labels.retain(|key, _| label_changes.get(key) != Some(&Value::Null));
        labels.extend(wanted);
        plan_after(node, &labels, &applied.labels, pools)
    });
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
    let is_as_set = of_set.as_ref().is_none_or(LabelPatch::is_empty);
    let is_annotated = node.annotations().get(ANNOTATION_APPLIED) == Some(&annotation);
    if label_changes.is_empty() && is_as_set && taints == there && is_annotated && is_recorded {
        return None;
    }
    let mut annotations = Map::new();
    annotations.insert(ANNOTATION_NAMESPACE.to_owned(), json!(bidnode.namespace()));
    annotations.insert(ANNOTATION_APPLIED.to_owned(), json!(annotation));
    if let Some(of_set) = of_set {
        merge(of_set, &mut label_changes, &mut annotations);
    }
    Some(json!({
        "metadata": {
            "resourceVersion": node.resource_version(),
            "labels": label_changes,
            "annotations": annotations,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ANNOTATION_MANAGED_LABELS, NodePoolLabelSet, NodePoolLabelSetSpec, POOL_LABELS};
    use crate::plan::labels::LabelRules;
    use std::sync::Arc;

    /// Returns the patch that registers a node of BidNode `gpu` with this selector, whose pool has this set, and what the node has
    /// from the BidNode then. It had this before.
    fn patch(node: &Value, before: &Applied, selector: Value, set: Value) -> (Option<Value>, Applied) {
        let node: Node = serde_json::from_value(node.clone()).unwrap();
        let spec = json!({"instanceType": "t", "maxBid": 1, "nodeSelector": selector});
        let mut bidnode = BidNode::new("gpu", serde_json::from_value(spec).unwrap());
        bidnode.metadata.uid = Some("b".to_owned());
        bidnode.metadata.namespace = Some("n".to_owned());
        let mut slot = BidSlot::new("gpu-0", serde_json::from_value(json!({"instanceType": "t"})).unwrap());
        slot.metadata.uid = Some("s".to_owned());
        slot.status.get_or_insert_default().applied = Some(before.clone());
        let rules = LabelRules::new(POOL_LABELS.map(str::to_owned).to_vec(), ANNOTATION_MANAGED_LABELS);
        let spec: NodePoolLabelSetSpec = serde_json::from_value(json!({"labels": set})).unwrap();
        let set = Arc::new(NodePoolLabelSet::new("gpu", spec));
        let set_of = |pool: &str| (pool == "gpu").then(|| Arc::clone(&set));
        let pools = Pools { rules: &rules, set_of: &set_of };
        (registration(&node, &bidnode, &slot, Some(&pools)), applied(&bidnode, &slot))
    }

    /// Applies a merge patch to a value.
    fn merge(value: &mut Value, patch: &Value) {
        let Some(fields) = patch.as_object() else { return *value = patch.clone() };
        for (key, patch) in fields {
            if patch.is_null() {
                value.as_object_mut().unwrap().remove(key);
            } else {
                let there = value.as_object_mut().unwrap().entry(key.clone()).or_insert_with(|| json!({}));
                merge(there, patch);
            }
        }
    }

    #[test]
    fn one_patch_gives_a_node_the_labels_of_its_bidnode_and_of_its_set() {
        let unregistered = json!({"key": TAINT_UNREGISTERED, "value": "s", "effect": "NoExecute"});
        let theirs = json!({"key": "theirs", "effect": "NoSchedule"});
        let mut node = json!({
            "metadata": {"name": "n0", "labels": {"tier": "old"}, "annotations": {}},
            "spec": {"taints": [unregistered, theirs]},
        });
        let set = json!({"tier": "gold", "team": "ml"});
        let mut before = Applied::default();
        let mut follow = |selector: Value, set: &Value| {
            let (patch, applied) = patch(&node, &before, selector, set.clone());
            merge(&mut node, &patch.unwrap());
            before = applied.clone();
            (node.clone(), applied)
        };
        let (node, applied) = follow(json!({"team": "web"}), &set);
        assert_eq!(node["spec"]["taints"], json!([theirs]));
        let label = |node: &Value, key: &str| node["metadata"]["labels"][key].clone();
        assert_eq!((label(&node, "tier"), label(&node, "team")), (json!("gold"), json!("web")));
        assert_eq!(node["metadata"]["annotations"][ANNOTATION_MANAGED_LABELS], json!(r#"["tier"]"#));
        assert_eq!(patch(&node, &applied, json!({"team": "web"}), set.clone()).0, None, "it is registered");
        // The BidNode gives the label up, and then takes it back.
        assert_eq!(label(&follow(json!({}), &set).0, "team"), json!("ml"));
        assert_eq!(label(&follow(json!({"team": "web"}), &set).0, "team"), json!("web"));
        // The set gives its label up.
        let (node, _) = follow(json!({"team": "web"}), &json!({}));
        assert_eq!((label(&node, "tier"), label(&node, "team")), (json!("old"), json!("web")));
        let annotations = node["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations.keys().collect::<Vec<_>>(), [ANNOTATION_APPLIED, ANNOTATION_NAMESPACE]);
    }

    #[test]
    fn what_a_kubelet_says_about_its_node_removes_nothing() {
        let theirs = json!({"key": "theirs", "effect": "NoSchedule"});
        let node = json!({
            "metadata": {"name": "n0", "labels": {"tier": "old"}, "annotations": {}}, "spec": {"taints": [theirs]},
        });
        let (registered, applied) = patch(&node, &Applied::default(), json!({"team": "web"}), json!({}));
        let mut forged = node;
        merge(&mut forged, &registered.unwrap());
        let claims = json!({"labels": ["tier"], "taints": [["theirs", "NoSchedule"]]}).to_string();
        forged["metadata"]["annotations"][ANNOTATION_APPLIED] = json!(claims);
        let (again, _) = patch(&forged, &applied, json!({}), json!({}));
        merge(&mut forged, &again.unwrap());
        assert_eq!(forged["spec"]["taints"], json!([theirs]));
        let labels = &forged["metadata"]["labels"];
        assert_eq!((&labels["tier"], &labels["team"]), (&json!("old"), &Value::Null));
    }
}
