//! Shared watches: one per kind in the process, however many controllers read it.

use crate::api_error;
use crate::index::Index;
use crate::object::{Object, ObjectName, controller_of};
use crate::rate_limiter::RateLimiter;
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use kube::api::Api;
use kube::runtime::reflector::store::Writer as StoreWriter;
use kube::runtime::reflector::{ObjectRef, Store, reflector, store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::warn;

/// The most objects of one request of the first list.
const PAGE: u32 = 2_000;

/// All objects of a kind, as of the last event of their watch. Cheap to clone.
pub struct Watch<K: Object> {
    store: Store<K>,
    hooks: Arc<Mutex<Hooks<K>>>,
}

struct Hooks<K> {
    indexes: Vec<Arc<Index<K>>>,
    on_change: Vec<Box<Hook<K>>>,
}

type Hook<K> = dyn Fn(&K) + Send + Sync;

impl<K: Object> Clone for Watch<K> {
    fn clone(&self) -> Watch<K> {
        Watch { store: self.store.clone(), hooks: Arc::clone(&self.hooks) }
    }
}

impl<K: Object> fmt::Debug for Watch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch<{}>", K::kind(&()))
    }
}

impl<K: Object> Watch<K> {
    fn new() -> (Watch<K>, StoreWriter<K>) {
        let (store, writer) = store::<K>();
        let hooks = Hooks { indexes: Vec::new(), on_change: Vec::new() };
        (Watch { store, hooks: Arc::new(Mutex::new(hooks)) }, writer)
    }

    /// Returns the object with this name.
    pub fn get(&self, reference: &ObjectRef<K>) -> Option<Arc<K>> {
        self.store.get(reference)
    }

    /// Returns all objects.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// Returns the store, for what kube does with it.
    pub fn store(&self) -> &Store<K> {
        &self.store
    }

    /// Adds an index. Call it before the manager runs.
    pub fn index(&self, key: impl Fn(&K) -> Option<String> + Send + Sync + 'static) -> Arc<Index<K>> {
        let index = Arc::new(Index::new(key));
        self.hooks().indexes.push(Arc::clone(&index));
        index
    }

    /// Calls a function for each object that comes, changes or goes. Call it before the manager runs.
    pub fn on_change(&self, hook: impl Fn(&K) + Send + Sync + 'static) {
        self.hooks().on_change.push(Box::new(hook));
    }

    fn hooks(&self) -> MutexGuard<'_, Hooks<K>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the watch until it is dropped.
    async fn run(self, api: Api<K>, writer: StoreWriter<K>) {
        let config = watcher::Config::default().page_size(PAGE);
        // The objects before a list. No event says that one of them is not in it.
        let before = Mutex::new(Vec::new());
        let events = watcher(api, config).inspect(|event| {
            let Ok(event) = event else { return };
            if matches!(event, Event::InitDone) {
                *before.lock().unwrap_or_else(PoisonError::into_inner) = self.store.state();
            }
            self.hooks().indexes.iter().for_each(|index| index.fold(event));
        });
        let changed = reflector(writer, events).default_backoff().for_each(|event| {
            match event {
                Ok(Event::Apply(object) | Event::Delete(object)) => self.changed(&object),
                // The store has the objects of a list when that is complete.
                Ok(Event::Init | Event::InitApply(_)) => {}
                Ok(Event::InitDone) => {
                    let before = std::mem::take(&mut *before.lock().unwrap_or_else(PoisonError::into_inner));
                    let is_gone = |object: &Arc<K>| self.get(&ObjectRef::from_obj(object.as_ref())).is_none();
                    let gone = before.into_iter().filter(is_gone);
                    gone.chain(self.all()).for_each(|object| self.changed(&object));
                }
                Err(error) => {
                    let error = api_error::watch_message::<K>(&error);
                    warn!(error, kind = %K::kind(&()), "a watch failed; it is tried again");
                }
            }
            std::future::ready(())
        });
        changed.await;
    }

    fn changed(&self, object: &K) {
        self.hooks().on_change.iter().for_each(|hook| hook(object));
    }
}

/// Wakes objects of one controller. Cheap to clone.
pub struct Wakes<K: Object> {
    queue: UnboundedSender<ObjectRef<K>>,
    limiter: Arc<RateLimiter>,
}

impl<K: Object> Clone for Wakes<K> {
    fn clone(&self) -> Wakes<K> {
        Wakes { queue: self.queue.clone(), limiter: Arc::clone(&self.limiter) }
    }
}

impl<K: Object> fmt::Debug for Wakes<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wakes<{}>", K::kind(&()))
    }
}

