//! The usual bid of the simulator.

use kubebid_core::Price;
use kubebid_core::command::PlaceBid;
use kubebid_core::units::AccountName;

/// For single nodes, until it is cancelled, and what is lost is sought again. Where it looks the caller says.
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
