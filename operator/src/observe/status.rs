//! Observes what the status of a BidNode says.

use super::node::is_ready;
use crate::api::{BidNode, BidSlot, BidSlotStatus};
use crate::context::Context;
use crate::plan::annotations;
use crate::plan::packing::OverdueNode;
use crate::plan::status::{self, Observation, PodsReport, SlotReport, Supply};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use std::sync::Arc;

/// The findings of a pass over a BidNode, for its status.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The `minNodes` that slots were given up for.
    pub(crate) observed_min_nodes: Option<u32>,
    /// The pods that need room, if it is known what a node is.
    pub(crate) pods: Option<PodsReport>,
    /// A node that is not initialized although it had time to be.
    pub(crate) overdue: Option<OverdueNode>,
}

/// Observes the status of a BidNode.
pub(crate) async fn observe(
    bidnode: &BidNode,
    slots: &[Arc<BidSlot>],
    found: Found,
    now: Timestamp,
    context: &Context,
) -> Observation {
    let uid = bidnode.uid().unwrap_or_default();
    let deleting = bidnode.metadata.deletion_timestamp.is_some();
    let slots: Vec<_> = slots.iter().map(|slot| report(slot, context)).collect();
    let engine_fault = context.engine().bid_cache().fault();
    let (supply, markets_left_out) = match &engine_fault {
        None if !deleting => supply(bidnode, context).await,
        Some(_) | None => (Supply::Unknown, 0),
    };
    let cost_micros = if engine_fault.is_none() { context.engine().cost(bidnode).await.ok() } else { None };
    let written = context.memory.written(&uid, now);
    Observation {
        previous: bidnode.status.clone(),
        generation: bidnode.metadata.generation,
        min_nodes: bidnode.spec.min_nodes as usize,
        max_bid: bidnode.spec.max_bid,
        deleting,
        now,
        engine_fault,
        supply,
        markets_left_out,
        journal_difference: context.journal.difference(),
        unused_nodes: context.unused_nodes(bidnode),
        invalid_annotation: annotations::invalid(bidnode),
        registration_refused: registration_refused(bidnode, slots.iter().map(|slot| &slot.status), context),
        cost_micros,
        observed_min_nodes: found.observed_min_nodes,
        pods: found.pods,
        overdue: found.overdue,
        price_written: written.price,
        cost_written: written.cost,
        status_written: written.status,
        slots,
        uid,
    }
}

fn report(slot: &BidSlot, context: &Context) -> SlotReport {
    let mut status = slot.status.clone().unwrap_or_default();
    let bid = status.bid.and_then(|bid| context.engine().bid_cache().bid(bid));
    if let (Some(_), Some(bid)) = (slot.spec.gang_nodes, &bid) {
        // Its members raise the bid too.
        status.ceiling_micros = Some(bid.ceiling_micros);
    }
    SlotReport {
        name: slot.name_any(),
        leaving: slot.spec.release.is_some() || slot.metadata.deletion_timestamp.is_some(),
        node_ready: context.node_of(&status).is_some_and(|node| is_ready(&node)),
        price_micros: bid.and_then(|bid| bid.allocation_of(slot)?.price_micros),
        gang_nodes: slot.spec.gang_nodes,
        status,
    }
}

/// Returns the supply in the markets of a BidNode, and the number of markets that its bids leave out.
async fn supply(bidnode: &BidNode, context: &Context) -> (Supply, usize) {
    match context.engine().markets(&context.scope_of(bidnode)).await {
        Err(_) => (Supply::Unknown, 0),
        Ok(markets) => {
            let left_out = markets.as_ref().map_or(0, |markets| markets.left_out);
            (Supply::of(&bidnode.spec, markets.as_deref()), left_out)
        }
    }
}

/// Returns the message with which the API server refuses the labels or taints of a BidNode's nodes, if it does. The answer to
/// this process counts before what the status of the slots and of the BidNode say.
pub(crate) fn registration_refused<'a>(
    bidnode: &BidNode,
    slots: impl Iterator<Item = &'a BidSlotStatus>,
    context: &Context,
) -> Option<String> {
    let generation = bidnode.metadata.generation;
    let answer = context.memory.registration(&bidnode.uid().unwrap_or_default(), generation);
    answer.unwrap_or_else(|| status::registration_refused(bidnode.status.as_ref(), generation, slots))
}
