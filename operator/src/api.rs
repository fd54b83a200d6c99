//! The custom resources BidNode and BidSlot as Rust types, and the names that the operator uses. `crds.rs` prints the
//! definitions.

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
    BidNode, BidNodePhase, BidNodeSpec, BidNodeStatus, BidStrategy, NodeStatus, NodeTaint, TaintEffect,
    micros, usd,
};
pub use bidslot::{BidSlot, BidSlotSpec, BidSlotStatus, ReleaseReason, SlotKey, SlotPhase};
pub use names::*;
