//! The options of an engine.

use super::bench_stubs::OmittedParts;
use crate::readmodel::retention::Retention;
use crate::runtime::clock::{Clock, MAX_CLOCK_JUMP, MachineClock, SystemClock};
use crate::store::StoreOptions;
use std::sync::Arc;
use std::time::Duration;

/// The default length of the lease. The leader renews it every third of this time, and a standby serves well
/// within five seconds after the leader was killed.
pub const LEASE: Duration = Duration::from_secs(3);

/// The default number of commands from one snapshot to the next.
pub(crate) const SNAPSHOT_EVERY: u64 = 1_000_000;

/// The options of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The store.
    pub store: StoreOptions,
    /// The clock of the market.
    pub clock: Clock,
    /// The clock of the machine.
    pub machine_clock: Arc<dyn MachineClock>,
    /// The longest step of the machine's clock that market time follows.
    pub max_clock_jump: Duration,
    /// Starts even if the machine's clock contradicts the journal, the database or the last engine.
    pub accept_time_jump: bool,
    /// The most commands that may wait to be taken, and the most questions. More are refused as busy.
    pub intake: usize,
    /// The number of commands that the projections may lag behind. If they lag more, commands are
    /// refused as busy.
    pub projection_lag: u64,
    /// The retention of events and price changes in the tables.
    pub retention: Retention,
    /// The number of commits that a slow watcher may lag behind before it has to read the events
    /// table.
    pub feed: usize,
    /// The number of commands from one snapshot to the next while the engine runs. It saves one when
    /// it stops, too.
    pub snapshot_every: u64,
    /// The time between two checks of the whole journal. None means that it is not checked.
    pub scrub_every: Option<Duration>,
    /// The parts to leave out. Only benchmarks and tests leave out any, and these serve the loopback
    /// only. `server::config` never sets it.
    pub omitted: OmittedParts,
    /// The way in which the engine comes to lead.
    pub start: Start,
    /// The length of the lease. No engine takes over from a silent leader before its lease has run
    /// out. Only for stores that have leases.
    pub lease: Duration,
}

impl EngineOptions {
    /// Returns default options. The engine fences any other one that leads.
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
            snapshot_every: SNAPSHOT_EVERY,
            scrub_every: None,
            omitted: OmittedParts::default(),
            start: Start::TakeOver,
            lease: LEASE,
        }
    }
}

/// The way in which an engine comes to lead. SQLite has no lease: the first two are the same there, and a
/// standby is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Fences any engine that leads.
    TakeOver,
    /// Leads if no other engine does. Refuses to start if another engine leads and is alive.
    Alone,
    /// Follows the journal, and leads when no other engine does any more.
    Standby,
}
