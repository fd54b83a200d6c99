//! Runs controllers on shared watches.

use crate::events::{EventRecorder, EventWriter, recorder};
use crate::leader_election::Leadership;
use crate::metrics;
use crate::object::{Object, ObjectName};
use crate::rate_limiter::{BackoffRange, RateLimiter, Subject};
use crate::reconciler::{Action, Context, DENIED, Error, Reconciler};
use crate::watch::{Wakes, Watch, WatchPool, Watches};
use crate::writer::Writer;
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _, select_all};
use kube::api::Api;
use kube::runtime::controller::{self, ReconcileRequest, applier};
use kube::runtime::events::EventType;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource as _};
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tracing::warn;

/// The number of conflicts in a row after which a pass that meets another one has failed.
const CONFLICTS_MAX: u32 = 10;

/// The annotation whose name after the group ends a backoff when its value changes, as in `example.com/reconcile-at`.
pub const RECONCILE_AT: &str = "reconcile-at";
/// The annotation whose name after the group, with the value `true`, keeps an object from being reconciled.
pub const PAUSED: &str = "paused";

/// The options of all controllers of a process.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the program, as in `kubebid-operator`: `reportingController` of events, field manager of creates and
    /// patches.
    pub reporter: String,
    /// Sends every write with `dryRun=All`, and makes no call outside the cluster.
    pub dry_run: bool,
    /// The wait after the first failure of an object, and the longest wait.
    pub backoff: BackoffRange,
    /// The time in which all objects must be listed after a start.
    pub sync_timeout: Duration,
    /// Is called after each pass with the name of the controller, the result and the duration.
    pub on_pass: fn(&'static str, &'static str, Duration),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            reporter: "kubebid-controller".to_owned(),
            dry_run: false,
            backoff: Duration::from_millis(5)..=Duration::from_secs(300),
            sync_timeout: Duration::from_secs(120),
            on_pass: |_, _, _| (),
        }
    }
}

/// The options of one controller.
#[derive(Clone, Copy, Debug)]
pub struct ControllerOptions {
    /// Objects that are reconciled at once.
    pub concurrency: u16,
    /// The shortest time between two passes over one object.
    pub min_interval: Duration,
    /// The time for which the events of an object are collected before a pass. Each event starts it anew, so an object that
    /// changes more often than that waits: prefer `min_interval`.
    pub debounce: Duration,
}

impl Default for ControllerOptions {
    fn default() -> ControllerOptions {
        ControllerOptions { concurrency: 5, min_interval: Duration::ZERO, debounce: Duration::ZERO }
    }
}

/// Why controllers ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Not all objects were listed in time.
    #[error("no list of {0} within the time of --sync-timeout")]
    NotSynced(String),
    /// A watch or a controller ended.
    #[error("a watch of the cluster has ended")]
    Ended,
}

/// Controllers and what they share: watches, writers, events. Add controllers, then run it.
pub struct Manager {
    client: Client,
    options: Options,
    leadership: Leadership,
    pool: WatchPool,
    writer: Writer,
    events: EventRecorder,
    event_writer: EventWriter,
    /// The queues of controllers that other controllers wake before they are added, by the type of the reconciler.
    queues: BTreeMap<TypeId, Box<dyn Any + Send>>,
    controllers: Vec<BoxFuture<'static, ()>>,
    /// Tasks that run from the start.
    tasks: Vec<BoxFuture<'static, ()>>,
    /// The conditions of objects that cannot be read: they are written one after the other, and no watch waits.
    conditions: UnboundedSender<BoxFuture<'static, ()>>,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager").field("controllers", &self.controllers.len()).finish_non_exhaustive()
    }
}

type Queue<K> = (Wakes<K>, Arc<RateLimiter>, Option<UnboundedReceiver<ObjectRef<K>>>);

