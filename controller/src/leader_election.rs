//! Leader election: one replica acts at a time, by a Lease, and it notices in time when its lease may have run out.

use crate::api_error;
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

/// The interval at which the lease is looked at.
const PULSE: Duration = Duration::from_millis(500);
/// The time that a question to the API server may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time that running passes have to finish when the process is told to stop.
const FINISH: Duration = Duration::from_secs(10);
/// The time that the release of the lease may take.
const RELEASE: Duration = Duration::from_secs(1);

/// Tries until it succeeds, at first after a quarter of a second and then less and less often, every 10 seconds at least.
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

/// The right to act. A process that was suspended does not know for how long, and one that cannot reach the API server
/// does not learn that another replica has taken its lease. In both cases the last pulse is too old, and nothing is
/// written.
#[derive(Clone, Debug)]
pub struct Leadership {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    leads: AtomicBool,
    /// True from when the process is told to stop: what is under way finishes, and nothing begins.
    stops: AtomicBool,
    /// Passes that are under way.
    passes: watch::Sender<usize>,
    pulse: watch::Sender<Instant>,
    /// The age of the last pulse from which another replica may lead.
    limit: Duration,
}

impl Leadership {
    /// Without anybody beside: for a single replica.
    pub fn alone() -> Self {
        Leadership::valid_for(Duration::MAX)
    }

    /// Leads from now on, until the last pulse is older than `limit`.
    fn valid_for(limit: Duration) -> Self {
        metrics::leads(true);
        let state = State {
            leads: AtomicBool::new(true),
            stops: AtomicBool::new(false),
            passes: watch::Sender::new(0),
            pulse: watch::Sender::new(Instant::now()),
            limit,
        };
        Leadership { state: Arc::new(state) }
    }

    /// Counts a pass for as long as what is returned lives.
    pub(crate) fn pass(&self) -> Pass {
        self.state.passes.send_modify(|passes| *passes += 1);
        Pass(Arc::clone(&self.state))
    }

    /// Lets no pass begin any more, and waits for those under way, which may still write. Then nothing is written.
    pub async fn finish(&self) {
        self.state.stops.store(true, Ordering::SeqCst);
        let mut passes = self.state.passes.subscribe();
        if timeout(FINISH, passes.wait_for(|passes| *passes == 0)).await.is_err() {
            warn!("passes that take longer than {FINISH:?} are broken off");
        }
        self.end();
    }

    fn end(&self) {
        self.state.leads.store(false, Ordering::SeqCst);
        metrics::leads(false);
    }

    /// Looks whether the lease is ours, as of before the question. No answer is no beat.
    async fn beat(&self, leases: &Api<Lease>, name: &str, identity: &str) {
        let asked = Instant::now();
        let ours =
            |lease: Lease| lease.spec.and_then(|spec| spec.holder_identity).is_some_and(|it| it == identity);
        if let Ok(Ok(lease)) = timeout(self.state.limit, leases.get(name)).await
            && ours(lease)
            && self.is_valid()
        {
            self.state.pulse.send_replace(asked);
        }
    }

    /// Returns whether this replica may write.
    pub fn is_valid(&self) -> bool {
        !self.left().is_zero()
    }

    /// Returns the time for which this replica may write without another pulse: a call must not take longer.
    pub fn left(&self) -> Duration {
        if !self.state.leads.load(Ordering::SeqCst) {
            return Duration::ZERO;
        }
        self.state.limit.saturating_sub(self.state.pulse.borrow().elapsed())
    }

    /// Returns whether a pass, or another step of one, may begin: this replica may write, and was not told to stop.
    pub(crate) fn may_begin(&self) -> bool {
        !self.state.stops.load(Ordering::SeqCst) && self.is_valid()
    }
}

/// A pass that is under way.
#[derive(Debug)]
pub(crate) struct Pass(Arc<State>);

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.passes.send_modify(|passes| *passes -= 1);
    }
}

/// The Lease by which one of several replicas leads.
#[derive(Clone)]
pub struct Candidate {
    client: Client,
    namespace: String,
    name: String,
    identity: String,
    times: LeaseTimes,
}

/// The times of a Lease. Renew deadline and retry period together are not longer than the duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// The time for which the Lease lasts without being renewed. Then another replica takes it.
    pub duration: Duration,
    /// The time after which a leader that does not see its Lease stops writing.
    pub renew_deadline: Duration,
    /// The time between two renewals.
    pub retry_period: Duration,
}

