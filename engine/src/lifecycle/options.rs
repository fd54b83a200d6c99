//! The options of an engine.

use super::bench_stubs::LeaveOut;
use crate::readmodel::retention::Retention;
use crate::runtime::clock::{Clock, MAX_CLOCK_JUMP, MachineClock, SystemClock};
use crate::store::StoreOptions;
use std::sync::Arc;
use std::time::Duration;

/// A leader renews its lease every second, and its standby serves well within five when it is killed.
pub const LEASE: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
pub struct EngineOptions {
    pub store: StoreOptions,
    pub clock: Clock,
    /// The clock of the machine.
    pub machine_clock: Arc<dyn MachineClock>,
    /// The longest step of the machine's clock that market time follows.
    pub max_clock_jump: Duration,
    /// Starts although the machine's clock contradicts the journal, the database or the last engine.
    pub accept_time_jump: bool,
    /// Commands that may wait to be taken, and as many questions; more are refused as busy.
    pub intake: usize,
    /// Commands that the projections may lag behind; beyond that commands are refused as busy.
    pub projection_lag: u64,
    /// The retention of events and price changes in the tables.
    pub retention: Retention,
    /// Commits that a slow watcher may lag behind before it has to read the events table.
    pub feed: usize,
    /// Commands from one snapshot to the next, while the engine runs; it saves one when it stops, too.
    pub snapshot_every: u64,
    /// The time to wait between two checks of the whole journal; none are made without.
    pub scrub_every: Option<Duration>,
    /// The parts to leave out: none but in benchmarks and tests, which serve the loopback only. `server::config` never
    /// sets it.
    pub leave_out: LeaveOut,
    pub start: Start,
    /// The length of the lease: no engine takes over from a silent leader before it has run out. Only for stores
    /// that have leases.
    pub lease: Duration,
}

impl EngineOptions {
    /// One that fences whoever leads.
    pub fn new(store: StoreOptions, clock: Clock) -> EngineOptions {
        EngineOptions {
            store,
            clock,
            machine_clock: Arc::new(SystemClock),
            max_clock_jump: MAX_CLOCK_JUMP,
            accept_time_jump: false,
            intake: 16_384,
            projection_lag: 1_000_000,
            retention: Retention::default(),
            feed: 4096,
            snapshot_every: 1_000_000,
            scrub_every: None,
            leave_out: LeaveOut::default(),
            start: Start::TakeOver,
            lease: LEASE,
        }
    }
}

/// The way in which an engine comes to lead. SQLite has no lease: there the first two are the same, and a standby
/// is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Fences whoever leads.
    TakeOver,
    /// Leads if nobody does; refuses to start beside an engine that lives.
    Alone,
    /// Follows the journal, and leads when nobody does any more.
    Standby,
}
