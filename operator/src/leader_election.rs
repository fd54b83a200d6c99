//! Leader election by a Lease: one replica writes at a time, and it stops before its Lease can have expired.

use crate::clock;
use crate::metrics;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::jiff::SignedDuration;
use kube::Client;
use kube::api::Api;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info, warn};

/// The interval at which the Lease is read.
const POLL: Duration = Duration::from_millis(500);
/// The deadline of a call to the API server.
const DEADLINE: Duration = Duration::from_secs(5);
/// The time to wait at the end for running passes, and then for the release of the Lease.
const GRACE: Duration = Duration::from_secs(1);

/// Calls a function until it succeeds, with a backoff from 250 ms to 10 s and jitter. `what` names the failure in the log.
pub async fn until_done<T, E: std::fmt::Display>(
    what: &str,
    mut tried: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let mut wait = Duration::from_millis(250);
    loop {
        match tried().await {
            Ok(done) => return done,
            Err(error) => warn!(%error, "{what}: to be tried again"),
        }
        sleep(wait.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
        wait = (wait * 2).min(Duration::from_secs(10));
    }
}

/// The right to write. A process that was suspended does not know for how long, and a process that cannot reach the API
/// server does not learn that another replica has taken its Lease. In both cases the last confirmation is too old, and
/// nothing is written.
#[derive(Clone, Debug)]
pub struct Leadership {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    leads: AtomicBool,
    /// The number of passes that are running.
    passes: watch::Sender<usize>,
    /// The time at which the Lease was last confirmed to be ours.
    confirmed: watch::Sender<Instant>,
    /// The age of the confirmation from which another replica may lead.
    limit: Duration,
}

impl Leadership {
    /// Creates the right to write of a single replica, which has no Lease.
    pub fn alone() -> Self {
        metrics::leads(true);
        let state = State {
            leads: AtomicBool::new(true),
            passes: watch::Sender::new(0),
            confirmed: watch::Sender::new(Instant::now()),
            limit: Duration::MAX,
        };
        Leadership { state: Arc::new(state) }
    }

    /// Creates the right to write of a replica that has just acquired a Lease of this duration.
    fn of(lease: Duration) -> Self {
        metrics::leads(true);
        let state = State {
            leads: AtomicBool::new(true),
            passes: watch::Sender::new(0),
            confirmed: watch::Sender::new(Instant::now()),
            limit: lease / 3,
        };
        Leadership { state: Arc::new(state) }
    }

    /// Counts a pass for as long as the returned value lives.
    pub(crate) fn pass(&self) -> Pass {
        self.state.passes.send_modify(|passes| *passes += 1);
        Pass(Arc::clone(&self.state))
    }

    /// Ends the right to write, and waits a moment for running passes.
    pub async fn finish(&self) {
        self.end();
        let mut passes = self.state.passes.subscribe();
        if timeout(GRACE, passes.wait_for(|passes| *passes == 0)).await.is_err() {
            warn!("what was under way is broken off");
        }
    }

    fn end(&self) {
        self.state.leads.store(false, Ordering::SeqCst);
        metrics::leads(false);
    }

    /// Reads the Lease, and confirms that it was ours when the call began. A call without an answer confirms nothing.
    async fn confirm(&self, leases: &Api<Lease>, name: &str, identity: &str) {
        let asked = Instant::now();
        let ours =
            |lease: Lease| lease.spec.and_then(|spec| spec.holder_identity).is_some_and(|it| it == identity);
        if let Ok(Ok(lease)) = timeout(self.state.limit, leases.get(name)).await
            && ours(lease)
            && self.is_valid()
        {
            self.state.confirmed.send_replace(asked);
        }
    }

    /// Returns whether this replica may write.
    pub fn is_valid(&self) -> bool {
        self.state.leads.load(Ordering::SeqCst) && self.state.confirmed.borrow().elapsed() < self.state.limit
    }
}

/// A pass that is running.
#[derive(Debug)]
pub(crate) struct Pass(Arc<State>);

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.passes.send_modify(|passes| *passes -= 1);
    }
}

/// A replica that may become the leader, by a Lease.
#[derive(Clone)]
pub struct Candidate {
    client: Client,
    namespace: String,
    name: String,
    identity: String,
    lease: Duration,
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Candidate({} for {}/{})", self.identity, self.namespace, self.name)
    }
}

/// The state of the Lease after a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermEnd {
    /// Another replica has the Lease.
    ToAnother,
    /// The API server was away for longer than the Lease allows, and no other replica has taken it.
    ToNone,
}