impl Manager {
    /// Returns a manager without controllers. It works while `leadership` is valid.
    pub fn new(client: Client, leadership: Leadership, options: Options) -> Manager {
        let (events, event_writer) =
            recorder(client.clone(), &options.reporter, leadership.clone(), options.dry_run);
        let (conditions, queue) = unbounded_channel::<BoxFuture<'static, ()>>();
        let written = UnboundedReceiverStream::new(queue).for_each(|condition| condition);
        Manager {
            writer: Writer::new(
                client.clone(),
                &options.reporter,
                "controller",
                leadership.clone(),
                options.dry_run,
            ),
            client,
            options,
            leadership,
            pool: WatchPool::new(events.clone()),
            events,
            event_writer,
            queues: BTreeMap::new(),
            controllers: Vec::new(),
            tasks: vec![written.boxed()],
            conditions,
        }
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns a writer for a part of the program that is no controller.
    pub fn writer(&self, name: &'static str) -> Writer {
        self.writer.for_controller(name)
    }

    /// Returns the watch of a kind, the same for all who ask for the same `Api`.
    pub fn watch<K: Object>(&mut self, api: Api<K>) -> Watch<K> {
        self.pool.watch(api)
    }

    /// Returns the tools of a controller.
    pub fn context<R: Reconciler>(&self) -> Context {
        Context {
            writer: self.writer.for_controller(R::NAME),
            events: self.events.clone(),
            leadership: self.leadership.clone(),
        }
    }

    /// Returns the means to wake objects of a controller, which may be added later.
    pub fn wakes<R: Reconciler>(&mut self, options: ControllerOptions) -> Wakes<R::Object> {
        self.queue::<R>(options).0.clone()
    }

    /// Adds a task that runs from the start, also while objects are listed: lists may need what it does. When it ends, all
    /// end.
    pub fn spawn_at_once(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(task.boxed());
    }

    /// Adds a task that runs beside the controllers, once all objects are listed. When it ends, all end.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.controllers.push(task.boxed());
    }

    /// Adds a controller of the objects that `api` lists.
    pub fn add<R: Reconciler>(&mut self, mut reconciler: R, api: Api<R::Object>, options: ControllerOptions) {
        let (wakes, limiter, woken) = {
            let (wakes, limiter, woken) = self.queue::<R>(options);
            let woken = woken.take().expect("a controller is added once");
            (wakes.clone(), Arc::clone(limiter), woken)
        };
        let watch = self.pool.watch(api);
        let own = wakes.clone();
        watch.on_change(move |object| own.wake(ObjectRef::from_obj(object)));
        let (writer, conditions) = (self.writer.for_controller(R::NAME), self.conditions.clone());
        watch.on_unreadable(move |object| {
            let (writer, object) = (writer.clone(), object.clone());
            // The receiver is gone at the end of the process.
            let _ =
                conditions.send(async move { writer.mark_unreadable::<R::Object>(&object).await }.boxed());
        });
        let objects = watch.clone();
        reconciler.watches(&mut Watches { pool: &mut self.pool, objects, wakes });
        let on_pass = self.options.on_pass;
        let runner = Arc::new(Runner { reconciler, limiter, context: self.context::<R>(), on_pass });
        let queue = UnboundedReceiverStream::new(woken)
            .map(|object| Ok::<_, std::convert::Infallible>(ReconcileRequest::from(object)));
        let config =
            controller::Config::default().concurrency(options.concurrency).debounce(options.debounce);
        let passes = applier(
            |object, runner: Arc<Runner<R>>| Box::pin(async move { runner.pass(object).await }) as Pass,
            |_, error, _| match *error {},
            Arc::clone(&runner),
            watch.store().clone(),
            queue,
            config,
        );
        let task = passes.for_each(move |passed| {
            if let Err(controller::Error::ObjectNotFound(gone)) = passed {
                runner.forget(&ObjectName {
                    namespace: gone.namespace.clone().unwrap_or_default(),
                    name: gone.name.clone(),
                });
            }
            std::future::ready(())
        });
        self.controllers.push(task.boxed());
    }

    fn queue<R: Reconciler>(&mut self, options: ControllerOptions) -> &mut Queue<R::Object> {
        let backoff = self.options.backoff.clone();
        let queue = self.queues.entry(TypeId::of::<R>()).or_insert_with(|| {
            let limiter = Arc::new(RateLimiter::new(options.min_interval, backoff));
            let (wakes, woken) = Wakes::<R::Object>::new(Arc::clone(&limiter));
            let queue: Queue<R::Object> = (wakes, limiter, Some(woken));
            Box::new(queue)
        });
        queue.downcast_mut().expect("the queue of this reconciler")
    }

    /// Runs the watches, and the controllers once all objects are listed, until it is dropped.
    ///
    /// # Errors
    /// [`RunError::NotSynced`] if a list takes longer than the sync timeout, [`RunError::Ended`] if a watch ends.
    pub async fn run(mut self) -> Result<(), RunError> {
        let ready = self.pool.ready();
        let mut watching = self.pool.running();
        watching.push(self.event_writer.run().boxed());
        watching.extend(self.tasks);
        let timeout = self.options.sync_timeout;
        let mut watching = select_all(watching);
        tokio::select! {
            synced = WatchPool::synced(ready, timeout) => synced.map_err(RunError::NotSynced)?,
            _ = &mut watching => return Err(RunError::Ended),
        }
        if self.controllers.is_empty() {
            watching.await;
            return Err(RunError::Ended);
        }
        tokio::select! {
            _ = watching => {}
            _ = select_all(self.controllers) => {}
        }
        Err(RunError::Ended)
    }
}

