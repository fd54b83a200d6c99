//! Acts: carries out plans, each step once, and records the outcome. Every act is idempotent.
//!
//! This is the only place that writes to the cluster, to the engine and to the provisioner.

pub(crate) mod bidnode;
pub(crate) mod drain;
pub(crate) mod garbage;
pub(crate) mod journal;
pub(crate) mod labels;
pub(crate) mod slot;

use crate::api::{BidNode, BidSlot, BidSlotSpec, FINALIZER, LABEL_BIDNODE, LABEL_UID, ReleaseReason};
use crate::context::Context;
use crate::error::Error;
use kube::api::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};
use kubebid_controller::Writer;
use serde_json::json;
use std::collections::BTreeMap;

/// Creates a slot of a BidNode, unless one of this name is there: the list of slots may have been old.
async fn create_slot(name: &str, spec: BidSlotSpec, bidnode: &BidNode, writer: &Writer) -> Result<(), Error> {
    let mut slot = BidSlot::new(name, spec);
    slot.metadata = ObjectMeta {
        namespace: bidnode.namespace(),
        owner_references: bidnode.controller_owner_ref(&()).map(|owner| vec![owner]),
        finalizers: Some(vec![FINALIZER.to_owned()]),
        labels: Some(BTreeMap::from([
            (LABEL_BIDNODE.to_owned(), bidnode.name_any()),
            (LABEL_UID.to_owned(), bidnode.uid().unwrap_or_default()),
        ])),
        ..slot.metadata
    };
    writer.create(&slot).await?;
    Ok(())
}

/// Records that a slot is to be given up.
async fn release(slot: &BidSlot, reason: ReleaseReason, context: &Context) -> Result<(), Error> {
    context.slot_writer.patch(slot, json!({"spec": {"release": reason}})).await?;
    Ok(())
}
