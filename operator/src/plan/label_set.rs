//! Plans the status of a NodePoolLabelSet: how many nodes have its labels, and what is in the way.

use super::labels::is_paused;
use crate::api::{NodePoolLabelSet, NodePoolLabelSetStatus};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kubebid_controller::conditions::{self, NewCondition};
use std::collections::BTreeSet;

/// The most names that a message of a condition lists.
const NAMES_MAX: usize = 5;

/// The standing of a set: it counts, or it says why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It counts.
    Counts,
    /// It is not in the namespace whose sets count.
    OtherNamespace {
        /// The namespace whose sets count.
        namespace: String,
    },
    /// It gives a label of a pool the name of another pool.
    ForeignPool {
        /// The label.
        label: String,
        /// The other pool.
        pool: String,
    },
}

/// A node of the set's pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolNode {
    /// Its name.
    pub name: String,
    /// True if it has the labels.
    pub is_updated: bool,
    /// The keys that its BidNode has with another value.
    pub conflicts: BTreeSet<String>,
    /// The API server's refusal of the last patch, if it refused it.
    pub refusal: Option<String>,
}

/// Returns the status of a set, from the nodes of its pool in the order of their names.
pub fn status(
    set: &NodePoolLabelSet,
    standing: &Standing,
    nodes: &[PoolNode],
    now: Timestamp,
) -> NodePoolLabelSetStatus {
    let previous = set.status.clone().unwrap_or_default();
    let nodes = if *standing == Standing::Counts { nodes } else { &[] };
    let count =
        |is_so: fn(&&PoolNode) -> bool| u32::try_from(nodes.iter().filter(is_so).count()).unwrap_or(u32::MAX);
    let mut status = NodePoolLabelSetStatus {
        desired: count(|_| true),
        // The labels of a paused set are not compared with those of the nodes.
        updated: if is_paused(set) { previous.updated } else { count(|node| node.is_updated) },
        conflicts: count(|node| !node.conflicts.is_empty()),
        observed_generation: set.metadata.generation,
        conditions: previous.conditions,
    };
    for condition in [synced(set, standing, nodes, &status), conflict(nodes)] {
        conditions::set(&mut status.conditions, condition, set.metadata.generation, now);
    }
    status
}

fn synced(
    set: &NodePoolLabelSet,
    standing: &Standing,
    nodes: &[PoolNode],
    status: &NodePoolLabelSetStatus,
) -> NewCondition {
    let (is, reason, message) = match standing {
        Standing::OtherNamespace { namespace } => {
            (false, "OtherNamespace", format!("only sets of namespace {namespace} count"))
        }
        Standing::ForeignPool { label, pool } => {
            let message =
                format!("it would move nodes of pool {} to pool {pool} by label {label}", set.name_any());
            (false, "ForeignPool", message)
        }
        Standing::Counts if is_paused(set) => {
            (false, "Paused", "it is paused: its nodes keep the labels that they have".to_owned())
        }
        Standing::Counts => {
            let refused = nodes.iter().find_map(|node| Some((&node.name, node.refusal.as_ref()?)));
            let of = format!("{} of {} nodes have the labels", status.updated, status.desired);
            match refused {
                Some((node, refusal)) => (false, "Refused", format!("{of}; node {node}: {refusal}")),
                None if status.updated < status.desired => (false, "Updating", of),
                None => (true, "Synced", of),
            }
        }
    };
    NewCondition::new("Synced", is, reason, message)
}

fn conflict(nodes: &[PoolNode]) -> NewCondition {
    let nodes: Vec<&PoolNode> = nodes.iter().filter(|node| !node.conflicts.is_empty()).collect();
    if nodes.is_empty() {
        return NewCondition::new("Conflict", false, "None", "no BidNode has another value for a label");
    }
    let keys: BTreeSet<&str> = nodes.iter().flat_map(|node| &node.conflicts).map(String::as_str).collect();
    let message = format!(
        "BidNodes have other values, which stand, for {} on {}",
        list(keys.into_iter()),
        list(nodes.iter().map(|node| node.name.as_str())),
    );
    NewCondition::new("Conflict", true, "BidNode", message)
}

