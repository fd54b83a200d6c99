//! Compares the journal of the engine with the remembered one.

use crate::act;
use crate::context::Context;
use crate::journal::{Comparison, JournalOptions};
use kube::runtime::reflector::ObjectRef;
use std::time::Duration;
use tracing::warn;

/// The time after which the ConfigMap is read or written again if that failed.
const RETRY: Duration = Duration::from_secs(10);

/// Compares the engine's journal with the remembered one while it is polled, whenever the engine names another one.
pub(super) async fn run(context: &Context) {
    let mut journals = context.engine().journals();
    loop {
        let named = journals.borrow_and_update().clone();
        let comparison = match named {
            Some(journal) => act::journal::compare(&journal, context).await,
            None => Ok(Comparison::NotCompared),
        };
        let is_done = comparison.is_ok();
        let comparison = comparison.unwrap_or_else(|error| {
            let JournalOptions { namespace, name, .. } = &context.options.journal;
            Comparison::Different(format!(
                "the ConfigMap {namespace}/{name} with the journal of the engine cannot be read or written: {error}"
            ))
        });
        if context.journal.set(comparison) {
            if let Some(difference) = context.journal.difference() {
                warn!("{difference}");
            }
            wake(context);
        }
        let changed = async {
            // The sender lives as long as the engine.
            let _ = journals.changed().await;
        };
        if is_done {
            changed.await;
        } else {
            let _ = tokio::time::timeout(RETRY, changed).await;
        }
    }
}

/// Wakes all BidNodes, whose conditions say whether the journal is the remembered one, and their slots.
fn wake(context: &Context) {
    for bidnode in context.stores.bidnodes.all() {
        context.bidnode_wakes.wake(ObjectRef::from_obj(bidnode.as_ref()));
    }
    for slot in context.stores.slots.all() {
        context.slot_wakes.wake(ObjectRef::from_obj(slot.as_ref()));
    }
}
