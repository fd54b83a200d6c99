//! Ends a bid at the engine whose slot in the cluster is gone.
//!
//! A slot ends its own bid before it goes. A slot whose finalizer was removed by hand does not, and nothing else in the cluster
//! knows what it held. The engine does, by the labels of the bid.

use crate::api::{BidNode, LABEL_SLOT_UID, SlotKey};
use crate::context::Context;
use crate::error::Error;
use crate::provisioner::{Machine, node_name};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::runtime::events::EventType;
use std::sync::Arc;
use tracing::info;

/// Ends a bid whose slot is gone, with its Node object and its machine. An event says so on the BidNode, if one is given.
pub(crate) async fn end_bid(
    bid: u64,
    slot: &SlotKey,
    bidnode: Option<&BidNode>,
    context: &Context,
) -> Result<(), Error> {
    context.check_leadership()?;
    if context.slot_writer.is_dry_run() {
        info!(bid, slot = slot.name, "withheld by --dry-run: the end of its bid");
        return Ok(());
    }
    info!(bid, slot = slot.name, namespace = slot.namespace, "its slot is gone: the bid is ended");
    let is_ours = |node: &&Arc<Node>| node.labels().get(LABEL_SLOT_UID) == Some(&slot.uid);
    let node = context.stores.nodes.all().iter().find(is_ours).cloned();
    if let Some(node) = &node {
        context.slot_writer.delete(node.as_ref()).await?;
    }
    let name = match node {
        Some(node) => Some(node.name_any()),
        None => match context.provisioner().get(&slot.uid, &node_name(&slot.name, &slot.uid)).await? {
            Machine::Running { node } => Some(node),
            Machine::Coming | Machine::Failed { .. } | Machine::Gone => None,
        },
    };
    context.provisioner().delete(&slot.uid, name.as_deref()).await?;
    context.engine().end_bid(bid, &slot.uid).await?;
    if let Some(bidnode) = bidnode {
        let note = format!("bid {bid} of slot {} is ended: the slot is gone", slot.name);
        context.record_event(bidnode, None, EventType::Warning, "LeaseWithoutSlot", note);
    }
    Ok(())
}
