//! Plans which labels a node gets from the NodePoolLabelSet of its pool.
//!
//! Two annotations of the node remember what came from a set: the keys that were set, and the values that were there
//! before. A label that is not wanted any more is restored or removed, and a label that others set stays.
//!
//! The kubelet of a node can write these annotations. So they count only for labels that it could write as well: a label of a
//! [reserved domain](is_reserved) is neither restored nor removed because of them.

use super::node::applied_labels;
use crate::api::{NodePoolLabelSet, NodePoolLabelSetSpec, PREVIOUS_SUFFIX};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};
use kubebid_controller::manager::PAUSED;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// The rules by which the pool of a node is found, and the annotations in which a node remembers its set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRules {
    /// The labels with the name of the pool, the most important first.
    pub pool_labels: Vec<String>,
    /// The annotation with the keys that came from a set, as a sorted JSON list.
    pub managed_annotation: String,
    /// The annotation with the values that were there before, as a JSON object.
    pub previous_annotation: String,
}

impl LabelRules {
    /// Returns rules with these labels of pools, and this annotation and the one beside it.
    pub fn new(pool_labels: Vec<String>, managed_annotation: &str) -> LabelRules {
        LabelRules {
            pool_labels,
            managed_annotation: managed_annotation.to_owned(),
            previous_annotation: format!("{managed_annotation}{PREVIOUS_SUFFIX}"),
        }
    }
}

/// The sets that count, and the rules.
#[derive(Clone, Copy)]
pub struct Pools<'a> {
    /// The rules.
    pub rules: &'a LabelRules,
    /// Returns the set of a pool, if it has one that counts.
    pub set_of: &'a dyn Fn(&str) -> Option<Arc<NodePoolLabelSet>>,
}

impl std::fmt::Debug for Pools<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pools").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// The difference between a node and what its set wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelPatch {
    /// The labels to set; `None` removes one.
    pub labels: BTreeMap<String, Option<String>>,
    /// The annotations to set; `None` removes one.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The keys of the set that the node's BidNode has with another value: that value stands.
    pub conflicts: BTreeSet<String>,
}

impl LabelPatch {
    /// Returns true if the node is as it is wanted.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }

    /// Returns the merge patch of a node that no BidNode writes, if it needs one. It fails on a node that has changed.
    pub fn of_node(&self, node: &Node) -> Option<Value> {
        let metadata = json!({
            "resourceVersion": node.resource_version(), "labels": self.labels, "annotations": self.annotations,
        });
        (!self.is_empty()).then(|| json!({"metadata": metadata}))
    }
}

/// Returns what is to be changed of a node that is written by itself.
pub fn plan(node: &Node, pools: &Pools<'_>) -> LabelPatch {
    plan_after(node, node.labels(), &applied_labels(node), pools)
}

/// Returns what is to be changed of a node that has these labels, of which these came from its BidNode.
pub fn plan_after(
    node: &Node,
    labels: &Labels,
    of_bidnode: &BTreeSet<String>,
    pools: &Pools<'_>,
) -> LabelPatch {
    let Memory { managed, mut previous, is_corrupt } = Memory::of(node, pools.rules);
    let mut patch = LabelPatch::default();
    let pool = pool(labels, of_bidnode, &managed, &previous, pools.rules);
    let set = pool.and_then(|(_, pool)| (pools.set_of)(pool));
    if set.as_deref().is_some_and(is_paused) {
        return patch;
    }
    let mut wanted = Labels::new();
    for (key, value) in set.iter().flat_map(|set| &set.spec.labels) {
        // The label that says which pool it is has this value already, and stays with whoever set it.
        if is_reserved(key) || pool.is_some_and(|(names_pool, _)| names_pool == key) {
            continue;
        }
        if !of_bidnode.contains(key) {
            wanted.insert(key.clone(), value.clone());
        } else if labels.get(key) != Some(value) {
            patch.conflicts.insert(key.clone());
        }
    }
    for key in managed.iter().filter(|key| !wanted.contains_key(*key)) {
        let before = previous.remove(key);
        if !of_bidnode.contains(key) && labels.get(key) != before.as_ref() {
            patch.labels.insert(key.clone(), before);
        }
    }
    for (key, value) in &wanted {
        let there = labels.get(key);
        // If the list of keys is lost, a label that is there may be one that we set.
        if let Some(there) = there.filter(|_| !managed.contains(key) && !is_corrupt) {
            previous.insert(key.clone(), there.clone());
        }
        if there != Some(value) {
            patch.labels.insert(key.clone(), Some(value.clone()));
        }
    }
    let keys: Vec<&String> = wanted.keys().collect();
    let annotations = [
        (&pools.rules.managed_annotation, (!keys.is_empty()).then(|| text(&keys))),
        (&pools.rules.previous_annotation, (!previous.is_empty()).then(|| text(&previous))),
    ];
    for (name, value) in annotations {
        if node.annotations().get(name) != value.as_ref() {
            patch.annotations.insert(name.clone(), value);
        }
    }
    patch
}

