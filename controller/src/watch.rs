//! Shared watches: one per kind in the process, however many controllers read it.
//!
//! Each object is read by itself. One that the program cannot read is not in the watch's store; it is reported, and
//! [`Watch::unreadable`] says that it is there. The others are served.

use crate::api_error;
use crate::events::EventRecorder;
use crate::index::Index;
use crate::metrics;
use crate::object::{Object, ObjectName, controller_of};
use crate::rate_limiter::RateLimiter;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::events::EventType;
use kube::runtime::reflector::store::Writer as StoreWriter;
use kube::runtime::reflector::{ObjectRef, Store, reflector, store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::warn;

/// The most objects of one request of the first list.
const PAGE: u32 = 2_000;

/// The reason of the event about an object that the program cannot read.
pub const UNREADABLE: &str = "Unreadable";

/// All objects of a kind, as of the last event of their watch. Cheap to clone.
pub struct Watch<K: Object> {
    store: Store<K>,
    hooks: Arc<Mutex<Hooks<K>>>,
    unreadable: Arc<Mutex<UnreadableObjects>>,
    events: EventRecorder,
}

struct Hooks<K> {
    /// The objects that a user of the watch needs whole. Of all others only the metadata is kept.
    whole: Vec<Box<Filter<K>>>,
    indexes: Vec<Arc<Index<K>>>,
    on_change: Vec<Box<Hook<K>>>,
    on_unreadable: Vec<Box<Hook<InvalidObject>>>,
}

type Hook<K> = dyn Fn(&K) + Send + Sync;
type Filter<K> = dyn Fn(&K) -> bool + Send + Sync;

/// The objects of a watch that the program cannot read.
#[derive(Debug, Default)]
struct UnreadableObjects {
    there: BTreeMap<ObjectName, Arc<InvalidObject>>,
    /// The ones that a list in progress has brought so far.
    listing: BTreeMap<ObjectName, Arc<InvalidObject>>,
}

impl<K: Object> Clone for Watch<K> {
    fn clone(&self) -> Watch<K> {
        Watch {
            store: self.store.clone(),
            hooks: Arc::clone(&self.hooks),
            unreadable: Arc::clone(&self.unreadable),
            events: self.events.clone(),
        }
    }
}

impl<K: Object> fmt::Debug for Watch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch<{}>", K::kind(&()))
    }
}

impl<K: Object> Watch<K> {
    fn new(events: EventRecorder) -> (Watch<K>, StoreWriter<K>) {
        let (store, writer) = store::<K>();
        let hooks = Hooks {
            whole: Vec::new(),
            indexes: Vec::new(),
            on_change: Vec::new(),
            on_unreadable: Vec::new(),
        };
        (Watch { store, hooks: Arc::new(Mutex::new(hooks)), unreadable: Arc::default(), events }, writer)
    }

    /// Returns the object with this name.
    pub fn get(&self, reference: &ObjectRef<K>) -> Option<Arc<K>> {
        self.store.get(reference)
    }

    /// Returns all objects.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// Returns the metadata of the object with this name, and why the program cannot read it, if it is there and cannot be
    /// read. What follows from the absence of an object does not follow from this.
    pub fn unreadable(&self, reference: &ObjectRef<K>) -> Option<Arc<InvalidObject>> {
        self.unreadable_objects().there.get(&ObjectName::from(reference)).cloned()
    }