type Pass = Pin<Box<dyn Future<Output = Result<controller::Action, std::convert::Infallible>> + Send>>;

/// One controller at work.
struct Runner<R: Reconciler> {
    reconciler: R,
    limiter: Arc<RateLimiter>,
    context: Context,
    on_pass: fn(&'static str, &'static str, Duration),
}

impl<R: Reconciler> Runner<R> {
    /// Makes a pass over an object, unless it comes too early. Counts it, times it, and keeps a panic from others.
    async fn pass(&self, object: Arc<R::Object>) -> Result<controller::Action, std::convert::Infallible> {
        let (name, uid) = (ObjectName::of(object.as_ref()), object.meta().uid.clone().unwrap_or_default());
        if !self.context.leadership.may_begin() {
            return Ok(controller::Action::await_change());
        }
        if self.reconciler.is_pausable() && is_paused(object.as_ref()) {
            metrics::deferred(R::NAME, "paused");
            return Ok(controller::Action::await_change());
        }
        let subject = Subject {
            name: &name,
            uid: &uid,
            wish: wish(object.as_ref()),
            is_urgent: self.reconciler.is_urgent(&object),
        };
        if let Err(deferred) = self.limiter.admit(subject, Instant::now()) {
            metrics::deferred(R::NAME, deferred.reason.word());
            return Ok(controller::Action::requeue(deferred.left));
        }
        let began = Instant::now();
        let _pass = self.context.leadership.pass();
        let pass = AssertUnwindSafe(self.reconciler.reconcile(Arc::clone(&object), &self.context));
        let result = pass.catch_unwind().await.unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("panicked");
            Err(Error::Panicked(text.to_owned()))
        });
        let word = result.as_ref().map_or_else(Error::word, |_| "ok");
        metrics::reconciled(R::NAME, word, began.elapsed());
        (self.on_pass)(R::NAME, word, began.elapsed());
        Ok(match result {
            Ok(action) => {
                self.limiter.succeeded(subject);
                match action {
                    Action::AwaitChange => controller::Action::await_change(),
                    Action::RequeueAfter(time) => controller::Action::requeue(time),
                }
            }
            // No failure of the object, and soon over, unless it is the answer of an admission webhook.
            Err(Error::Conflict) if self.limiter.conflicted(subject) <= CONFLICTS_MAX => {
                controller::Action::requeue(Duration::from_millis(50 + fastrand::u64(..100)))
            }
            Err(error) => {
                if let Some(denial) = error.denial() {
                    let events = &self.context.events;
                    events.publish(object.as_ref(), None, EventType::Warning, DENIED, denial);
                }
                let (wait, times) = self.limiter.failed(subject, error.retry_after(), Instant::now());
                warn!(controller = R::NAME, object = %name, times, %error, "a pass failed; it will be repeated");
                controller::Action::requeue(wait)
            }
        })
    }

    fn forget(&self, name: &ObjectName) {
        if let Some(uid) = self.limiter.forget(name) {
            self.context.writer.forget(&uid);
            self.reconciler.forget(name, &uid);
        }
    }
}

/// Returns true if an object has the annotation `GROUP/paused: "true"`.
fn is_paused<K: Object>(object: &K) -> bool {
    let name = format!("{}/{PAUSED}", K::group(&()));
    object.meta().annotations.as_ref().and_then(|all| all.get(&name)).is_some_and(|value| value == "true")
}

/// Returns a hash of what people want of an object: its generation, its deletion, and the annotations of its group. A
/// change of it ends a backoff; a status that we write does not.
fn wish<K: Object>(object: &K) -> u64 {
    let meta = object.meta();
    let prefix = format!("{}/", K::group(&()));
    let mut hasher = DefaultHasher::new();
    (meta.generation, meta.deletion_timestamp.is_some()).hash(&mut hasher);
    let annotations = meta.annotations.iter().flatten();
    annotations.filter(|(name, _)| name.starts_with(&prefix)).for_each(|it| it.hash(&mut hasher));
    hasher.finish()
}