/// Returns the labels of a new node, of which these come from its BidNode, with those of its set.
pub fn with_set(labels: Labels, of_bidnode: &BTreeSet<String>, pools: &Pools<'_>) -> Labels {
    let patch = plan_after(&Node::default(), &labels, of_bidnode, pools);
    let of_set = patch.labels.into_iter().filter_map(|(key, value)| Some((key, value?)));
    labels.into_iter().chain(of_set).collect()
}

/// Returns the pool of a node, by what others than a NodePoolLabelSet wrote.
pub fn pool_of(node: &Node, rules: &LabelRules) -> Option<String> {
    let Memory { managed, previous, .. } = Memory::of(node, rules);
    pool(node.labels(), &applied_labels(node), &managed, &previous, rules).map(|(_, pool)| pool.to_owned())
}

/// Returns true if an annotation of a node cannot be read. The next patch writes it anew.
pub fn is_corrupt(node: &Node, rules: &LabelRules) -> bool {
    Memory::of(node, rules).is_corrupt
}

/// Returns the label of a pool to which a set gives another pool's name. Such a set does not count: it would move its
/// nodes to the other pool, lose them and get them back.
pub fn foreign_pool_label<'a>(set: &'a NodePoolLabelSet, rules: &LabelRules) -> Option<(&'a str, &'a str)> {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let mut labels = set.spec.labels.iter();
    let foreign = labels.find(|(key, value)| rules.pool_labels.contains(key) && *value != name);
    foreign.map(|(key, value)| (key.as_str(), value.as_str()))
}

/// Returns true if people have paused a set: its nodes stay as they are.
pub fn is_paused(set: &NodePoolLabelSet) -> bool {
    set.annotations().get(&paused_annotation()).is_some_and(|value| value == "true")
}

/// Returns a paused set with this metadata.
pub fn paused(metadata: ObjectMeta) -> NodePoolLabelSet {
    let mut set = NodePoolLabelSet { metadata, spec: NodePoolLabelSetSpec::default(), status: None };
    set.annotations_mut().insert(paused_annotation(), "true".to_owned());
    set
}

fn paused_annotation() -> String {
    format!("{}/{PAUSED}", NodePoolLabelSet::group(&()))
}

/// Merges what a set changes into the patch that registers a node.
pub(super) fn merge(
    patch: LabelPatch,
    labels: &mut Map<String, Value>,
    annotations: &mut Map<String, Value>,
) {
    labels.extend(patch.labels.into_iter().map(|(key, value)| (key, json!(value))));
    annotations.extend(patch.annotations.into_iter().map(|(key, value)| (key, json!(value))));
}

/// Returns true if the key of a label is in a domain of Kubernetes. The admission plugin NodeRestriction lets no kubelet write
/// most labels of these domains, and no set gives one.
pub fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_in = |reserved: &str| {
        domain.strip_suffix(reserved).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    ["kubernetes.io", "k8s.io"].into_iter().any(is_in)
}

/// The memory of a node: the keys that came from a set, and the values that were there before.
struct Memory {
    managed: BTreeSet<String>,
    previous: Labels,
    is_corrupt: bool,
}

