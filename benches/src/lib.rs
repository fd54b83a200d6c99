//! Streams that benches and load share: random, but the same for the same seed, and made beforehand, so that
//! only the market's own work is measured. And how what they cost is drawn.

pub mod curves;
#[cfg(feature = "engine")]
pub mod journal;
pub mod naive;
pub mod one_node;
pub mod overloaded;
pub mod plain;

use kubebid_core::command::PlaceBid;
use kubebid_core::units::{AccountName, MarketName, Micros};
use kubebid_core::{Command, Price, StampedCommand};

const TICK: u64 = 100;

/// A bid for one node.
pub fn bid(tenant: u64, market: &str, ceiling: Price) -> Command {
    Command::PlaceBid(PlaceBid {
        tenant: AccountName::new(&format!("tenant-{tenant}")),
        markets: Some(vec![MarketName::new(market)]),
        instance_type: None,
        ceiling,
        min_nodes: 1,
        max_nodes: 1,
        time_in_force: Default::default(),
        expire_at: None,
        on_preemption: Default::default(),
    })
}

/// As stamped at the beginning.
pub fn stamped(command: Command) -> StampedCommand {
    StampedCommand { at: Micros(0), key: None, command }
}
