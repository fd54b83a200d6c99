//! Renews the lease of a leader, and gives it back at the end.

use crate::runtime::clock::since_boot;
use crate::runtime::health::in_full;
use crate::runtime::intake::Intake;
use crate::runtime::lease_state::LeaseState;
use crate::runtime::metrics;
use crate::store::Lease;
use kubebid_core::units::Micros;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::{error, info, warn};

/// The task that renews a lease until it gives it back or another engine has taken it.
#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    stop: oneshot::Sender<()>,
    task: JoinHandle<bool>,
}

impl LeaseKeeper {
    /// Starts to renew a lease. `taken` is an instant before the lease was taken. If another engine
    /// takes the lease, the intake is closed and this engine ends.
    pub(crate) fn start(
        lease: Lease,
        taken: Micros,
        lease_state: LeaseState,
        intake: Arc<Intake>,
    ) -> LeaseKeeper {
        let (stop, stopped) = oneshot::channel();
        lease_state.set(taken, lease.length());
        LeaseKeeper { stop, task: tokio::spawn(keep(lease, lease_state, intake, stopped)) }
    }

    /// Gives the lease back, so that a waiting engine can lead. Returns true if the lease was ours
    /// until then.
    pub(crate) async fn give_back(self) -> bool {
        let _ = self.stop.send(());
        self.task.await.unwrap_or(false)
    }
}

/// Renews the lease until it is lost, or until `stopped` is sent or dropped.
async fn keep(
    mut lease: Lease,
    lease_state: LeaseState,
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
        // The lease is valid for its length from the moment at which the database renewed it,
        // which is not before this one.
        let asked = since_boot();
        pause = match lease.renew().await {
            Ok(true) => {
                lease_state.set(asked, lease.length());
                often
            }
            Ok(false) => {
                error!("another engine has taken the lease, or its row is gone");
                lease_state.set(asked, Duration::ZERO);
                intake.close();
                return false;
            }
            Err(fault) => {
                warn!(error = in_full(&fault), "the lease is not renewed");
                metrics::lease_not_renewed();
                // The next attempt follows soon: the lease lasts long enough for one or
                // two more.
                often.min(Duration::from_millis(200))
            }
        };
    }
    lease_state.set(since_boot(), Duration::ZERO);
    match lease.give_back().await {
        Ok(()) => info!("gave the lease back"),
        Err(fault) => warn!(error = in_full(&fault), "the lease could not be given back; it lapses"),
    }
    true
}
