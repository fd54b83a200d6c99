//! Context of every reconcile: options, caches, writers, wakes, and what the process remembers.

mod memory;

use crate::allowed_types::AllowedTypes;
use crate::api::{BidNode, BidSlot, BidSlotStatus, UnusedNodes};
use crate::cache::Stores;
use crate::engine::Engine;
use crate::error::Error;
use crate::journal::{Journal, JournalOptions};
use crate::label_sets::LabelSets;
use crate::metrics::BidNodeMetrics;
use crate::plan::scope::Scope;
use crate::plan::slot::Limits;
use crate::plan::unused;
use crate::provisioner::Provisioner;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::EventType;
use kube::{Resource, ResourceExt as _};
use kubebid_controller::events::EventRecorder;
use kubebid_controller::leader_election::Leadership;
use kubebid_controller::{Object, Wakes, Writer};
use memory::Memory;
use std::sync::Arc;

/// The options of the operator, and the services that it uses.
#[derive(Clone, Debug)]
pub struct Options {
    /// The engine.
    pub engine: Arc<Engine>,
    /// The provisioner.
    pub provisioner: Arc<dyn Provisioner>,
    /// The metrics of the BidNodes.
    pub bidnode_metrics: Arc<BidNodeMetrics>,
    /// The namespace of the BidNodes; absent for all namespaces.
    pub namespace: Option<String>,
    /// The time-outs of slots.
    pub limits: Limits,
    /// The place where the journal of the engine is remembered.
    pub journal: JournalOptions,
    /// The instance types that BidNodes may name.
    pub allowed_types: AllowedTypes,
}

/// The state that all reconciles share.
pub(crate) struct Context {
    pub(crate) stores: Stores,
    pub(crate) memory: Memory,
    /// Writes on behalf of the controller of BidNodes.
    pub(crate) bidnode_writer: Writer,
    /// Writes on behalf of the controller of slots.
    pub(crate) slot_writer: Writer,
    pub(crate) bidnode_wakes: Wakes<BidNode>,
    pub(crate) slot_wakes: Wakes<BidSlot>,
    pub(crate) events: EventRecorder,
    pub(crate) leadership: Leadership,
    /// The NodePoolLabelSets, if their controller runs.
    pub(crate) label_sets: Option<Arc<LabelSets>>,
    /// The time from which this process observes the nodes.
    pub(crate) began: Timestamp,
    /// The comparison of the engine's journal with the remembered one.
    pub(crate) journal: Journal,
    pub(crate) options: Options,
}

impl Context {
    /// Returns the engine.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.options.engine
    }

    /// Returns the provisioner.
    pub(crate) fn provisioner(&self) -> &dyn Provisioner {
        self.options.provisioner.as_ref()
    }

    /// Returns the time-outs of slots.
    pub(crate) fn limits(&self) -> Limits {
        self.options.limits
    }

    /// Returns the metrics of the BidNodes.
    pub(crate) fn bidnode_metrics(&self) -> &BidNodeMetrics {
        &self.options.bidnode_metrics
    }

    /// Returns the instance types and regions in which a BidNode bids.
    pub(crate) fn scope_of(&self, bidnode: &BidNode) -> Scope {
        self.options.allowed_types.scope_of(bidnode)
    }

    /// Returns the nodes in a row that a BidNode brought for pods and that no pod used.
    pub(crate) fn unused_nodes(&self, bidnode: &BidNode) -> Option<UnusedNodes> {
        let (uid, generation) = (bidnode.uid().unwrap_or_default(), bidnode.metadata.generation);
        self.memory.unused(&uid, generation, || unused::of_status(bidnode.status.as_ref(), generation))
    }

    /// Returns whether this operator watches the slots of a namespace.
    pub(crate) fn watches(&self, namespace: &str) -> bool {
        self.options.namespace.as_ref().is_none_or(|ours| ours == namespace)
    }

    /// Returns the node of a slot, as it was observed or as it was written since.
    pub(crate) fn node_of(&self, status: &BidSlotStatus) -> Option<Arc<Node>> {
        let node = status.node.as_deref().and_then(|name| self.stores.node(name))?;
        Some(self.newest(node))
    }

    /// Returns an object as it was observed or as it was written since.
    pub(crate) fn newest<K: Object>(&self, object: Arc<K>) -> Arc<K> {
        self.slot_writer.newest(object)
    }

    /// Fails unless this replica leads. It is called before each call of the engine or the provisioner that changes
    /// something; writes to the cluster are checked by the writers.
    pub(crate) fn check_leadership(&self) -> Result<(), Error> {
        if self.leadership.is_valid() { Ok(()) } else { Err(Error::NotLeader) }
    }

    /// Records an event about an object, with its slot as the related object.
    pub(crate) fn record_event<K>(
        &self,
        regarding: &K,
        slot: Option<&BidSlot>,
        type_: EventType,
        reason: &str,
        note: String,
    ) where
        K: Resource<DynamicType = ()>,
    {
        self.events.publish(regarding, slot.map(|slot| slot.object_ref(&())), type_, reason, note);
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.slot_writer.forget(uid);
        self.memory.forget(uid);
    }
}