impl<K: Object> Wakes<K> {
    pub(crate) fn new(limiter: Arc<RateLimiter>) -> (Wakes<K>, UnboundedReceiver<ObjectRef<K>>) {
        let (queue, woken) = unbounded_channel();
        (Wakes { queue, limiter }, woken)
    }

    /// Has an object reconciled, at once unless the rate limiter holds it back.
    pub fn wake(&self, object: ObjectRef<K>) {
        // The receiver is gone at the end of the process.
        let _ = self.queue.send(object);
    }

    /// Has an object reconciled at once, whatever the rate limiter says.
    pub fn wake_urgently(&self, object: ObjectRef<K>) {
        self.limiter.end_backoff(&ObjectName::from(&object));
        self.wake(object);
    }

    /// Ends the backoff of all objects. They are reconciled when they are woken.
    pub fn end_backoffs(&self) {
        self.limiter.end_backoffs();
    }
}

/// The sources that wake objects of a controller, besides their own changes.
#[derive(Debug)]
pub struct Watches<'a, K: Object> {
    pub(crate) pool: &'a mut WatchPool,
    pub(crate) objects: Watch<K>,
    pub(crate) wakes: Wakes<K>,
}

impl<K: Object> Watches<'_, K> {
    /// Wakes the object that controls a child when the child changes. The owner reference may name any version.
    pub fn children<C: Object>(&mut self, api: Api<C>) -> Watch<C> {
        let (watch, wakes) = (self.pool.watch(api), self.wakes.clone());
        watch.on_change(move |child: &C| {
            if let Some(owner) = controller_of::<K, C>(child) {
                let namespace = child.meta().namespace.clone().unwrap_or_default();
                wakes.wake(ObjectName { namespace, name: owner.name.clone() }.to_ref());
            }
        });
        watch
    }

    /// Wakes the objects that a function names when an object of another kind changes.
    pub fn map<T: Object>(
        &mut self,
        api: Api<T>,
        of: impl Fn(&T) -> Vec<ObjectRef<K>> + Send + Sync + 'static,
    ) -> Watch<T> {
        let (watch, wakes) = (self.pool.watch(api), self.wakes.clone());
        watch.on_change(move |object| of(object).into_iter().for_each(|it| wakes.wake(it)));
        watch
    }

    /// Returns the objects of the controller.
    pub fn objects(&self) -> Watch<K> {
        self.objects.clone()
    }

    /// Returns the means to wake objects for any other reason.
    pub fn wakes(&self) -> Wakes<K> {
        self.wakes.clone()
    }
}

/// All watches of the process.
#[derive(Default)]
pub(crate) struct WatchPool {
    /// The watches by kind and path.
    watches: BTreeMap<(TypeId, String), Box<dyn Any + Send>>,
    running: Vec<BoxFuture<'static, ()>>,
    ready: Vec<(String, BoxFuture<'static, bool>)>,
}

impl fmt::Debug for WatchPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchPool").field("watches", &self.watches.len()).finish_non_exhaustive()
    }
}

impl WatchPool {
    /// Returns the watch of a kind, in all namespaces or in one, whichever the `Api` is of.
    pub(crate) fn watch<K: Object>(&mut self, api: Api<K>) -> Watch<K> {
        let key = (TypeId::of::<K>(), api.resource_url().to_owned());
        if let Some(watch) = self.watches.get(&key).and_then(|watch| watch.downcast_ref::<Watch<K>>()) {
            return watch.clone();
        }
        let (watch, writer) = Watch::new();
        let reader = watch.store.clone();
        self.ready.push((
            K::plural(&()).into_owned(),
            async move { reader.wait_until_ready().await.is_ok() }.boxed(),
        ));
        self.running.push(watch.clone().run(api, writer).boxed());
        self.watches.insert(key, Box::new(watch.clone()));
        watch
    }

    /// Takes what follows the watches: it ends if one of them does.
    pub(crate) fn running(&mut self) -> Vec<BoxFuture<'static, ()>> {
        std::mem::take(&mut self.running)
    }

    /// Waits until all objects have been listed.
    ///
    /// # Errors
    /// The plural names of the kinds that were not listed within `timeout`.
    pub(crate) async fn synced(
        ready: Vec<(String, BoxFuture<'static, bool>)>,
        timeout: Duration,
    ) -> Result<(), String> {
        let until = tokio::time::Instant::now() + timeout;
        let mut missing = Vec::new();
        for (kind, listed) in ready {
            if !tokio::time::timeout_at(until, listed).await.unwrap_or_default() {
                missing.push(kind);
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing.join(", ")) }
    }

    pub(crate) fn ready(&mut self) -> Vec<(String, BoxFuture<'static, bool>)> {
        std::mem::take(&mut self.ready)
    }
}
