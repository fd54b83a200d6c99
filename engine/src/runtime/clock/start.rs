//! Checks the machine's clock against the journal and the database at the start.

use super::{Clock, Inner, MarketClock, offset, seconds};
use crate::store::ClockMark;
use kubebid_core::units::Micros;
use std::sync::atomic::Ordering;
use tracing::warn;

/// Why an engine does not start with the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ClockFault {
    /// The journal's last stamp is in the future.
    #[error(
        "the journal's last command was stamped {seconds:.0} s ahead of this machine's clock: set the clock right; if \
         it is right, market time can go on from that command with --accept-time-jump (docs/runbooks.md#clockjumped)"
    )]
    JournalAhead {
        /// The seconds by which the stamp is ahead of the clock.
        seconds: f64,
    },
    /// The clock was set while no engine ran.
    #[error(
        "this machine's clock was moved by {seconds:.0} s while no engine ran: set it right; if it is right, \
         start with --accept-time-jump (docs/runbooks.md#clockjumped)"
    )]
    Moved {
        /// The seconds by which it was moved.
        seconds: f64,
    },
    /// The clock differs from that of the database.
    #[error(
        "this machine's clock and the database's are {seconds:.0} s apart: set the wrong one right; if this \
         machine's is right, start with --accept-time-jump (docs/runbooks.md#clockjumped)"
    )]
    Apart {
        /// The seconds between the two clocks.
        seconds: f64,
    },
}

/// The times that an engine knows at its start, besides the machine's clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The stamp of the journal's last command.
    pub(crate) last: Option<Micros>,
    /// The mark of the last engine.
    pub(crate) mark: Option<ClockMark>,
    /// The database's clock, read just now.
    pub(crate) database: Option<Micros>,
}

/// Compares the machine's clock with what else is known. A last stamp in the past proves nothing, because
/// an engine may be stopped for any time.
pub(crate) fn check(clock: &MarketClock, known: &Known, accept: bool) -> Result<(), ClockFault> {
    let Inner { kind, machine, max_jump_us, offset_us, .. } = &*clock.0;
    if *kind == Clock::Stepped {
        return Ok(());
    }
    let (kept, boot) = (offset_us.load(Ordering::Relaxed), machine.since_boot());
    let beyond = |us: i64| us.unsigned_abs() > *max_jump_us;
    let mut faults = Vec::new();
    if let Some(mark) = known.mark.as_ref().filter(|mark| machine.boot_id().as_ref() == Some(&mark.boot_id)) {
        let moved = kept.saturating_sub(mark.offset_us);
        if beyond(moved) {
            faults.push(ClockFault::Moved { seconds: seconds(moved) });
        }
    }
    if let Some(database) = known.database {
        let apart = kept.saturating_sub(offset(database, boot));
        if beyond(apart) {
            faults.push(ClockFault::Apart { seconds: seconds(apart) });
        }
    }
    if let Some(last) = known.last {
        let ahead = offset(last, boot).saturating_sub(kept);
        if ahead > 0 && beyond(ahead) {
            faults.push(ClockFault::JournalAhead { seconds: seconds(ahead) });
        }
    }
    match faults.first() {
        Some(fault) if !accept => Err(*fault),
        Some(_) | None => {
            faults.iter().for_each(|fault| warn!(%fault, "accepted"));
            Ok(())
        }
    }
}
