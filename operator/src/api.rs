//! The custom resources BidNode and BidSlot as Rust types. `crds.rs` prints their definitions.

#[expect(unreachable_pub, reason = "the derive makes it so")]
mod bidnode;
#[expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "the derive repeats what stands at the specification"
)]
mod bidslot;
mod names;

pub use bidnode::{
    BidNode, BidNodeSpec, BidNodeStatus, BidStrategy, NodePhase, NodeStatus, NodeTaint, TaintEffect, micros,
    usd,
};
pub use bidslot::{BidSlot, BidSlotSpec, BidSlotStatus, ReleaseReason, SlotPhase};
pub use names::*;
