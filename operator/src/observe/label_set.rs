//! Observes the nodes of a NodePoolLabelSet's pool.

use crate::api::NodePoolLabelSet;
use crate::label_sets::LabelSets;
use crate::plan::label_set::PoolNode;
use crate::plan::labels;
use kube::ResourceExt as _;

/// Observes the nodes of a set's pool, in the order of their names. Nodes that are being deleted do not count.
pub(crate) fn observe(set: &NodePoolLabelSet, label_sets: &LabelSets) -> Vec<PoolNode> {
    let nodes = label_sets.nodes_of(&set.name_any());
    let staying = nodes.iter().filter(|node| node.metadata.deletion_timestamp.is_none());
    let observed = staying.map(|node| {
        let patch = label_sets.with_pools(|pools| labels::plan(node, pools));
        let name = node.name_any();
        PoolNode {
            is_updated: patch.is_empty(),
            conflicts: patch.conflicts,
            refusal: label_sets.refusal(&name),
            name,
        }
    });
    observed.collect()
}