/// A term: the time in which this replica is the leader.
#[derive(Debug)]
pub struct Term {
    /// The right to write during the term.
    pub leadership: Leadership,
    candidate: Candidate,
    changes: watch::Receiver<bool>,
    task: JoinHandle<Result<LeaseManager, LeaseManagerError>>,
}

impl Candidate {
    /// Creates a candidate for a Lease of this namespace, name and duration.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, lease: Duration) -> Self {
        let (namespace, name, identity) = (namespace.to_owned(), name.to_owned(), identity.to_owned());
        Candidate { client, namespace, name, identity, lease }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits until this replica is the leader. An API server that does not answer is waited for.
    pub async fn lead(&self) -> Term {
        loop {
            let manager = until_done("the Lease cannot be asked for", async || self.manager().await).await;
            let (mut changes, task) = manager.watch().await;
            let leads = tokio::select! {
                leads = has_won(&mut changes) => leads,
                // The manager sleeps until the Lease would end: another one sees at once that it was released.
                () = self.is_released() => false,
            };
            if leads {
                info!(identity = self.identity, "this replica leads");
                let leadership = Leadership::of(self.lease);
                return Term { leadership, candidate: self.clone(), changes, task };
            }
            // Dropping `changes` would release the Lease, perhaps after the next manager has acquired it.
            end(task).await;
        }
    }

    async fn manager(&self) -> Result<LeaseManager, String> {
        let manager = LeaseManagerBuilder::new(self.client.clone(), &self.name)
            .with_namespace(&self.namespace)
            .with_identity(&self.identity)
            .with_duration(self.lease.as_secs())
            .with_grace((self.lease / 3).as_secs())
            .build();
        match timeout(DEADLINE, manager).await {
            Ok(built) => built.map_err(|error| error.to_string()),
            Err(_) => Err("the API server does not answer".to_owned()),
        }
    }

    async fn spec(&self) -> Result<LeaseSpec, String> {
        match timeout(DEADLINE, self.leases().get_opt(&self.name)).await {
            Ok(Ok(lease)) => Ok(lease.and_then(|lease| lease.spec).unwrap_or_default()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the API server does not answer".to_owned()),
        }
    }

    /// Waits until two reads in a row show a Lease without a holder. An expired Lease is left to its manager.
    async fn is_released(&self) {
        let mut reads = 0;
        while reads < 2 {
            sleep(POLL).await;
            let is_released = self.spec().await.is_ok_and(|spec| spec.holder_identity.is_none());
            reads = if is_released { reads + 1 } else { 0 };
        }
    }
}

/// Aborts the task of a manager.
async fn end<T>(task: JoinHandle<T>) {
    task.abort();
    let _ = task.await;
}

fn has_expired(spec: &LeaseSpec) -> bool {
    let (Some(renewed), Some(seconds)) = (&spec.renew_time, spec.lease_duration_seconds) else {
        return false;
    };
    renewed.0 + SignedDuration::from_secs(seconds.into()) < clock::now()
}

/// Waits until the manager leads. Returns false if it has ended instead.
async fn has_won(changes: &mut watch::Receiver<bool>) -> bool {
    changes.wait_for(|leads| *leads).await.is_ok()
}

impl Term {
    /// Waits until this replica is not the leader.
    pub async fn ended(&mut self) {
        let leases = self.candidate.leases();
        loop {
            tokio::select! {
                changed = self.changes.changed() => {
                    if changed.is_err() || !*self.changes.borrow_and_update() {
                        error!("the lease is lost");
                        break;
                    }
                }
                () = sleep(POLL) => {}
            }
            if !self.leadership.is_valid() {
                error!("this process stood still, or did not see its lease, for longer than that allows");
                break;
            }
            self.leadership.confirm(&leases, &self.candidate.name, &self.candidate.identity).await;
        }
        self.leadership.end();
    }

    /// Returns the state of the Lease after this term. An API server that does not answer is waited for.
    pub async fn lost(self) -> TermEnd {
        end(self.task).await;
        let spec = until_done("the Lease cannot be read", async || self.candidate.spec().await).await;
        let is_another = spec.holder_identity.as_ref().is_some_and(|it| *it != self.candidate.identity);
        if is_another && !has_expired(&spec) { TermEnd::ToAnother } else { TermEnd::ToNone }
    }

    /// Releases the Lease, so that another replica becomes the leader at once.
    pub async fn release(self) {
        drop(self.changes);
        match timeout(GRACE, self.task).await {
            Ok(Ok(Ok(_))) => info!("the lease is released"),
            Ok(Ok(Err(error))) => warn!(%error, "the lease is not released"),
            Ok(Err(_)) | Err(_) => warn!("the lease is not released in time"),
        }
    }
}
