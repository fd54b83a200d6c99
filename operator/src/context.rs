//! Context of every reconcile: options, caches, work queues, backoffs, and what the process remembers.

mod backoff;
mod events;
mod memory;
mod queues;

pub(crate) use events::EventRecorder;
pub(crate) use queues::{Queued, Queues};

use crate::api::{BidNode, BidSlot, BidSlotStatus};
use crate::cache::{Stores, WriteCache};
use crate::engine::Engine;
use crate::error::Error;
use crate::leader_election::{Leadership, Pass};
use crate::metrics::ActiveNodes;
use crate::plan::slot::Limits;
use crate::provisioner::Provisioner;
use backoff::Backoffs;
use events::Events;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::events::{Event, EventType};
use kube::{Client, Resource};
use memory::Memory;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The options of the operator, and the services that it uses.
#[derive(Clone, Debug)]
pub struct Options {
    /// The engine.
    pub engine: Arc<Engine>,
    /// The provisioner.
    pub provisioner: Arc<dyn Provisioner>,
    /// The right to write.
    pub leadership: Leadership,
    /// The metric of the active nodes.
    pub active_nodes: Arc<ActiveNodes>,
    /// The namespace of the BidNodes; absent for all namespaces.
    pub namespace: Option<String>,
    /// The time-outs of slots.
    pub limits: Limits,
}

/// The state that all reconciles share.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) stores: Stores,
    pub(crate) queues: Queues,
    pub(crate) backoffs: Backoffs,
    pub(crate) memory: Memory,
    /// The last writes of BidNodes, slots and nodes.
    pub(crate) bidnodes: WriteCache<BidNode>,
    pub(crate) slots: WriteCache<BidSlot>,
    pub(crate) nodes: WriteCache<Node>,
    options: Options,
    events: Events,
    has_synced: AtomicBool,
}

impl Context {
    /// Creates the context, and the recorder that writes its events.
    pub(crate) fn new(
        client: Client,
        stores: Stores,
        queues: Queues,
        options: Options,
    ) -> (Self, EventRecorder) {
        let (recorder, events) = EventRecorder::new(client.clone(), options.leadership.clone());
        let context = Context {
            client,
            stores,
            queues,
            backoffs: Backoffs::default(),
            memory: Memory::default(),
            bidnodes: WriteCache::default(),
            slots: WriteCache::default(),
            nodes: WriteCache::default(),
            options,
            events,
            has_synced: AtomicBool::new(false),
        };
        (context, recorder)
    }

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

    /// Returns the metric of the active nodes.
    pub(crate) fn active_nodes(&self) -> &ActiveNodes {
        &self.options.active_nodes
    }

    /// Returns whether this operator watches the slots of a namespace.
    pub(crate) fn watches(&self, namespace: &str) -> bool {
        self.options.namespace.as_ref().is_none_or(|ours| ours == namespace)
    }

    /// Returns the node of a slot, as it was observed or as it was written since.
    pub(crate) fn node_of(&self, status: &BidSlotStatus) -> Option<Arc<Node>> {
        let node = status.node.as_deref().and_then(|name| self.stores.node(name))?;
        Some(self.nodes.newest(node))
    }

    /// Fails unless this replica leads. It is called before each write.
    pub(crate) fn check_leadership(&self) -> Result<(), Error> {
        if self.options.leadership.is_valid() { Ok(()) } else { Err(Error::NotLeading) }
    }

    /// Counts a pass for as long as the returned value lives.
    pub(crate) fn pass(&self) -> Pass {
        self.options.leadership.pass()
    }

    /// Records that all stores have synced.
    pub(crate) fn set_synced(&self) {
        self.has_synced.store(true, Ordering::Relaxed);
    }

    /// Returns whether all stores have synced. Nothing is reconciled before.
    pub(crate) fn has_synced(&self) -> bool {
        self.has_synced.load(Ordering::Relaxed)
    }

    /// Records an event about an object, with its slot as the related object. Kubernetes counts events of one object with the
    /// same reason as one, unless their slots differ.
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
        let (reason, action) = (reason.to_owned(), reason.to_owned());
        let secondary = slot.map(|slot| slot.object_ref(&()));
        let event = Event { type_, reason, note: Some(note), action, secondary };
        self.events.record(event, regarding.object_ref(&()));
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.bidnodes.forget(uid);
        self.slots.forget(uid);
        self.memory.forget(uid);
    }
}
