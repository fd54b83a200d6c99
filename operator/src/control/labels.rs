//! Reconciles the labels of nodes that no slot writes, and the status of each NodePoolLabelSet.

use crate::act;
use crate::api::{NodePoolLabelSet, TAINT_UNREGISTERED};
use crate::cache::slot_ref_of;
use crate::context::Context;
use crate::error::ServiceError;
use crate::label_sets::LabelSets;
use crate::plan::labels::{is_paused, pool_of};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::reflector::ObjectRef;
use kubebid_controller::{
    Action, Context as PassContext, ControllerOptions, Error, Manager, ObjectName, Reconciler, Wakes,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The controller of the labels of nodes.
const NODES: ControllerOptions =
    ControllerOptions { concurrency: 32, min_interval: Duration::ZERO, debounce: Duration::ZERO };
/// The controller of the status of sets, which counts nodes: at most once a second.
const SETS: ControllerOptions =
    ControllerOptions { concurrency: 4, min_interval: Duration::from_secs(1), debounce: Duration::ZERO };

/// The state that both controllers share.
struct Shared {
    label_sets: Arc<LabelSets>,
    node_wakes: Wakes<Node>,
    set_wakes: Wakes<NodePoolLabelSet>,
    /// The controllers of BidNodes, if they run in this process: their slots write the labels of their own nodes.
    bidnodes: Option<Arc<Context>>,
    /// The pool of each node, as of its last event.
    pools: Mutex<BTreeMap<String, String>>,
    /// The wish of each set, as of its last event.
    wishes: Mutex<BTreeMap<ObjectName, Wish>>,
}

/// The generation of a set, and whether it is being deleted and is paused.
type Wish = (Option<i64>, bool, bool);

/// The controller of the labels of nodes that no slot writes.
struct NodeLabels(Arc<Shared>);

impl Shared {
    /// Returns true if a slot writes the labels of a node, or is going to when it registers it.
    fn is_of_slot(&self, node: &Node) -> bool {
        let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        taints.any(|taint| taint.key == TAINT_UNREGISTERED) || self.has_slot(node)
    }

    /// Returns true if a slot says that the node is its own, or the node says so and the slot is there.
    fn has_slot(&self, node: &Node) -> bool {
        let Some(bidnodes) = &self.bidnodes else { return false };
        let named = slot_ref_of(node).and_then(|slot| bidnodes.stores.slot_uid(&slot));
        named.is_some() || bidnodes.stores.slot_on(&node.name_any()).is_some()
    }
}

impl Reconciler for NodeLabels {
    type Object = Node;
    type Error = ServiceError;

    const NAME: &'static str = "labels";

    async fn reconcile(&self, node: Arc<Node>, context: &PassContext) -> Result<Action, Error<ServiceError>> {
        let (node, shared) = (context.writer.newest(node), &self.0);
        if node.metadata.deletion_timestamp.is_some() || shared.is_of_slot(&node) {
            return Ok(Action::AwaitChange);
        }
        let (name, label_sets) = (node.name_any(), &shared.label_sets);
        let before = label_sets.refusal(&name);
        let labelled = act::labels::label(&node, label_sets, context).await;
        if label_sets.refusal(&name) != before
            && let Some(pool) = pool_of(&node, label_sets.rules())
        {
            shared.set_wakes.wake(label_sets.set_ref(&pool));
        }
        labelled?;
        Ok(Action::AwaitChange)
    }

    fn forget(&self, name: &ObjectName, _: &str) {
        self.0.label_sets.set_refusal(&name.name, None);
    }
}

/// The controller of the status of sets.
struct LabelSetStatuses(Arc<LabelSets>);

impl Reconciler for LabelSetStatuses {
    type Object = NodePoolLabelSet;
    type Error = ServiceError;

    const NAME: &'static str = "labelsets";

    /// The status of a paused set says that it is paused.
    fn is_pausable(&self) -> bool {
        false
    }

    async fn reconcile(
        &self,
        set: Arc<NodePoolLabelSet>,
        context: &PassContext,
    ) -> Result<Action, Error<ServiceError>> {
        let set = context.writer.newest(set);
        act::labels::write_status(&set, &self.0, context).await?;
        Ok(Action::AwaitChange)
    }
}

/// Adds both controllers. `bidnodes` are the controllers of BidNodes, if they run in this process.
pub(super) fn add(
    manager: &mut Manager,
    label_sets: Arc<LabelSets>,
    bidnodes: Option<Arc<Context>>,
    of: impl Fn(ControllerOptions) -> ControllerOptions,
) {
    let client = manager.client().clone();
    let shared = Arc::new(Shared {
        label_sets: Arc::clone(&label_sets),
        node_wakes: manager.wakes::<NodeLabels>(of(NODES)),
        set_wakes: manager.wakes::<LabelSetStatuses>(of(SETS)),
        bidnodes,
        pools: Mutex::default(),
        wishes: Mutex::default(),
    });
    // The watches do not keep the state alive, which holds them.
    let weak = Arc::downgrade(&shared);
    let of_nodes = weak.clone();
    label_sets.nodes.on_change(move |node| {
        if let Some(shared) = of_nodes.upgrade() {
            shared.on_node(node);
        }
    });
    label_sets.sets.on_change(move |set| {
        if let Some(shared) = weak.upgrade() {
            shared.on_set(set);
        }
    });
    manager.add(NodeLabels(shared), Api::all(client.clone()), of(NODES));
    manager.add(LabelSetStatuses(label_sets), Api::all(client), of(SETS));
}

impl Shared {
    /// Wakes the sets of the pool that a node was in and of the one that it is in.
    fn on_node(&self, node: &Node) {
        let name = node.name_any();
        let is_there = self.label_sets.nodes.get(&ObjectRef::from_obj(node)).is_some();
        let pool = pool_of(node, self.label_sets.rules()).filter(|_| is_there);
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match pool.clone() {
            Some(pool) => pools.insert(name, pool),
            None => pools.remove(&name),
        };
        if before != pool
            && let Some(before) = before
        {
            self.set_wakes.wake(self.label_sets.set_ref(&before));
        }
        if let Some(pool) = pool {
            self.set_wakes.wake(self.label_sets.set_ref(&pool));
        }
    }

    /// Wakes the nodes of a set's pool, unless only its status has changed.
    fn on_set(&self, set: &NodePoolLabelSet) {
        let name = ObjectName::of(set);
        let is_there = self.label_sets.sets.get(&ObjectRef::from_obj(set)).is_some();
        let wish = (set.metadata.generation, set.metadata.deletion_timestamp.is_some(), is_paused(set));
        let mut wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_there {
            wishes.remove(&name);
        } else if wishes.insert(name, wish) == Some(wish) {
            return;
        }
        let nodes = self.label_sets.nodes_of(&set.name_any());
        for node in &nodes {
            self.node_wakes.wake(ObjectRef::from_obj(node.as_ref()));
        }
        let Some(bidnodes) = &self.bidnodes else { return };
        for slot in nodes.iter().filter_map(|node| slot_ref_of(node)) {
            bidnodes.slot_wakes.wake(slot);
        }
        // Pods may need nodes with the labels.
        for bidnode in bidnodes.stores.bidnodes.all() {
            bidnodes.bidnode_wakes.wake(ObjectRef::from_obj(bidnode.as_ref()));
        }
    }
}
