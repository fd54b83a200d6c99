//! The custom resources BidNode, BidSlot and NodePoolLabelSet as Rust types, and the names that the operator uses. `crds.rs` prints the
//! definitions.

#[expect(unreachable_pub, reason = "the derive makes it so")]
mod bidnode;
#[expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "the derive repeats what stands at the specification"
)]
mod bidslot;
mod disruption;
mod names;
#[expect(unreachable_pub, reason = "the derive makes it so")]
mod node_pool_label_set;
#[expect(unreachable_pub, reason = "the derive makes it so")]
pub mod v2beta1;

pub use bidnode::{
    BidNode, BidNodePhase, BidNodeSpec, BidNodeStatus, BidStrategy, NodeStatus, NodeTaint, TaintEffect,
    UNHELPED_PODS_MAX, UnhelpedPod, UnusedNodes, micros, usd,
};
pub use bidslot::{
    Applied, AppliedTaint, BidSlot, BidSlotSpec, BidSlotStatus, GangMember, ReleaseReason, SlotKey, SlotPhase,
};
pub use disruption::{Disruption, DisruptionLimit};
pub use names::*;
pub use node_pool_label_set::{NodePoolLabelSet, NodePoolLabelSetSpec, NodePoolLabelSetStatus};
