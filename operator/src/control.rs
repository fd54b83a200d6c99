//! Controllers: what wakes BidNodes and slots, and the reconcilers, each of which chains `observe → plan → act`.

mod bidnode;
mod enqueue;
mod garbage;
mod slot;

pub use crate::context::Options;

use crate::cache::{Stores, api, bidnode_ref_of};
use crate::context::Context;
use bidnode::BidNodes;
use kube::runtime::reflector::ObjectRef;
use kubebid_controller::{ControllerOptions, Manager};
use slot::Slots;
use std::sync::Arc;
use std::time::Duration;

/// The controller of BidNodes. The events of their slots are collected: a status is written once for all of them.
const BIDNODES: ControllerOptions =
    ControllerOptions { concurrency: 16, min_interval: Duration::ZERO, debounce: Duration::from_millis(250) };
/// The controller of slots.
const SLOTS: ControllerOptions =
    ControllerOptions { concurrency: 32, min_interval: Duration::ZERO, debounce: Duration::ZERO };

/// Adds the controllers of BidNodes and slots. `concurrency` replaces how many objects of a kind are reconciled at once.
pub fn add(manager: &mut Manager, options: Options, concurrency: Option<u16>) {
    let of = |options: ControllerOptions| ControllerOptions {
        concurrency: concurrency.unwrap_or(options.concurrency),
        ..options
    };
    let (client, namespace) = (manager.client().clone(), options.namespace.clone());
    let stores = Stores::watch(manager, namespace.as_deref());
    let slots = manager.context::<Slots>();
    let context = Arc::new(Context {
        stores: stores.clone(),
        memory: Default::default(),
        bidnode_writer: manager.context::<BidNodes>().writer,
        slot_writer: slots.writer,
        bidnode_wakes: manager.wakes::<BidNodes>(of(BIDNODES)),
        slot_wakes: manager.wakes::<Slots>(of(SLOTS)),
        events: slots.events,
        leadership: slots.leadership,
        options,
    });
    // The watches do not keep the context alive, which holds them.
    let weak = Arc::downgrade(&context);
    let of_node = weak.clone();
    stores.nodes.on_change(move |node| {
        if let Some(context) = of_node.upgrade() {
            enqueue::on_node(&context, node);
        }
    });
    stores.pods.on_change(move |pod| {
        if let Some(context) = weak.upgrade() {
            enqueue::on_pod(&context, pod);
        }
    });
    let bidnodes = context.bidnode_wakes.clone();
    stores.slots.on_change(move |slot| {
        if let Some(bidnode) = bidnode_ref_of(slot) {
            bidnodes.wake(bidnode);
        }
    });
    manager.add(BidNodes(Arc::clone(&context)), api(&client, namespace.as_deref()), of(BIDNODES));
    manager.add(Slots(Arc::clone(&context)), api(&client, namespace.as_deref()), of(SLOTS));
    let wakes = context.slot_wakes.clone();
    // A notice does not wait for the end of a backoff.
    let feed = context.engine().feed().run(move |slot| {
        wakes.wake_urgently(ObjectRef::new(&slot.name).within(&slot.namespace));
    });
    manager.spawn(feed);
    let of_faults = Arc::clone(&context);
    manager.spawn(async move { enqueue::on_engine_faults(&of_faults).await });
    manager.spawn(async move { garbage::run(&context).await });
}
