//! Controllers: watches, work queues, and the reconcile loops, each of which chains `observe → plan → act`.

mod bidnode;
mod enqueue;
mod garbage;
mod pass;
mod slot;

pub use crate::context::Options;

use crate::api::{BidNode, BidSlot};
use crate::cache::{Indexes, Stores, bidnode_ref_of};
use crate::context::{Context, Queued, Queues};
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use kube::runtime::controller::Config;
use kube::runtime::reflector::{ObjectRef, reflector, store};
use kube::runtime::{Controller, WatchStreamExt as _, watcher};
use kube::{Client, Resource};
use pass::{error_policy, key_of, reconcile};
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// The time for which the events of a BidNode are collected: each of its slots wakes it.
const BIDNODE_DEBOUNCE: Duration = Duration::from_millis(250);
/// The number of BidNodes that are reconciled at the same time.
const BIDNODE_CONCURRENCY: u16 = 16;
/// The number of slots that are reconciled at the same time.
const SLOT_CONCURRENCY: u16 = 32;

/// Runs the operator while it is polled. Returns if a watch ends.
pub async fn run(client: Client, options: Options) {
    let (bidnodes, bidnode_writer) = store::<BidNode>();
    let (slots, slot_writer) = store::<BidSlot>();
    let (nodes, node_writer) = store::<Node>();
    let (pods, pod_writer) = store::<Pod>();
    let indexes = Arc::new(Indexes::default());
    let stores = Stores {
        bidnodes: bidnodes.clone(),
        slots: slots.clone(),
        nodes,
        pods,
        indexes: Arc::clone(&indexes),
    };
    let namespace = options.namespace.clone();
    let (queues, queued) = Queues::new();
    let (context, event_recorder) = Context::new(client.clone(), stores, queues.clone(), options);
    let context = Arc::new(context);
    let Queued { bidnodes: queued_bidnodes, slots: queued_slots } = queued;

    let node_watch =
        reflector(node_writer, watcher(Api::<Node>::all(client.clone()), watcher::Config::default()))
            .default_backoff()
            .touched_objects()
            .for_each(|node| {
                if let Ok(node) = node {
                    enqueue::on_node(&context, &node);
                }
                std::future::ready(())
            });
    let pod_watch =
        watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).inspect_ok(|event| {
            indexes.pods_by_node.apply(event);
            indexes.pods_by_controller.apply(event);
        });
    let pod_watch = reflector(pod_writer, pod_watch).default_backoff().touched_objects().for_each(|pod| {
        if let Ok(pod) = pod {
            enqueue::on_pod(&context, &pod);
        }
        std::future::ready(())
    });
    let slot_stream = {
        let indexes = Arc::clone(&indexes);
        let watch = watcher(api::<BidSlot>(&client, namespace.as_deref()), watcher::Config::default());
        let watch = watch.inspect_ok(move |event| {
            indexes.slots_by_owner.apply(event);
            indexes.slots_by_node.apply(event);
        });
        reflector(slot_writer, watch).default_backoff().touched_objects().inspect_ok(move |slot| {
            if let Some(bidnode) = bidnode_ref_of(slot) {
                queues.bidnode(bidnode);
            }
        })
    };
    let bidnode_stream = reflector(
        bidnode_writer,
        watcher(api::<BidNode>(&client, namespace.as_deref()), watcher::Config::default()),
    )
    .default_backoff()
    .touched_objects();

    let feed = {
        let context = Arc::clone(&context);
        context.engine().feed().run(move |slot| {
            // A notice does not wait for the end of a backoff.
            context.backoffs.end(&key_of::<BidSlot>(&slot.namespace, &slot.name));
            context.queues.slot(ObjectRef::new(&slot.name).within(&slot.namespace));
        })
    };
    let bidnode_controller = Controller::for_stream(bidnode_stream, bidnodes)
        .with_config(Config::default().concurrency(BIDNODE_CONCURRENCY).debounce(BIDNODE_DEBOUNCE))
        .reconcile_on(UnboundedReceiverStream::new(queued_bidnodes))
        .run(
            |object, context| reconcile(object, context, |_| false, bidnode::reconcile),
            error_policy,
            Arc::clone(&context),
        )
        .for_each(|_| std::future::ready(()));
    let slot_controller = Controller::for_stream(slot_stream, slots)
        .with_config(Config::default().concurrency(SLOT_CONCURRENCY))
        .reconcile_on(UnboundedReceiverStream::new(queued_slots))
        .run(
            |object, context| reconcile(object, context, slot::is_urgent, slot::reconcile),
            error_policy,
            Arc::clone(&context),
        )
        .for_each(|_| std::future::ready(()));
    tokio::select! {
        () = node_watch => {}
        () = pod_watch => {}
        () = feed => {}
        () = event_recorder.run() => {}
        () = enqueue::on_engine_faults(&context) => {}
        () = garbage::run(&context) => {}
        () = bidnode_controller => {}
        () = slot_controller => {}
        () = await_sync(&context) => {}
    }
}

/// Waits until all stores have synced, and then for ever. Nothing is reconciled before: a slot whose BidNode is not in the
/// store yet would be given up.
async fn await_sync(context: &Context) {
    let stores = &context.stores;
    let _ = stores.bidnodes.wait_until_ready().await;
    let _ = stores.slots.wait_until_ready().await;
    let _ = stores.nodes.wait_until_ready().await;
    let _ = stores.pods.wait_until_ready().await;
    context.set_synced();
    std::future::pending::<()>().await
}

/// Returns the API of the objects of one namespace, or of all.
fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}
