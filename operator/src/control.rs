//! Controllers: what wakes BidNodes, slots and nodes, and the reconcilers, each of which chains `observe → plan → act`.

mod bidnode;
mod enqueue;
mod garbage;
mod journal;
mod labels;
mod slot;

pub use crate::context::Options;
pub use crate::label_sets::LabelOptions;

use crate::cache::{Stores, bidnode_ref_of};
use crate::clock;
use crate::context::Context;
use crate::label_sets::LabelSets;
use crate::observe::gang::gang_slot_of;
use bidnode::BidNodes;
use kubebid_controller::object::objects;
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

/// Adds the controllers of BidNodes and slots, and of the labels of nodes, each if it has options. `concurrency` replaces
/// how many objects of a kind are reconciled at once.
pub fn add(
    manager: &mut Manager,
    bidnodes: Option<Options>,
    labels: Option<LabelOptions>,
    concurrency: Option<u16>,
) {
    let of = |options: ControllerOptions| ControllerOptions {
        concurrency: concurrency.unwrap_or(options.concurrency),
        ..options
    };
    let label_sets = labels.map(|labels| Arc::new(LabelSets::watch(manager, labels)));
    let bidnodes = bidnodes.map(|options| add_bidnodes(manager, options, label_sets.clone(), of));
    if let Some(label_sets) = label_sets {
        labels::add(manager, label_sets, bidnodes, of);
    }
}

/// Adds the controllers of BidNodes and slots.
fn add_bidnodes(
    manager: &mut Manager,
    options: Options,
    label_sets: Option<Arc<LabelSets>>,
    of: impl Fn(ControllerOptions) -> ControllerOptions,
) -> Arc<Context> {
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
        label_sets,
        began: clock::now(),
        journal: Default::default(),
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
    let (bidnodes, gang_slots) = (context.bidnode_wakes.clone(), context.slot_wakes.clone());
    stores.slots.on_change(move |slot| {
        if let Some(gang_slot) = gang_slot_of(slot) {
            gang_slots.wake(gang_slot);
        }
        if let Some(bidnode) = bidnode_ref_of(slot) {
            bidnodes.wake(bidnode);
        }
    });
    manager.add(BidNodes(Arc::clone(&context)), objects(&client, namespace.as_deref()), of(BIDNODES));
    manager.add(Slots(Arc::clone(&context)), objects(&client, namespace.as_deref()), of(SLOTS));
    let of_feed = Arc::clone(&context);
    let feed = context.engine().feed().run(move |slot| enqueue::on_bid(&of_feed, &slot));
    manager.spawn(feed);
    let of_journal = Arc::clone(&context);
    manager.spawn(async move { journal::run(&of_journal).await });
    let of_faults = Arc::clone(&context);
    manager.spawn(async move { enqueue::on_engine_faults(&of_faults).await });
    let of_garbage = Arc::clone(&context);
    manager.spawn(async move { garbage::run(&of_garbage).await });
    context
}