/// Returns the first names of a list, and how many more there are.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let first = names[..names.len().min(NAMES_MAX)].join(", ");
    match names.len() - names.len().min(NAMES_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::labels::paused;

    fn node(name: &str, is_updated: bool) -> PoolNode {
        PoolNode { name: name.to_owned(), is_updated, ..PoolNode::default() }
    }

    /// Returns counts, and the conditions as `type status reason: message`.
    fn said(standing: &Standing, nodes: &[PoolNode]) -> (u32, u32, u32, Vec<String>) {
        let set = NodePoolLabelSet::new("a", Default::default());
        let status = status(&set, standing, nodes, Timestamp::UNIX_EPOCH);
        let conditions = status
            .conditions
            .iter()
            .map(|it| format!("{} {} {}: {}", it.type_, it.status, it.reason, it.message));
        (status.desired, status.updated, status.conflicts, conditions.collect())
    }

    #[test]
    fn a_paused_set_is_not_synced() {
        let mut set = paused(Default::default());
        set.status = Some(NodePoolLabelSetStatus { updated: 1, ..NodePoolLabelSetStatus::default() });
        let nodes = [node("n1", true), node("n2", true)];
        let status = status(&set, &Standing::Counts, &nodes, Timestamp::UNIX_EPOCH);
        assert_eq!((status.desired, status.updated), (2, 1));
        let synced = &status.conditions[0];
        assert_eq!((synced.status.as_str(), synced.reason.as_str()), ("False", "Paused"));
    }

    #[test]
    fn a_set_is_synced_when_all_nodes_have_its_labels() {
        let (desired, updated, conflicts, conditions) =
            said(&Standing::Counts, &[node("n1", true), node("n2", false)]);
        assert_eq!((desired, updated, conflicts), (2, 1, 0));
        assert_eq!(conditions[0], "Synced False Updating: 1 of 2 nodes have the labels");
        let (.., conditions) = said(&Standing::Counts, &[node("n1", true)]);
        assert_eq!(conditions[0], "Synced True Synced: 1 of 1 nodes have the labels");
        let refused = PoolNode { refusal: Some("no".to_owned()), ..node("n2", false) };
        let (.., conditions) = said(&Standing::Counts, &[node("n1", true), refused]);
        assert_eq!(conditions[0], "Synced False Refused: 1 of 2 nodes have the labels; node n2: no");
    }

    #[test]
    fn a_conflict_names_labels_and_some_nodes() {
        let conflicts = BTreeSet::from(["team".to_owned()]);
        let nodes: Vec<_> = (0..7)
            .map(|n| PoolNode { conflicts: conflicts.clone(), ..node(&format!("n{n}"), true) })
            .collect();
        let (.., count, conditions) = said(&Standing::Counts, &nodes);
        let stands = "BidNodes have other values, which stand, for team on n0, n1, n2, n3, n4 and 2 more";
        assert_eq!((count, &conditions[1]), (7, &format!("Conflict True BidNode: {stands}")));
    }

    #[test]
    fn a_set_that_does_not_count_says_why() {
        let elsewhere = Standing::OtherNamespace { namespace: "ours".to_owned() };
        let (desired, .., conditions) = said(&elsewhere, &[node("n1", false)]);
        assert_eq!(desired, 0);
        assert_eq!(conditions[0], "Synced False OtherNamespace: only sets of namespace ours count");
        let foreign = Standing::ForeignPool { label: "agent".to_owned(), pool: "b".to_owned() };
        let (.., conditions) = said(&foreign, &[]);
        let message = "it would move nodes of pool a to pool b by label agent";
        assert_eq!(conditions[0], format!("Synced False ForeignPool: {message}"));
    }
}