impl Memory {
    fn of(node: &Node, rules: &LabelRules) -> Memory {
        let managed = read::<Vec<String>>(node, &rules.managed_annotation);
        let previous = read::<Labels>(node, &rules.previous_annotation);
        let is_corrupt = managed.is_err() || previous.is_err();
        let mut previous = previous.unwrap_or_default();
        let managed: BTreeSet<String> = match managed {
            Ok(managed) => managed.into_iter().collect(),
            // Whatever had a value before was set.
            Err(_) => previous.keys().cloned().collect(),
        };
        let managed: BTreeSet<String> = managed.into_iter().filter(|key| !is_reserved(key)).collect();
        previous.retain(|key, _| managed.contains(key));
        Memory { managed, previous, is_corrupt }
    }
}

/// Returns the label that says which pool a node is in, and the pool. A label that a set wrote does not count, but the
/// value that it had before: otherwise a set could keep a node for ever.
fn pool<'a>(
    labels: &'a Labels,
    of_bidnode: &BTreeSet<String>,
    managed: &BTreeSet<String>,
    previous: &'a Labels,
    rules: &'a LabelRules,
) -> Option<(&'a str, &'a str)> {
    let value = |key: &String| {
        let is_managed = managed.contains(key) && !of_bidnode.contains(key);
        if is_managed { previous.get(key) } else { labels.get(key) }
    };
    rules
        .pool_labels
        .iter()
        .find_map(|key| value(key).filter(|pool| !pool.is_empty()).map(|pool| (key.as_str(), pool.as_str())))
}

