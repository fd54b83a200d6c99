//! The market's clock: the only place that asks for the time.

mod start;

pub use start::ClockFault;
pub(crate) use start::{Known, check};

use crate::runtime::metrics;
use crate::store::ClockMark;
use kubebid_core::units::Micros;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::{error, info};

/// The source of the time of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The machine's clock. It never goes backwards.
    Real,
    /// A clock that only AdvanceTime moves, for replays and tests.
    Stepped,
}

/// The longest step of the machine's clock that market time follows, by default.
pub const MAX_CLOCK_JUMP: Duration = Duration::from_secs(60);

/// The drift of the clock, in microseconds, after which the mark for the next engine is written again.
const NOTED_WITHIN: i64 = 1_000_000;

/// The clocks of a machine. Tests bring their own.
pub trait MachineClock: fmt::Debug + Send + Sync {
    /// Returns the time of day. NTP or a person may set it.
    fn wall(&self) -> Micros;

    /// Returns the time since the machine was started. It cannot be set, and it goes on while the
    /// machine is suspended.
    fn since_boot(&self) -> Micros;

    /// Returns the identity of this start of the machine, if the system has one.
    fn boot_id(&self) -> Option<String>;
}

/// The clocks of the machine that the engine runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl MachineClock for SystemClock {
    fn wall(&self) -> Micros {
        wall()
    }

    fn since_boot(&self) -> Micros {
        since_boot()
    }

    #[cfg(target_os = "linux")]
    fn boot_id(&self) -> Option<String> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(id.trim().to_owned())
    }

    #[cfg(not(target_os = "linux"))]
    fn boot_id(&self) -> Option<String> {
        None
    }
}

/// Returns the machine's time of day.
#[expect(clippy::disallowed_methods, reason = "the one place that asks")]
pub fn wall() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// Returns the time since the machine was started, including the time in which it was suspended.
pub(crate) fn since_boot() -> Micros {
    // `std::time::Instant` stops while the machine is suspended.
    #[cfg(target_os = "linux")]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(CLOCK);
    Micros(time.tv_sec as u64 * Micros::SECOND.0 + time.tv_nsec as u64 / 1000)
}

/// Market time between two commands: the machine's clock, but never backwards and without its jumps. Cheap to clone.
///
/// Market time is the time since boot plus an offset. A step of the machine's clock within `max_jump` moves the offset.
/// A longer one is refused: market time goes on with the time since boot, an error is logged, and a gauge says how far
/// the two are apart until the machine's clock has come back.
#[derive(Clone, Debug)]
pub(crate) struct MarketClock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Clock,
    machine: Arc<dyn MachineClock>,
    max_jump_us: u64,
    /// Market time less the time since boot, in microseconds.
    offset_us: AtomicI64,
    /// The offset that was last written to the store.
    noted_us: AtomicI64,
    refuses: AtomicBool,
}

impl MarketClock {
    pub(crate) fn new(kind: Clock, machine: Arc<dyn MachineClock>, max_jump: Duration) -> MarketClock {
        let offset_us = AtomicI64::new(offset(machine.wall(), machine.since_boot()));
        let max_jump_us = u64::try_from(max_jump.as_micros()).unwrap_or(u64::MAX);
        // Nothing is noted yet.
        let (noted_us, refuses) = (AtomicI64::new(i64::MIN), AtomicBool::new(false));
        MarketClock(Arc::new(Inner { kind, machine, max_jump_us, offset_us, noted_us, refuses }))
    }

    pub(crate) fn kind(&self) -> Clock {
        self.0.kind
    }

    /// Returns the time for the next stamp. `last` is the previous one.
    pub(crate) fn now(&self, last: Micros) -> Micros {
        match self.0.kind {
            Clock::Real => last.max(self.read()),
            Clock::Stepped => last,
        }
    }

    fn read(&self) -> Micros {
        let Inner { machine, max_jump_us, offset_us, refuses, .. } = &*self.0;
        let (wall, boot) = (machine.wall(), machine.since_boot());
        let (kept, found) = (offset_us.load(Ordering::Relaxed), offset(wall, boot));
        let jump_us = found.saturating_sub(kept);
        if jump_us.unsigned_abs() > *max_jump_us {
            if !refuses.swap(true, Ordering::Relaxed) {
                let seconds = seconds(jump_us);
                error!(seconds, "the machine's clock jumped; market time goes on by the monotonic clock");
            }
            metrics::clock_jump(seconds(jump_us));
            return Micros(boot.0.saturating_add_signed(kept));
        }
        offset_us.store(found, Ordering::Relaxed);
        if refuses.load(Ordering::Relaxed) && refuses.swap(false, Ordering::Relaxed) {
            info!("market time follows the machine's clock again");
            metrics::clock_jump(0.0);
        }
        wall
    }

    /// Continues market time from `last` if that is more than a permitted jump ahead. Otherwise
    /// market time would stand still until the machine's clock reaches `last`.
    pub(crate) fn go_on_from(&self, last: Micros) {
        let Inner { kind, machine, max_jump_us, offset_us, .. } = &*self.0;
        let from_last = offset(last, machine.since_boot());
        let ahead_us = from_last.saturating_sub(offset_us.load(Ordering::Relaxed));
        if *kind == Clock::Real && ahead_us > 0 && ahead_us.unsigned_abs() > *max_jump_us {
            offset_us.store(from_last, Ordering::Relaxed);
        }
    }

    /// Returns the mark for the next engine on this machine, if it has changed since the last call.
    pub(crate) fn to_note(&self) -> Option<ClockMark> {
        let Inner { kind, machine, offset_us, noted_us, .. } = &*self.0;
        let (offset_us, noted) = (offset_us.load(Ordering::Relaxed), noted_us.load(Ordering::Relaxed));
        if *kind == Clock::Stepped || offset_us.abs_diff(noted) < NOTED_WITHIN.unsigned_abs() {
            return None;
        }
        noted_us.store(offset_us, Ordering::Relaxed);
        Some(ClockMark { boot_id: machine.boot_id()?, offset_us })
    }
}

/// Returns `time` less the time since boot.
fn offset(time: Micros, boot: Micros) -> i64 {
    i64::try_from(i128::from(time.0) - i128::from(boot.0)).unwrap_or(i64::MAX)
}

fn seconds(us: i64) -> f64 {
    us as f64 / Micros::SECOND.0 as f64
}

#[cfg(test)]
pub(crate) mod tests;
