//! Ends allocations at the engine whose slot in the cluster is gone.
//!
//! A slot ends its own lease before it goes. One whose finalizer was taken off by hand does not, and nothing else in the
//! cluster knows of what it held; the engine does, by the labels of its bid.

use super::Error;
use super::act::node_name;
use super::context::Context;
use super::objects::remove;
use crate::api::{BidNode, LABEL_SLOT_UID};
use crate::auction::SlotKey;
use crate::provision::Machine;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::events::EventType;
use kube::runtime::reflector::ObjectRef;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, interval};
use tracing::{info, warn};

/// The interval at which allocations at the engine and slots are compared.
const BEAT: Duration = Duration::from_secs(2);
/// The time for which a lease has no slot before it is ended: a watch may be behind.
const GRACE: Duration = Duration::from_secs(10);

/// Ends leases without a slot for as long as it is polled.
pub(super) async fn run(context: &Context) {
    let mut alone: BTreeMap<u64, Instant> = BTreeMap::new();
    let mut beat = interval(BEAT);
    loop {
        beat.tick().await;
        if !context.has_pictured() || !context.auction().bid_cache().is_listed() || context.leads().is_err() {
            continue;
        }
        let now = Instant::now();
        let leases = context.auction().bid_cache().live();
        let leases: BTreeMap<_, _> = leases.into_iter().filter(|(_, slot)| is_alone(slot, context)).collect();
        alone.retain(|bid, _| leases.contains_key(bid));
        for (bid, slot) in &leases {
            let since = *alone.entry(*bid).or_insert(now);
            if now.duration_since(since) >= GRACE
                && let Err(error) = end(*bid, slot, None, context).await
            {
                warn!(bid, slot = slot.name, %error, "a lease without a slot could not be ended");
                // As long again, before the next try.
                alone.insert(*bid, Instant::now());
            }
        }
    }
}

/// Returns whether a lease is of a slot of ours that is gone.
fn is_alone(slot: &SlotKey, context: &Context) -> bool {
    let which = ObjectRef::new(&slot.name).within(&slot.namespace);
    let there = context.world().slots.get(&which);
    let is_ours = !slot.uid.is_empty() && context.watches(&slot.namespace);
    is_ours && there.is_none_or(|there| there.uid().as_deref() != Some(&slot.uid))
}

/// Ends a lease whose slot is gone: its Node object, its machine, its bid.
pub(super) async fn end(
    bid: u64,
    slot: &SlotKey,
    owner: Option<&BidNode>,
    context: &Context,
) -> Result<(), Error> {
    context.leads()?;
    info!(bid, slot = slot.name, namespace = slot.namespace, "its slot is gone: the lease is ended");
    let nodes: Api<Node> = Api::all(context.client.clone());
    let ours = |node: &&std::sync::Arc<Node>| node.labels().get(LABEL_SLOT_UID) == Some(&slot.uid);
    let node = context.world().nodes.state().iter().find(ours).cloned();
    if let Some(node) = &node {
        remove(&nodes, node.as_ref(), context).await?;
    }
    let name = match node {
        Some(node) => Some(node.name_any()),
        None => match context.provisioner().get(&slot.uid, &node_name(&slot.name, &slot.uid)).await? {
            Machine::Running { node } => Some(node),
            Machine::Coming | Machine::Failed { .. } | Machine::Gone => None,
        },
    };
    context.provisioner().delete(&slot.uid, name.as_deref()).await?;
    context.auction().end_lease(bid, &slot.uid).await?;
    if let Some(owner) = owner {
        let note = format!("bid {bid} of slot {} is ended: the slot is gone", slot.name);
        context.tell(owner, None, EventType::Warning, "LeaseWithoutSlot", note);
    }
    Ok(())
}
