//! The reconcilers: observe the cluster, ask the plan, and act.

mod act;
mod bidnode;
mod context;
mod drain;
mod node;
mod objects;
mod settle;
mod slot;
mod write_cache;

pub use context::Options;

use crate::api::{BidNode, BidSlot, SlotPhase};
use crate::metrics;
use crate::plan::demand;
use crate::world::{self, Indexes, World};
use context::{Context, Wakes};
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{ObjectRef, reflector, store};
use kube::runtime::{Controller, WatchStreamExt as _, watcher};
use kube::{Client, Resource, ResourceExt as _};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tracing::warn;

/// Why a look at an object came to nothing; it is looked at again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else wrote the object meanwhile, or our copy of it is old.
    #[error("the object has changed meanwhile")]
    Stale,
    #[error("the cluster: {0}")]
    Cluster(Box<kube::Error>),
    #[error("the engine: {0}")]
    Auction(#[from] kubebid_client::Error),
    #[error(transparent)]
    Provisioner(#[from] crate::provision::Fault),
    /// This replica does not lead, or cannot be sure of it.
    #[error("this replica does not lead")]
    NotLeading,
    #[error("a bug of ours: {0}")]
    Panicked(String),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        let stale = matches!(&error, kube::Error::Api(status) if status.is_conflict());
        if stale { Error::Stale } else { Error::Cluster(Box::new(error)) }
    }
}

impl Error {
    /// Returns how long whoever failed wants to be left alone.
    fn not_before(&self) -> Duration {
        match self {
            Error::Provisioner(fault) => fault.retry_after.unwrap_or_default(),
            Error::Stale | Error::Cluster(_) | Error::Auction(_) | Error::NotLeading | Error::Panicked(_) => {
                Duration::ZERO
            }
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Error::Stale => "stale",
            Error::Cluster(_) => "cluster",
            Error::Auction(_) => "auction",
            Error::Provisioner(_) => "provisioner",
            Error::NotLeading => "not_leading",
            Error::Panicked(_) => "panicked",
        }
    }
}

/// Runs the operator for as long as it is polled; ends when a watch cannot be made.
pub async fn run(client: Client, options: Options) {
    let (bidnodes, bidnode_writer) = store::<BidNode>();
    let (slots, slot_writer) = store::<BidSlot>();
    let (nodes, node_writer) = store::<Node>();
    let (pods, pod_writer) = store::<Pod>();
    let indexes = Arc::new(Indexes::default());
    let world = World {
        bidnodes: bidnodes.clone(),
        slots: slots.clone(),
        nodes,
        pods,
        indexes: Arc::clone(&indexes),
    };
    let namespace = options.namespace.clone();
    let (wakes, wake_bidnodes, wake_slots) = Wakes::new();
    let (context, herald) = Context::new(client.clone(), world.clone(), wakes.clone(), options);
    let context = Arc::new(context);

    let node_watch =
        reflector(node_writer, watcher(Api::<Node>::all(client.clone()), watcher::Config::default()))
            .default_backoff()
            .touched_objects()
            .for_each(|node| {
                if let Ok(node) = node {
                    on_node(&context, &node);
                }
                std::future::ready(())
            });
    let pod_watch =
        watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).inspect_ok(|event| {
            indexes.pods_by_node.fold(event);
            indexes.pods_by_controller.fold(event);
        });
    let pod_watch = reflector(pod_writer, pod_watch).default_backoff().touched_objects().for_each(|pod| {
        if let Ok(pod) = pod {
            on_pod(&context, &pod);
        }
        std::future::ready(())
    });
    let slot_stream = {
        let (wakes, indexes) = (wakes.clone(), Arc::clone(&indexes));
        let watch = watcher(of::<BidSlot>(&client, namespace.as_deref()), watcher::Config::default());
        let watch = watch.inspect_ok(move |event| {
            indexes.slots_by_owner.fold(event);
            indexes.slots_by_node.fold(event);
        });
        reflector(slot_writer, watch).default_backoff().touched_objects().inspect_ok(move |slot| {
            if let Some(owner) = world::owner_of(slot) {
                wakes.bidnode(owner);
            }
        })
    };
    let bidnode_stream = reflector(
        bidnode_writer,
        watcher(of::<BidNode>(&client, namespace.as_deref()), watcher::Config::default()),
    )
    .default_backoff()
    .touched_objects();

    let feed = {
        let context = Arc::clone(&context);
        context.auction().feed().run(move |slot| {
            // A notice does not wait for the end of a backoff.
            context.end_backoff(&key_of::<BidSlot>(&slot.namespace, &slot.name));
            context.wakes().slot(ObjectRef::new(&slot.name).within(&slot.namespace));
        })
    };
    let bidnode_controller = Controller::for_stream(bidnode_stream, bidnodes)
        .with_config(Config::default().concurrency(16).debounce(Duration::from_millis(250)))
        .reconcile_on(UnboundedReceiverStream::new(wake_bidnodes))
        .run(
            |object, context| watched(object, context, |_| false, bidnode::reconcile),
            again,
            Arc::clone(&context),
        )
        .for_each(|_| std::future::ready(()));
    let slot_controller = Controller::for_stream(slot_stream, slots)
        .with_config(Config::default().concurrency(32))
        .reconcile_on(UnboundedReceiverStream::new(wake_slots))
        .run(
            |object, context| watched(object, context, is_going, slot::reconcile),
            again,
            Arc::clone(&context),
        )
        .for_each(|_| std::future::ready(()));
    let faults = async {
        let mut faults = context.auction().bid_cache().faults();
        while faults.changed().await.is_ok() {
            context.end_backoffs();
            wake_all(&context);
            for slot in context.world().slots.state() {
                context.wakes().slot(ObjectRef::from_obj(slot.as_ref()));
            }
        }
    };
    let listed = async {
        // Nothing is decided on half a picture: a slot whose BidNode is not in it would be given up.
        let _ = world.bidnodes.wait_until_ready().await;
        let _ = world.slots.wait_until_ready().await;
        let _ = world.nodes.wait_until_ready().await;
        let _ = world.pods.wait_until_ready().await;
        context.set_pictured();
        std::future::pending::<()>().await
    };
    tokio::select! {
        () = node_watch => {}
        () = pod_watch => {}
        () = feed => {}
        () = herald.run() => {}
        () = faults => {}
        () = settle::run(&context) => {}
        () = bidnode_controller => {}
        () = slot_controller => {}
        () = listed => {}
    }
}

