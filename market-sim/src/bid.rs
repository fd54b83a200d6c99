//! The usual bid of the simulator.

use kubebid_core::Price;
use kubebid_core::command::PlaceBid;
use kubebid_core::units::AccountName;

/// Returns a bid for single nodes that searches until it is cancelled, and again after a loss. The caller sets where it
/// looks.
pub(crate) fn standing_bid(tenant: AccountName, ceiling: Price, max_nodes: u32) -> PlaceBid {
    PlaceBid {
        tenant,
        markets: None,
        instance_type: None,
        ceiling,
        min_nodes: 1,
        max_nodes,
        time_in_force: Default::default(),
        expire_at: None,
        on_preemption: Default::default(),
    }
}