/// Reads an annotation, as empty if it is absent.
fn read<T: DeserializeOwned + Default>(node: &Node, annotation: &str) -> Result<T, serde_json::Error> {
    node.annotations().get(annotation).map_or_else(|| Ok(T::default()), |text| serde_json::from_str(text))
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ANNOTATION_MANAGED_LABELS, POOL_LABELS};

    const FIRST: &str = POOL_LABELS[0];

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn rules() -> LabelRules {
        LabelRules::new(POOL_LABELS.map(str::to_owned).to_vec(), ANNOTATION_MANAGED_LABELS)
    }

    fn node(pairs: &[(&str, &str)]) -> Node {
        let mut node = Node::default();
        node.metadata.labels = Some(labels(pairs));
        node
    }

    fn set(name: &str, labels: &Labels) -> Arc<NodePoolLabelSet> {
        Arc::new(NodePoolLabelSet::new(name, NodePoolLabelSetSpec { labels: labels.clone() }))
    }

    /// Has a node follow what these sets want. Returns the patch.
    fn follow(node: &mut Node, sets: &[(&str, &Labels)]) -> LabelPatch {
        let set_of = |pool: &str| sets.iter().find(|it| it.0 == pool).map(|(name, labels)| set(name, labels));
        let patch = plan(node, &Pools { rules: &rules(), set_of: &set_of });
        let apply = |there: &mut Option<Labels>, changes: &BTreeMap<String, Option<String>>| {
            let there = there.get_or_insert_default();
            for (key, value) in changes {
                match value {
                    Some(value) => drop(there.insert(key.clone(), value.clone())),
                    None => drop(there.remove(key)),
                }
            }
        };
        apply(&mut node.metadata.labels, &patch.labels);
        apply(&mut node.metadata.annotations, &patch.annotations);
        patch
    }

    fn annotation<'a>(node: &'a Node, end: &str) -> Option<&'a str> {
        node.annotations().get(&format!("{ANNOTATION_MANAGED_LABELS}{end}")).map(String::as_str)
    }

    #[test]
    fn a_node_gets_the_labels_of_its_set_and_loses_them_with_it() {
        let mut node = node(&[("agentpool", "a"), ("theirs", "1"), ("team", "old")]);
        node.metadata.annotations = Some(Labels::new());
        let before = node.clone();
        let set = labels(&[("team", "ml"), ("tier", "gold")]);
        follow(&mut node, &[("a", &set)]);
        let wanted = labels(&[("agentpool", "a"), ("team", "ml"), ("theirs", "1"), ("tier", "gold")]);
        assert_eq!(*node.labels(), wanted);
        assert_eq!(annotation(&node, ""), Some(r#"["team","tier"]"#));
        assert_eq!(annotation(&node, PREVIOUS_SUFFIX), Some(r#"{"team":"old"}"#));
        assert!(follow(&mut node, &[("a", &set)]).is_empty(), "the same again changes nothing");
        node.labels_mut().remove("tier");
        follow(&mut node, &[("a", &set)]);
        assert_eq!(node.labels()["tier"], "gold", "a label that was removed by hand comes back");
        follow(&mut node, &[]);
        assert_eq!(node, before, "the value that was there before is restored");
    }

    #[test]
    fn the_value_of_the_bidnode_stands() {
        let mut node = node(&[("agentpool", "a"), ("team", "ml")]);
        let applied = r#"{"labels":["team"],"taints":[]}"#.to_owned();
        node.annotations_mut().insert("kubebid.io/applied".to_owned(), applied);
        let patch = follow(&mut node, &[("a", &labels(&[("team", "web"), ("x", "1")]))]);
        assert_eq!(patch.conflicts.into_iter().collect::<Vec<_>>(), ["team"]);
        assert_eq!(*node.labels(), labels(&[("agentpool", "a"), ("team", "ml"), ("x", "1")]));
        assert_eq!(annotation(&node, ""), Some(r#"["x"]"#));
    }

    #[test]
    fn a_corrupt_annotation_is_written_anew() {
        let mut corrupt = node(&[("agentpool", "a"), ("x", "1"), ("y", "1")]);
        corrupt.annotations_mut().insert(ANNOTATION_MANAGED_LABELS.to_owned(), "[".to_owned());
        let previous = format!("{ANNOTATION_MANAGED_LABELS}{PREVIOUS_SUFFIX}");
        corrupt.annotations_mut().insert(previous, r#"{"y":"0"}"#.to_owned());
        assert!(is_corrupt(&corrupt, &rules()));
        follow(&mut corrupt, &[("a", &labels(&[("x", "1")]))]);
        assert!(!is_corrupt(&corrupt, &rules()));
        assert_eq!(annotation(&corrupt, ""), Some(r#"["x"]"#));
        assert_eq!(annotation(&corrupt, PREVIOUS_SUFFIX), None, "the label may have been ours");
        assert_eq!(corrupt.labels()["y"], "0", "what was there before is still known");
    }

    #[test]
    fn a_label_that_the_kubelet_may_not_write_is_not_written_for_its_annotations() {
        let secret = "node-restriction.kubernetes.io/secret";
        let role = "node-role.kubernetes.io/control-plane";
        let mut node = node(&[("agentpool", "a"), ("topology.kubernetes.io/region", "eu"), (secret, "no")]);
        let claims = json!([role, secret, "topology.kubernetes.io/region", "kubebid.io/slot", "own"]);
        node.annotations_mut().insert(ANNOTATION_MANAGED_LABELS.to_owned(), claims.to_string());
        let claims = json!({role: "", secret: "yes", "a.k8s.io/x": "1", "own": "1"});
        let previous = format!("{ANNOTATION_MANAGED_LABELS}{PREVIOUS_SUFFIX}");
        node.annotations_mut().insert(previous, claims.to_string());
        let before = node.labels().clone();
        for set in [labels(&[]), labels(&[("tier", "gold")])] {
            follow(&mut node, &[("a", &set)]);
            follow(&mut node, &[]);
        }
        let own = [("own".to_owned(), "1".to_owned())];
        assert_eq!(*node.labels(), before.into_iter().chain(own).collect());
        for key in ["kubernetes.io/x", "a.b.k8s.io/x", role, secret] {
            assert!(is_reserved(key), "{key}");
        }
        for key in ["x", "mykubernetes.io/x", "kubernetes.io.example.com/x", "kubebid.io/bidnode"] {
            assert!(!is_reserved(key), "{key}");
        }
    }

    #[test]
    fn a_set_may_give_its_own_pools_name_and_never_keeps_a_node_by_it() {
        let own = labels(&[(FIRST, "a"), ("tier", "gold")]);
        assert_eq!(foreign_pool_label(&set("a", &own), &rules()), None);
        assert_eq!(foreign_pool_label(&set("b", &own), &rules()), Some((FIRST, "a")));
        let other = labels(&[("tier", "silver")]);
        let sets = [("a", &own), ("b", &other)];
        // The set adds the most important label of the pool, and a less important one still moves the node.
        let mut moved = node(&[("agentpool", "a")]);
        follow(&mut moved, &sets);
        assert_eq!(moved.labels()[FIRST], "a");
        moved.labels_mut().insert("agentpool".to_owned(), "b".to_owned());
        follow(&mut moved, &sets);
        assert_eq!(*moved.labels(), labels(&[("agentpool", "b"), ("tier", "silver")]));
        // A node that others put into the pool by that very label is moved by it too.
        let mut node = node(&[(FIRST, "a")]);
        follow(&mut node, &sets);
        assert_eq!(annotation(&node, ""), Some(r#"["tier"]"#));
        node.labels_mut().insert(FIRST.to_owned(), "b".to_owned());
        follow(&mut node, &sets);
        assert_eq!(*node.labels(), labels(&[(FIRST, "b"), ("tier", "silver")]));
    }

    #[test]
    fn a_paused_set_leaves_its_nodes_as_they_are() {
        let paused = Arc::new(paused(ObjectMeta::default()));
        assert_eq!(paused.annotations()["labels.banzaicloud.io/paused"], "true");
        let mut node = node(&[("agentpool", "a"), ("tier", "gold")]);
        node.annotations_mut().insert(ANNOTATION_MANAGED_LABELS.to_owned(), r#"["tier"]"#.to_owned());
        let set_of = |_: &str| Some(Arc::clone(&paused));
        assert!(plan(&node, &Pools { rules: &rules(), set_of: &set_of }).is_empty());
    }

    #[test]
    fn whatever_sets_come_the_labels_of_others_stay_and_all_is_restored_at_the_end() {
        // With labels of pools among them.
        let keys = ["a", "b", FIRST, "agentpool", "agent"];
        for seed in 0..500_u64 {
            let mut random = fastrand::Rng::with_seed(seed);
            // The labels of a set name its own pool, those of a node any.
            let mut some = |pool: Option<&str>| -> Labels {
                let mut labels = Labels::new();
                for key in keys {
                    let value = random.u8(..3).to_string();
                    let own = pool.filter(|_| POOL_LABELS.contains(&key)).map(str::to_owned);
                    if random.bool() {
                        labels.insert(key.to_owned(), own.unwrap_or(value));
                    }
                }
                labels
            };
            let mut node = node(&[]);
            node.metadata.labels = Some(some(None));
            node.metadata.annotations = Some(Labels::new());
            let before = node.clone();
            for _ in 0..6 {
                let sets: Vec<_> = ["0", "1", "2"].map(|pool| (pool, some(Some(pool)))).to_vec();
                let sets: Vec<_> = sets.iter().map(|(pool, labels)| (*pool, labels)).collect();
                let pool = pool_of(&node, &rules());
                follow(&mut node, &sets);
                assert_eq!(pool_of(&node, &rules()), pool, "seed {seed}: a set moves no node");
                for (key, value) in sets.iter().filter(|it| Some(it.0) == pool.as_deref()).flat_map(|it| it.1)
                {
                    assert_eq!(node.labels().get(key), Some(value), "seed {seed}");
                }
                assert!(follow(&mut node, &sets).is_empty(), "seed {seed}: twice");
            }
            follow(&mut node, &[]);
            assert_eq!(node, before, "seed {seed}");
        }
    }

    #[test]
    fn the_pool_of_a_node_is_the_first_label_with_a_value() {
        let pool = |pairs| pool_of(&node(pairs), &rules());
        assert_eq!(pool(&[(FIRST, ""), ("agent", "b")]).as_deref(), Some("b"));
        assert_eq!(pool(&[("agent", "b"), (FIRST, "a")]).as_deref(), Some("a"));
        assert_eq!(pool(&[("other", "c")]), None);
    }
}
