//! Who leads: one replica at a time, by a Lease; and knowing in time that one does not any more.

use crate::metrics;
use kube::Client;
use kube_lease_manager::{LeaseManagerBuilder, LeaseManagerError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info};

/// How often the pulse is felt.
const PULSE: Duration = Duration::from_millis(200);

/// The right to act. A process that was stopped for a while and goes on does not know how long that was: its pulse
/// tells it, before it writes anything.
#[derive(Clone, Debug)]
pub struct Reign {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    leads: AtomicBool,
    pulse: watch::Sender<Instant>,
    /// Without a pulse for this long somebody else may lead.
    limit: Duration,
}

impl Reign {
    /// Without anybody beside: for a single replica.
    pub fn alone() -> Self {
        let state = State {
            leads: AtomicBool::new(true),
            pulse: watch::Sender::new(Instant::now()),
            limit: Duration::MAX,
        };
        Reign { state: Arc::new(state) }
    }

    /// Waits until this replica leads. The other end resolves when it does not any more.
    pub async fn begin(
        client: Client,
        namespace: &str,
        name: &str,
        identity: &str,
        lease: Duration,
    ) -> Result<(Self, impl Future<Output = ()> + use<>), LeaseManagerError> {
        let grace = lease / 3;
        let manager = LeaseManagerBuilder::new(client, name)
            .with_namespace(namespace)
            .with_identity(identity)
            .with_duration(lease.as_secs())
            .with_grace(grace.as_secs())
            .build()
            .await?;
        let (mut changes, _task) = manager.watch().await;
        while !*changes.borrow_and_update() {
            if changes.changed().await.is_err() {
                break;
            }
        }
        info!(identity, "this replica leads");
        metrics::leads(true);
        let state = Arc::new(State {
            leads: AtomicBool::new(true),
            pulse: watch::Sender::new(Instant::now()),
            limit: grace,
        });
        let reign = Reign { state };
        let watched = reign.clone();
        let end = async move {
            loop {
                tokio::select! {
                    changed = changes.changed() => {
                        if changed.is_err() || !*changes.borrow_and_update() {
                            error!("the lease is lost");
                            break;
                        }
                    }
                    () = tokio::time::sleep(PULSE) => {
                        if !watched.beat() {
                            error!("this process stood still for longer than its lease allows");
                            break;
                        }
                    }
                }
            }
            watched.state.leads.store(false, Ordering::SeqCst);
        };
        Ok((reign, end))
    }

    fn beat(&self) -> bool {
        let alive = self.holds();
        if alive {
            self.state.pulse.send_replace(Instant::now());
        } else {
            self.state.leads.store(false, Ordering::SeqCst);
        }
        alive
    }

    /// Whether this replica may write.
    pub fn holds(&self) -> bool {
        self.state.leads.load(Ordering::SeqCst) && self.state.pulse.borrow().elapsed() < self.state.limit
    }
}