    /// Returns all objects that the program cannot read.
    pub fn all_unreadable(&self) -> Vec<Arc<InvalidObject>> {
        self.unreadable_objects().there.values().cloned().collect()
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

    /// Calls a function for each object that the program cannot read, once for each generation. Call it before the manager
    /// runs.
    pub(crate) fn on_unreadable(&self, hook: impl Fn(&InvalidObject) + Send + Sync + 'static) {
        self.hooks().on_unreadable.push(Box::new(hook));
    }

    fn hooks(&self) -> MutexGuard<'_, Hooks<K>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unreadable_objects(&self) -> MutexGuard<'_, UnreadableObjects> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the watch until it is dropped.
    async fn run(self, api: Api<K>, writer: StoreWriter<K>) {
        // The objects before a list. No event says that one of them is not in it.
        let before = Mutex::new(Vec::new());
        let events = one_by_one(api);
        let events = events
            .try_filter_map(|event| std::future::ready(Ok(self.sift(event).map(|event| self.trim(event)))))
            .inspect(|event| {
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

    /// Leaves only the metadata of an object that no user of the watch needs whole.
    fn trim(&self, event: Event<K>) -> Event<K> {
        let trimmed = |object: K| {
            let is_whole = self.hooks().whole.iter().any(|is_whole| is_whole(&object));
            if is_whole { object } else { bare(object) }
        };
        match event {
            Event::Apply(object) => Event::Apply(trimmed(object)),
            Event::InitApply(object) => Event::InitApply(trimmed(object)),
            Event::Init | Event::InitDone | Event::Delete(_) => event,
        }
    }

    fn changed(&self, object: &K) {
        self.hooks().on_change.iter().for_each(|hook| hook(object));
    }

    /// Takes the objects that cannot be read out of the events. One that could be read before is gone for the store.
    fn sift(&self, event: Event<Guarded<K>>) -> Option<Event<K>> {
        let last = |object: &InvalidObject| {
            let last = self.get(&name_of(object).to_ref())?;
            Some(Event::Delete(K::clone(&last)))
        };
        match event {
            Event::Init => {
                self.unreadable_objects().listing = BTreeMap::new();
                Some(Event::Init)
            }
            Event::InitApply(Guarded(DeserializeGuard(Ok(object)))) => Some(Event::InitApply(object)),
            Event::InitApply(Guarded(DeserializeGuard(Err(object)))) => {
                self.report(&object);
                self.unreadable_objects().listing.insert(name_of(&object), Arc::new(object));
                None
            }
            Event::InitDone => {
                let mut objects = self.unreadable_objects();
                objects.there = std::mem::take(&mut objects.listing);
                metrics::unreadable_objects(&K::plural(&()), objects.there.len());
                Some(Event::InitDone)
            }
            Event::Apply(Guarded(DeserializeGuard(Ok(object)))) => {
                self.set_unreadable(ObjectName::of(&object), None);
                Some(Event::Apply(object))
            }
            Event::Apply(Guarded(DeserializeGuard(Err(object)))) => {
                self.report(&object);
                let last = last(&object);
                self.set_unreadable(name_of(&object), Some(object));
                last
            }
            Event::Delete(Guarded(DeserializeGuard(Ok(object)))) => {
                self.set_unreadable(ObjectName::of(&object), None);
                Some(Event::Delete(object))
            }
            Event::Delete(Guarded(DeserializeGuard(Err(object)))) => {
                self.set_unreadable(name_of(&object), None);
                last(&object)
            }
        }
    }

    fn set_unreadable(&self, name: ObjectName, object: Option<InvalidObject>) {
        let mut objects = self.unreadable_objects();
        let has_changed = match object {
            Some(object) => objects.there.insert(name, Arc::new(object)).is_none(),
            None => objects.there.remove(&name).is_some(),
        };
        if has_changed {
            metrics::unreadable_objects(&K::plural(&()), objects.there.len());
        }
    }

    /// Reports an object that cannot be read, once for each generation.
    fn report(&self, object: &InvalidObject) {
        let name = name_of(object);
        let generation = |it: &InvalidObject| (it.metadata.uid.clone(), it.metadata.generation);
        let known = self.unreadable_objects().there.get(&name).map(|known| generation(known));
        if known == Some(generation(object)) {
            return;
        }
        warn!(error = object.error, kind = %K::kind(&()), object = %name, "an object cannot be read: it is left as it is");
        let regarding = DeserializeGuard::<K>(Err(object.clone()));
        let note =
            format!("this version of the program cannot read it, and leaves it as it is: {}", object.error);
        self.events.publish(&regarding, None, EventType::Warning, UNREADABLE, note);
        self.hooks().on_unreadable.iter().for_each(|hook| hook(object));
    }
}

/// Returns an object without everything but its metadata. One that cannot be without the rest stays as it is.
fn bare<K: Object>(object: K) -> K {
    if K::metadata_api() {
        return object;
    }
    let mut metadata = object.meta().clone();
    metadata.managed_fields = None;
    let bare = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": metadata});
    serde_json::from_value(bare).unwrap_or(object)
}

fn name_of(object: &InvalidObject) -> ObjectName {
    ObjectName {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
    }
}

/// An object that was read, or the metadata of one that cannot be read. The kind asks for metadata if `K` does, and its scope
/// lets an `Api` be limited to a namespace, whatever `K` is.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent, bound(deserialize = "K: DeserializeOwned + Resource"))]
struct Guarded<K>(DeserializeGuard<K>);

impl<K: Object> Resource for Guarded<K> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

/// Returns the events of a watch. An object that cannot be read fails alone.
fn one_by_one<K: Object>(api: Api<K>) -> impl Stream<Item = watcher::Result<Event<Guarded<K>>>> {
    let namespace = api.namespace().map(str::to_owned);
    let all = Api::<Guarded<K>>::all(api.into_client());
    let api = match namespace {
        Some(namespace) => all.constrain(&namespace),
        None => all,
    };
    watcher(api, watcher::Config::default().page_size(PAGE)).map_ok(|event| {
        event.modify(|object| {
            if let Guarded(DeserializeGuard(Err(object))) = object {
                object.metadata.managed_fields = None;
            }
        })
    })
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
        self.map_some(api, |_| true, of)
    }

    /// Works like [`Watches::map`], and keeps only those objects whole that `is_whole` names, so that the others cost little memory: of
    /// them the process keeps the metadata.
    pub(crate) fn map_some<T: Object>(
        &mut self,
        api: Api<T>,
        is_whole: impl Fn(&T) -> bool + Send + Sync + 'static,
        of: impl Fn(&T) -> Vec<ObjectRef<K>> + Send + Sync + 'static,
    ) -> Watch<T> {
        let (watch, wakes) = (self.pool.watch_some(api, is_whole), self.wakes.clone());
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
pub(crate) struct WatchPool {
    events: EventRecorder,
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
    /// Returns a pool without watches. `events` gets the events about objects that cannot be read.
    pub(crate) fn new(events: EventRecorder) -> WatchPool {
        WatchPool { events, watches: BTreeMap::new(), running: Vec::new(), ready: Vec::new() }
    }

    /// Returns the watch of a kind, in all namespaces or in one, whichever the `Api` is of.
    pub(crate) fn watch<K: Object>(&mut self, api: Api<K>) -> Watch<K> {
        self.watch_some(api, |_| true)
    }

    /// Returns the same watch for a user who needs only some of the objects whole.
    fn watch_some<K: Object>(
        &mut self,
        api: Api<K>,
        is_whole: impl Fn(&K) -> bool + Send + Sync + 'static,
    ) -> Watch<K> {
        let watch = self.watch_any(api);
        watch.hooks().whole.push(Box::new(is_whole));
        watch
    }

    fn watch_any<K: Object>(&mut self, api: Api<K>) -> Watch<K> {
        let key = (TypeId::of::<K>(), api.resource_url().to_owned());
        if let Some(watch) = self.watches.get(&key).and_then(|watch| watch.downcast_ref::<Watch<K>>()) {
            return watch.clone();
        }
        let (watch, writer) = Watch::new(self.events.clone());
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

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    #[test]
    fn a_foreign_object_costs_its_metadata() {
        let map = json!({
            "metadata": {"name": "a", "namespace": "b", "labels": {"app": "c"}, "resourceVersion": "7"},
            "data": {"large": "x".repeat(1 << 20)},
        });
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        let left = bare(map.clone());
        assert_eq!((left.metadata, left.data), (map.metadata, None));
    }
}
