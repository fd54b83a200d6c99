//! Work queues: objects that are reconciled at once, besides those whose watch has an event.

use crate::api::{BidNode, BidSlot};
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The sending ends of the work queues.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    bidnodes: UnboundedSender<ObjectRef<BidNode>>,
    slots: UnboundedSender<ObjectRef<BidSlot>>,
}

/// The receiving ends of the work queues, for the controllers.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) bidnodes: UnboundedReceiver<ObjectRef<BidNode>>,
    pub(crate) slots: UnboundedReceiver<ObjectRef<BidSlot>>,
}

impl Queues {
    /// Creates empty queues.
    pub(crate) fn new() -> (Self, Queued) {
        let (bidnodes, queued_bidnodes) = unbounded_channel();
        let (slots, queued_slots) = unbounded_channel();
        (Queues { bidnodes, slots }, Queued { bidnodes: queued_bidnodes, slots: queued_slots })
    }

    /// Requests the reconcile of a BidNode.
    pub(crate) fn bidnode(&self, which: ObjectRef<BidNode>) {
        // The receiver is gone when the controllers end.
        let _ = self.bidnodes.send(which);
    }

    /// Requests the reconcile of a slot.
    pub(crate) fn slot(&self, which: ObjectRef<BidSlot>) {
        let _ = self.slots.send(which);
    }
}