impl LeaseTimes {
    /// Returns times for a Lease of this duration: it is renewed after two thirds of it.
    pub fn new(duration: Duration) -> LeaseTimes {
        let renew_deadline = Duration::from_secs(duration.as_secs() / 3);
        LeaseTimes { duration, renew_deadline, retry_period: duration - renew_deadline }
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Candidate({} for {}/{})", self.identity, self.namespace, self.name)
    }
}

/// Why a term has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermEnd {
    /// Another replica has the Lease.
    ToAnother,
    /// The API server was away for longer than the Lease allows, and no other replica has taken it.
    ToNobody,
}

/// The time in which this replica leads.
#[derive(Debug)]
pub struct Term {
    /// The right to act in this term.
    pub leadership: Leadership,
    candidate: Candidate,
    changes: watch::Receiver<bool>,
    task: JoinHandle<Result<LeaseManager, LeaseManagerError>>,
}

impl Candidate {
    /// Returns a candidate for a Lease.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, times: LeaseTimes) -> Self {
        let (namespace, name, identity) = (namespace.to_owned(), name.to_owned(), identity.to_owned());
        Candidate { client, namespace, name, identity, times }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits until this replica leads, also for an API server that is away.
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
                let leadership = Leadership::valid_for(self.times.renew_deadline);
                return Term { leadership, candidate: self.clone(), changes, task };
            }
            // Not released, as the end of `changes` would: that may fall on the Lease that the next manager takes.
            end(task).await;
        }
    }

    async fn manager(&self) -> Result<LeaseManager, String> {
        let manager = LeaseManagerBuilder::new(self.client.clone(), &self.name)
            .with_namespace(&self.namespace)
            .with_identity(&self.identity)
            .with_duration(self.times.duration.as_secs())
            .with_grace((self.times.duration - self.times.retry_period).as_secs())
            .build();
        match timeout(PATIENCE, manager).await {
            Ok(built) => built.map_err(|error| error.to_string()),
            Err(_) => Err("the API server does not answer".to_owned()),
        }
    }

    /// Returns the replica that has the Lease.
    pub(crate) async fn holder(&self) -> Result<Option<String>, String> {
        Ok(self.spec().await?.holder_identity)
    }

    async fn spec(&self) -> Result<LeaseSpec, String> {
        match timeout(PATIENCE, self.leases().get_opt(&self.name)).await {
            Ok(Ok(lease)) => Ok(lease.and_then(|lease| lease.spec).unwrap_or_default()),
            Ok(Err(error)) => Err(api_error::message(&error)),
            Err(_) => Err("the API server does not answer".to_owned()),
        }
    }

    /// Waits until the Lease has no holder, as of two looks. One that has expired is its manager's to take.
    async fn is_released(&self) {
        let mut looks = 0;
        while looks < 2 {
            sleep(PULSE).await;
            let is_released = self.spec().await.is_ok_and(|spec| spec.holder_identity.is_none());
            looks = if is_released { looks + 1 } else { 0 };
        }
    }
}

/// Ends the task of a manager, wherever it is.
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

/// Waits until the manager leads; false where it has ended instead.
async fn has_won(changes: &mut watch::Receiver<bool>) -> bool {
    changes.wait_for(|leads| *leads).await.is_ok()
}

impl Term {
    /// Waits until this replica does not lead any more.
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
                () = sleep(PULSE) => {}
            }
            if !self.leadership.is_valid() {
                error!("this process stood still, or did not see its lease, for longer than that allows");
                break;
            }
            self.leadership.beat(&leases, &self.candidate.name, &self.candidate.identity).await;
        }
        self.leadership.end();
    }

    /// Says who has the Lease after this term, as soon as the API server does.
    pub async fn lost(self) -> TermEnd {
        end(self.task).await;
        let spec = until_done("nobody says who leads", async || self.candidate.spec().await).await;
        let is_another = spec.holder_identity.as_ref().is_some_and(|it| *it != self.candidate.identity);
        if is_another && !has_expired(&spec) { TermEnd::ToAnother } else { TermEnd::ToNobody }
    }

    /// Gives the Lease back, so that another replica leads at once.
    pub async fn release(self) {
        drop(self.changes);
        match timeout(RELEASE, self.task).await {
            Ok(Ok(Ok(_))) => info!("the lease is released"),
            Ok(Ok(Err(error))) => warn!(%error, "the lease is not released"),
            Ok(Err(_)) | Err(_) => warn!("the lease is not released in time"),
        }
    }
}
