//! Who leads: one replica at a time, by a Lease; and knowing in time that one does not any more.

use crate::metrics;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::Api;
use kube_lease_manager::{LeaseManagerBuilder, LeaseManagerError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{error, info};

/// How often the lease is looked at.
const PULSE: Duration = Duration::from_millis(500);

/// The right to act. A process that was stopped for a while and goes on does not know how long that was, and one that
/// cannot reach the API server does not hear that another has taken its lease: for both the pulse is too old, before
/// anything is written.
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
        metrics::leads(true);
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
        let manager = LeaseManagerBuilder::new(client.clone(), name)
            .with_namespace(namespace)
            .with_identity(identity)
            .with_duration(lease.as_secs())
            .with_grace(grace.as_secs())
            .build()
            .await?;
        let (mut changes, _task) = manager.watch().await;
        while !*changes.borrow_and_update() {
            if changes.changed().await.is_err() {
                return Err(LeaseManagerError::InconsistentState("it has ended".to_owned()));
            }
        }
        info!(identity, "this replica leads");
        metrics::leads(true);
        let state =
            State { leads: AtomicBool::new(true), pulse: watch::Sender::new(Instant::now()), limit: grace };
        let reign = Reign { state: Arc::new(state) };
        let leases: Api<Lease> = Api::namespaced(client, namespace);
        let (watched, name, identity) = (reign.clone(), name.to_owned(), identity.to_owned());
        let end = async move {
            loop {
                tokio::select! {
                    changed = changes.changed() => {
                        if changed.is_err() || !*changes.borrow_and_update() {
                            error!("the lease is lost");
                            break;
                        }
                    }
                    () = tokio::time::sleep(PULSE) => {}
                }
                if !watched.holds() {
                    error!("this process stood still, or did not see its lease, for longer than that allows");
                    break;
                }
                watched.beat(&leases, &name, &identity).await;
            }
            watched.state.leads.store(false, Ordering::SeqCst);
            metrics::leads(false);
        };
        Ok((reign, end))
    }

    /// Looks whether the lease is ours, as of before the question. No answer is no beat.
    async fn beat(&self, leases: &Api<Lease>, name: &str, identity: &str) {
        let asked = Instant::now();
        let ours =
            |lease: Lease| lease.spec.and_then(|spec| spec.holder_identity).is_some_and(|it| it == identity);
        if let Ok(Ok(lease)) = timeout(self.state.limit, leases.get(name)).await
            && ours(lease)
            && self.holds()
        {
            self.state.pulse.send_replace(asked);
        }
    }

    /// Whether this replica may write.
    pub fn holds(&self) -> bool {
        self.state.leads.load(Ordering::SeqCst) && self.state.pulse.borrow().elapsed() < self.state.limit
    }
}
