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

/// Renews a lease until it is told to give it back, or somebody else has it.
#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    stop: oneshot::Sender<()>,
    task: JoinHandle<bool>,
}

impl LeaseKeeper {
    /// `taken` is a moment before the lease was. When somebody else has it the intake is closed: the engine ends.
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

    /// Lets whoever waits lead. Says whether the lease was ours until then.
    pub(crate) async fn give_back(self) -> bool {
        let _ = self.stop.send(());
        self.task.await.unwrap_or(false)
    }
}

/// Ends when the lease is lost, or `stopped` is told or dropped.
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
        // It is ours for as long from the moment at which the database did it, which is not before this one.
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
                // Soon again, for there is time for one or two more.
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
