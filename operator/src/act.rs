//! Acts: carries out plans, each step once, and records the outcome. Every act is idempotent.
//!
//! This is the only place that writes to the cluster, to the engine and to the provisioner.

pub(crate) mod bidnode;
pub(crate) mod drain;
pub(crate) mod garbage;
pub(crate) mod labels;
pub(crate) mod slot;

use crate::api::{BidSlot, ReleaseReason};
use crate::context::Context;
use crate::error::Error;
use serde_json::json;

/// Records that a slot is to be given up.
async fn release(slot: &BidSlot, reason: ReleaseReason, context: &Context) -> Result<(), Error> {
    context.slot_writer.patch(slot, json!({"spec": {"release": reason}})).await?;
    Ok(())
}
