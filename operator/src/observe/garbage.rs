//! Observes bids at the engine whose slot in the cluster is gone.

use crate::api::SlotKey;
use crate::context::Context;
use kube::runtime::reflector::ObjectRef;
use std::collections::BTreeMap;

/// Returns the bids whose slot is gone; `None` while the engine has not been listed.
pub(crate) fn observe(context: &Context) -> Option<BTreeMap<u64, SlotKey>> {
    let cache = context.engine().bid_cache();
    if !cache.is_listed() {
        return None;
    }
    Some(cache.live().into_iter().filter(|(_, slot)| is_gone(slot, context)).collect())
}

/// Returns whether a slot is one of this operator's and is gone.
fn is_gone(slot: &SlotKey, context: &Context) -> bool {
    let there = context.stores.slot_uid(&ObjectRef::new(&slot.name).within(&slot.namespace));
    let is_ours = !slot.uid.is_empty() && context.watches(&slot.namespace);
    is_ours && there.as_ref() != Some(&slot.uid)
}
