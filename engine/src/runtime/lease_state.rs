//! For how long this engine leads: renews its lease, and knows when it may have lapsed.

use crate::clock::since_boot;
use crate::health::in_full;
use crate::intake::Intake;
use crate::metrics;
use crate::store::Lease;
use kubebid_core::units::Micros;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::{error, info, warn};

/// Whether this engine leads, for all it can know. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Tenure(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// On the clock that goes on while the process stands still, and while the machine is suspended.
    until_us: AtomicU64,
}

impl Tenure {
    /// Where there is no lease: as long as the process lives.
    pub(crate) fn for_life() -> Tenure {
        Tenure(Arc::new(Inner { until_us: AtomicU64::new(u64::MAX) }))
    }

    /// From here on as long as the process lives.
    pub(crate) fn renew_for_life(&self) {
        self.0.until_us.store(u64::MAX, Ordering::Release);
    }

    /// Nobody else leads. When this says no somebody may, or does.
    pub(crate) fn is_sure(&self) -> bool {
        let until_us = self.0.until_us.load(Ordering::Acquire);
        until_us == u64::MAX || since_boot().0 < until_us
    }

    /// Nobody else leads for `length` from an instant of [`since_boot`] on.
    pub(crate) fn set(&self, from: Micros, length: Duration) {
        let length_us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let until_us = from.0.saturating_add(length_us).min(u64::MAX - 1);
        self.0.until_us.store(until_us, Ordering::Release);
    }
}

/// Renews a lease until it is told to give it back, or somebody else has it.
#[derive(Debug)]
pub(crate) struct Keeper {
    stop: oneshot::Sender<()>,
    task: JoinHandle<bool>,
}

impl Keeper {
    /// `taken` is a moment before the lease was. When somebody else has it the intake is closed: the engine ends.
    pub(crate) fn start(lease: Lease, taken: Micros, tenure: Tenure, intake: Arc<Intake>) -> Keeper {
        let (stop, stopped) = oneshot::channel();
        tenure.set(taken, lease.length());
        Keeper { stop, task: tokio::spawn(keep(lease, tenure, intake, stopped)) }
    }

    /// Lets whoever waits lead. Says whether the lease was ours until then.
    pub(crate) async fn give_back(self) -> bool {
        let _ = self.stop.send(());
        self.task.await.unwrap_or(false)
    }
}

/// Ends when the lease is lost, or `stopped` is told or dropped.
async fn keep(
    mut lease: Lease,
    tenure: Tenure,
    intake: Arc<Intake>,
    mut stopped: oneshot::Receiver<()>,
) -> bool {
    let often = lease.length() / 3;
    let mut pause = often;
    loop {
        tokio::select! {
            () = sleep(pause) => {}
            _ = &mut stopped => break,
        }
        // It is ours for as long from the moment at which the database did it, which is not before this one.
        let asked = since_boot();
        pause = match lease.renew().await {
            Ok(true) => {
                tenure.set(asked, lease.length());
                often
            }
            Ok(false) => {
                error!("another engine has taken the lease, or its row is gone");
                tenure.set(asked, Duration::ZERO);
                intake.close();
                return false;
            }
            Err(fault) => {
                warn!(error = in_full(&fault), "the lease is not renewed");
                metrics::lease_not_renewed();
                // Soon again, for there is time for one or two more.
                often.min(Duration::from_millis(200))
            }
        };
    }
    tenure.set(since_boot(), Duration::ZERO);
    match lease.give_back().await {
        Ok(()) => info!("gave the lease back"),
        Err(fault) => warn!(error = in_full(&fault), "the lease could not be given back; it lapses"),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sure_behind_the_end_of_a_lease() {
        let tenure = Tenure::for_life();
        assert!(tenure.is_sure());
        tenure.set(since_boot(), Duration::from_secs(3600));
        assert!(tenure.is_sure());
        tenure.set(since_boot(), Duration::ZERO);
        assert!(!tenure.is_sure());
    }
}