/// The objects of one namespace, or all.
fn of<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// What a node is of interest to: the slot that it says it is of, or whoever waits for one of this name.
fn on_node(context: &Context, node: &Node) {
    if let Some(slot) = world::slot_ref_of(node) {
        wake(context, context.world().slots.get(&slot));
        return;
    }
    wake(context, context.world().slot_on(&node.name_any()));
}

fn wake(context: &Context, slot: Option<Arc<BidSlot>>) {
    let Some(slot) = slot else { return };
    context.wakes().slot(ObjectRef::from_obj(slot.as_ref()));
    if let Some(owner) = world::owner_of(&slot) {
        context.wakes().bidnode(owner);
    }
}

/// A pod without a node is of interest to all who could bring one; a bound one to the slot of its node.
fn on_pod(context: &Context, pod: &Pod) {
    match world::node_of(pod) {
        Some(name) => {
            if let Some(node) = context.world().node(name).filter(|node| world::slot_ref_of(node).is_some()) {
                on_node(context, &node);
            }
        }
        None if demand::is_unschedulable(pod) || pod.metadata.deletion_timestamp.is_some() => {
            wake_all(context);
        }
        None => {}
    }
}

fn wake_all(context: &Context) {
    for node in context.world().bidnodes.state() {
        context.wakes().bidnode(ObjectRef::from_obj(node.as_ref()));
    }
}

/// A look at an object, counted, timed, and kept from harming others.
async fn watched<K, F>(
    object: Arc<K>,
    context: Arc<Context>,
    is_urgent: impl Fn(&K) -> bool,
    reconcile: impl FnOnce(Arc<K>, Arc<Context>) -> F,
) -> Result<Action, Error>
where
    K: Resource<DynamicType = ()>,
    F: Future<Output = Result<Action, Error>>,
{
    let began = Instant::now();
    if !context.has_pictured() {
        return Ok(Action::requeue(Duration::from_millis(100)));
    }
    if !is_urgent(&object)
        && let Some(left) = context.backs_off(&key(object.as_ref()), wish(object.as_ref()))
    {
        return Ok(Action::requeue(left));
    }
    let _pass = context.pass();
    let look = AssertUnwindSafe(reconcile(Arc::clone(&object), Arc::clone(&context))).catch_unwind();
    let result = look.await.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("panicked");
        Err(Error::Panicked(text.to_owned()))
    });
    let word = result.as_ref().map_or_else(Error::word, |_| "ok");
    metrics::reconciled(word, began.elapsed());
    if result.is_ok() {
        context.succeeded(&key(object.as_ref()));
    }
    result
}

fn key<K: Resource<DynamicType = ()>>(object: &K) -> String {
    key_of::<K>(object.meta().namespace.as_deref().unwrap_or_default(), &object.name_any())
}

pub(super) fn key_of<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> String {
    format!("{}/{namespace}/{name}", K::kind(&()))
}

/// The node of a slot has a deadline: events are followed whatever has failed.
fn is_going(slot: &BidSlot) -> bool {
    let phase = slot.status.as_ref().map(|status| status.phase);
    matches!(phase, Some(SlotPhase::Notice | SlotPhase::Draining))
}

/// Returns what people change about an object. A change of it ends a backoff; a status that we write does not.
fn wish<K: Resource>(object: &K) -> u64 {
    let meta = object.meta();
    let mut hasher = DefaultHasher::new();
    (meta.generation, meta.deletion_timestamp.is_some(), &meta.annotations).hash(&mut hasher);
    hasher.finish()
}

/// Returns when to look again after a failure: later each time, never all at once.
fn again<K: Resource<DynamicType = ()>>(object: Arc<K>, error: &Error, context: Arc<Context>) -> Action {
    if matches!(error, Error::Stale) {
        return Action::requeue(Duration::from_millis(50 + fastrand::u64(..100)));
    }
    let name = key(object.as_ref());
    let times = context.failed(&name);
    warn!(object = name, times, %error, "to be looked at again");
    let most = Duration::from_millis(250).saturating_mul(1 << times.min(8)).min(Duration::from_secs(60));
    let wait = most.mul_f64(0.5 + 0.5 * fastrand::f64()).max(error.not_before());
    context.back_off(&name, wish(object.as_ref()), wait);
    Action::requeue(wait)
}
