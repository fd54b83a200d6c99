//! The NodePoolLabelSets that count, and the nodes of their pools, as of the last event of each watch.

use crate::api::NodePoolLabelSet;
use crate::plan::label_set::Standing;
use crate::plan::labels::{LabelRules, Pools, foreign_pool_label, paused, pool_of};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::reflector::ObjectRef;
use kubebid_controller::index::Index;
use kubebid_controller::{Manager, Watch};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The options of node pool labels.
#[derive(Clone, Debug)]
pub struct LabelOptions {
    /// The namespace whose sets count.
    pub namespace: String,
    /// The rules of pools and annotations.
    pub rules: LabelRules,
}

/// The sets and the nodes.
#[derive(Debug)]
pub(crate) struct LabelSets {
    options: LabelOptions,
    pub(crate) sets: Watch<NodePoolLabelSet>,
    pub(crate) nodes: Watch<Node>,
    nodes_by_pool: Arc<Index<Node>>,
    /// The API server's refusals of the last patches, by the name of the node.
    refusals: Mutex<BTreeMap<String, String>>,
}

impl LabelSets {
    /// Watches the sets of all namespaces, and all nodes.
    pub(crate) fn watch(manager: &mut Manager, options: LabelOptions) -> LabelSets {
        let client = manager.client().clone();
        let (sets, nodes) =
            (manager.watch(Api::all(client.clone())), manager.watch(Api::<Node>::all(client)));
        let rules = options.rules.clone();
        let nodes_by_pool = nodes.index(move |node| pool_of(node, &rules));
        LabelSets { options, sets, nodes, nodes_by_pool, refusals: Mutex::default() }
    }

    /// Returns the rules.
    pub(crate) fn rules(&self) -> &LabelRules {
        &self.options.rules
    }

    /// Returns whether a set counts.
    pub(crate) fn standing(&self, set: &NodePoolLabelSet) -> Standing {
        if set.namespace().as_ref() != Some(&self.options.namespace) {
            return Standing::OtherNamespace { namespace: self.options.namespace.clone() };
        }
        match foreign_pool_label(set, self.rules()) {
            Some((label, pool)) => Standing::ForeignPool { label: label.to_owned(), pool: pool.to_owned() },
            None => Standing::Counts,
        }
    }

    /// Returns the reference of the set of a pool.
    pub(crate) fn set_ref(&self, pool: &str) -> ObjectRef<NodePoolLabelSet> {
        ObjectRef::new(pool).within(&self.options.namespace)
    }

    /// Returns the set of a pool, if it has one that counts. One that this version of the program cannot read is like a paused
    /// one: its nodes stay as they are.
    fn set_of(&self, pool: &str) -> Option<Arc<NodePoolLabelSet>> {
        let name = self.set_ref(pool);
        if let Some(unreadable) = self.sets.unreadable(&name) {
            return Some(Arc::new(paused(unreadable.metadata.clone())));
        }
        let set = self.sets.get(&name)?;
        (set.metadata.deletion_timestamp.is_none() && self.standing(&set) == Standing::Counts).then_some(set)
    }

    /// Calls a function with the sets, for a plan.
    pub(crate) fn with_pools<T>(&self, plan: impl FnOnce(&Pools<'_>) -> T) -> T {
        plan(&Pools { rules: self.rules(), set_of: &|pool| self.set_of(pool) })
    }

    /// Returns the nodes of a pool, in the order of their names.
    pub(crate) fn nodes_of(&self, pool: &str) -> Vec<Arc<Node>> {
        self.nodes_by_pool.of(pool).iter().filter_map(|node| self.nodes.get(node)).collect()
    }

    /// Returns the API server's refusal of the last patch of a node.
    pub(crate) fn refusal(&self, node: &str) -> Option<String> {
        self.refusals().get(node).cloned()
    }

    /// Records whether the API server refused the last patch of a node.
    pub(crate) fn set_refusal(&self, node: &str, refusal: Option<String>) {
        let mut refusals = self.refusals();
        match refusal {
            Some(refusal) => refusals.insert(node.to_owned(), refusal),
            None => refusals.remove(node),
        };
    }

    fn refusals(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
