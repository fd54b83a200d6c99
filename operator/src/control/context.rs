//! The context of every reconcile: clients, caches, options.

use super::Error;
use super::write_cache::WriteCache;
use crate::api::{BidNode, BidSlot, BidSlotStatus};
use crate::auction::Auction;
use crate::leadership::{Leadership, Pass};
use crate::metrics::ActiveNodes;
use crate::plan::slot::Limits;
use crate::provision::Provisioner;
use crate::world::World;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tracing::warn;

/// What the operator works with.
#[derive(Clone, Debug)]
pub struct Options {
    pub auction: Arc<Auction>,
    pub provisioner: Arc<dyn Provisioner>,
    pub leadership: Leadership,
    pub active_nodes: Arc<ActiveNodes>,
    /// Only BidNodes of this namespace; absent for all.
    pub namespace: Option<String>,
    pub limits: Limits,
}

/// Objects to be looked at.
#[derive(Clone, Debug)]
pub(super) struct Wakes {
    bidnodes: UnboundedSender<ObjectRef<BidNode>>,
    slots: UnboundedSender<ObjectRef<BidSlot>>,
}

impl Wakes {
    pub(super) fn new() -> (Self, UnboundedReceiver<ObjectRef<BidNode>>, UnboundedReceiver<ObjectRef<BidSlot>>)
    {
        let (bidnodes, wake_bidnodes) = unbounded_channel();
        let (slots, wake_slots) = unbounded_channel();
        (Wakes { bidnodes, slots }, wake_bidnodes, wake_slots)
    }

    pub(super) fn bidnode(&self, which: ObjectRef<BidNode>) {
        // At the end nobody listens any more.
        let _ = self.bidnodes.send(which);
    }

    pub(super) fn slot(&self, which: ObjectRef<BidSlot>) {
        let _ = self.slots.send(which);
    }
}

/// Shared by all looks.
pub(super) struct Context {
    pub(super) client: Client,
    world: World,
    wakes: Wakes,
    options: Options,
    news: UnboundedSender<News>,
    pictured: AtomicBool,
    memory: Mutex<Memory>,
    pub(super) bidnodes: WriteCache<BidNode>,
    pub(super) slots: WriteCache<BidSlot>,
    pub(super) nodes: WriteCache<Node>,
}

/// What people are told, where they look: as an event of the object.
struct News {
    event: Event,
    about: ObjectReference,
}

/// Writes the news, one after the other: nobody waits for it, least of all a node under notice.
pub(super) struct Herald {
    recorder: Recorder,
    news: UnboundedReceiver<News>,
    leadership: Leadership,
}

impl Herald {
    /// For as long as it is polled. News that cannot be written is not worth a failure.
    pub(super) async fn run(mut self) {
        while let Some(News { event, about }) = self.news.recv().await {
            if !self.leadership.is_valid() {
                continue;
            }
            if let Err(error) = self.recorder.publish(&event, &about).await {
                warn!(%error, reason = event.reason, "an event could not be written");
            }
        }
    }
}

/// What is not worth a write: lost with the process, and made again.
#[derive(Debug, Default)]
struct Memory {
    failures: BTreeMap<String, Failure>,
    /// The time at which the mean price of a BidNode was last written, by UID.
    priced: BTreeMap<String, Timestamp>,
    /// The time at which the status of a BidNode was last written, by UID.
    reported: BTreeMap<String, Timestamp>,
    /// The time at which the cost of a BidNode was last written, by UID.
    cost_written: BTreeMap<String, Timestamp>,
    /// The generation of a BidNode for which nodes were given up, by UID.
    scaled: BTreeMap<String, Option<i64>>,
    /// Since when the node of a slot has been empty, by UID.
    empty: BTreeMap<String, Timestamp>,
    /// The number of machines of a BidNode that failed in a row, and the time of the last failure, by UID.
    machine_failures: BTreeMap<String, (u32, Timestamp)>,
    /// The number of slots that a BidNode is to have, by UID.
    targets: BTreeMap<String, usize>,
    /// The generation of a BidNode whose labels and taints the API server answered last, and its refusal if it
    /// refused them, by UID. A slot may be gone before its BidNode is looked at.
    registrations: BTreeMap<String, (Option<i64>, Option<String>)>,
    /// The time at which the provisioner was last asked for the machine of a slot, by UID.
    asked: BTreeMap<String, Instant>,
}

/// An object whose last looks came to nothing.
#[derive(Debug, Default)]
struct Failure {
    times: u32,
    /// No look before this time, and what people wanted of the object when it was set.
    backoff: Option<(Instant, u64)>,
}

impl Context {
    pub(super) fn new(client: Client, world: World, wakes: Wakes, options: Options) -> (Self, Herald) {
        let reporter = Reporter { controller: "kubebid-operator".to_owned(), instance: None };
        let recorder = Recorder::new(client.clone(), reporter);
        let (sender, news) = unbounded_channel();
        let herald = Herald { recorder, news, leadership: options.leadership.clone() };
        let context = Context {
            client,
            world,
            wakes,
            options,
            news: sender,
            pictured: AtomicBool::new(false),
            memory: Mutex::default(),
            bidnodes: WriteCache::default(),
            slots: WriteCache::default(),
            nodes: WriteCache::default(),
        };
        (context, herald)
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    pub(super) fn wakes(&self) -> &Wakes {
        &self.wakes
    }

    pub(super) fn auction(&self) -> &Arc<Auction> {
        &self.options.auction
    }

    pub(super) fn provisioner(&self) -> &dyn Provisioner {
        self.options.provisioner.as_ref()
    }

    /// The node of a slot, as it was seen or as it was written since.
    pub(super) fn node_of(&self, status: &BidSlotStatus) -> Option<Arc<Node>> {
        let node = status.node.as_deref().and_then(|name| self.world.node(name))?;
        Some(self.nodes.newest(node))
    }

    /// Returns whether slots of this namespace are this operator's.
    pub(super) fn watches(&self, namespace: &str) -> bool {
        self.options.namespace.as_ref().is_none_or(|ours| ours == namespace)
    }

    pub(super) fn limits(&self) -> Limits {
        self.options.limits
    }

    pub(super) fn active_nodes(&self) -> &ActiveNodes {
        &self.options.active_nodes
    }

    /// To be asked before each act.
    pub(super) fn leads(&self) -> Result<(), Error> {
        if self.options.leadership.is_valid() { Ok(()) } else { Err(Error::NotLeading) }
    }

    /// Counts a pass for as long as what is returned lives.
    pub(super) fn pass(&self) -> Pass {
        self.options.leadership.pass()
    }

    pub(super) fn set_pictured(&self) {
        self.pictured.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_pictured(&self) -> bool {
        self.pictured.load(Ordering::Relaxed)
    }

    /// Tells people, with the slot that it is because of. Events of one object with the same reason are counted as one,
    /// unless they are because of different slots.
    pub(super) fn tell<K>(
        &self,
        about: &K,
        slot: Option<&BidSlot>,
        type_: EventType,
        reason: &str,
        note: String,
    ) where
        K: Resource<DynamicType = ()>,
    {
        let (reason, action) = (reason.to_owned(), reason.to_owned());
        let secondary = slot.map(|slot| slot.object_ref(&()));
        let event = Event { type_, reason, note: Some(note), action, secondary };
        // At the end nobody listens any more.
        let _ = self.news.send(News { event, about: about.object_ref(&()) });
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failure in a row.
    pub(super) fn failed(&self, object: &str) -> u32 {
        let mut memory = self.memory();
        let failure = memory.failures.entry(object.to_owned()).or_default();
        failure.times = failure.times.saturating_add(1);
        failure.times
    }

    /// Keeps an object that has failed from being looked at for this long. Only another wish of its owner, or
    /// [`Context::end_backoff`], ends that early: a failure whose status write wakes the object would otherwise repeat
    /// at once.
    pub(super) fn back_off(&self, object: &str, wish: u64, wait: Duration) {
        if let Some(failure) = self.memory().failures.get_mut(object) {
            failure.backoff = Some((Instant::now() + wait, wish));
        }
    }

    /// Returns how much is left of the backoff of an object.
    pub(super) fn backs_off(&self, object: &str, wish: u64) -> Option<Duration> {
        let memory = self.memory();
        let (until, then) = memory.failures.get(object)?.backoff?;
        let left = until.saturating_duration_since(Instant::now());
        (wish == then && !left.is_zero()).then_some(left)
    }

    /// Lets an object be looked at at once. How often it has failed is remembered.
    pub(super) fn end_backoff(&self, object: &str) {
        if let Some(failure) = self.memory().failures.get_mut(object) {
            failure.backoff = None;
        }
    }

    /// Lets all objects be looked at at once.
    pub(super) fn end_backoffs(&self) {
        self.memory().failures.values_mut().for_each(|failure| failure.backoff = None);
    }

    pub(super) fn succeeded(&self, object: &str) {
        self.memory().failures.remove(object);
    }

    /// Returns how many slots a BidNode is to have, as of its last look.
    pub(super) fn target(&self, uid: &str) -> Option<usize> {
        self.memory().targets.get(uid).copied()
    }

    pub(super) fn set_target(&self, uid: &str, slots: usize) {
        self.memory().targets.insert(uid.to_owned(), slots);
    }

    pub(super) fn priced(&self, uid: &str) -> Option<Timestamp> {
        self.memory().priced.get(uid).copied()
    }

    pub(super) fn set_priced(&self, uid: &str, when: Timestamp) {
        self.memory().priced.insert(uid.to_owned(), when);
    }

    pub(super) fn reported(&self, uid: &str) -> Option<Timestamp> {
        self.memory().reported.get(uid).copied()
    }

    pub(super) fn set_reported(&self, uid: &str, when: Timestamp) {
        self.memory().reported.insert(uid.to_owned(), when);
    }

    /// Returns whether the cost of a BidNode was last written so long ago, or before this process began.
    pub(super) fn is_cost_due(&self, uid: &str, now: Timestamp, beat: SignedDuration) -> bool {
        let mut memory = self.memory();
        let written = *memory.cost_written.entry(uid.to_owned()).or_insert(now);
        now.duration_since(written) >= beat
    }

    pub(super) fn set_cost_written(&self, uid: &str, when: Timestamp) {
        self.memory().cost_written.insert(uid.to_owned(), when);
    }

    /// Returns whether no nodes were given up for this generation of a BidNode.
    pub(super) fn is_new_generation(&self, uid: &str, generation: Option<i64>) -> bool {
        self.memory().scaled.get(uid) != Some(&generation)
    }

    pub(super) fn set_scaled(&self, uid: &str, generation: Option<i64>) {
        self.memory().scaled.insert(uid.to_owned(), generation);
    }

    /// Since when the node of this slot has been empty.
    pub(super) fn empty_since(&self, slot_uid: &str, empty: bool, now: Timestamp) -> Option<Timestamp> {
        let mut memory = self.memory();
        if !empty {
            memory.empty.remove(slot_uid);
            return None;
        }
        Some(*memory.empty.entry(slot_uid.to_owned()).or_insert(now))
    }

    /// Notes what the API server made of the labels and taints of a generation of a BidNode: why it refused them, or `None`
    /// where it took them.
    pub(super) fn set_registration(&self, uid: &str, generation: Option<i64>, refused: Option<String>) {
        self.memory().registrations.insert(uid.to_owned(), (generation, refused));
    }

    /// Returns what the API server last made of the labels and taints of this generation of a BidNode, if it was
    /// asked.
    pub(super) fn registration(&self, uid: &str, generation: Option<i64>) -> Option<Option<String>> {
        let memory = self.memory();
        let (asked, refused) = memory.registrations.get(uid)?;
        (*asked == generation).then(|| refused.clone())
    }

    pub(super) fn machine_failed(&self, uid: &str, now: Timestamp) {
        let mut memory = self.memory();
        let (times, when) = memory.machine_failures.entry(uid.to_owned()).or_insert((0, now));
        *times = times.saturating_add(1);
        *when = now;
    }

    pub(super) fn machine_came(&self, uid: &str) {
        self.memory().machine_failures.remove(uid);
    }

    /// For how long no node is bid for: each that fails is paid for.
    pub(super) fn pause_after_failures(&self, uid: &str, now: Timestamp) -> Option<Duration> {
        let (times, when) = *self.memory().machine_failures.get(uid)?;
        let pause = SignedDuration::from_secs(1 << times.min(8)) - now.duration_since(when);
        Duration::try_from(pause).ok().filter(|pause| !pause.is_zero())
    }

    /// Returns how much is left of the beat since the provisioner was last asked for the machine of a slot; where
    /// nothing is, it is asked again at this moment.
    pub(super) fn asked_lately(&self, slot_uid: &str, beat: Duration) -> Option<Duration> {
        let now = Instant::now();
        let mut memory = self.memory();
        let left = memory.asked.get(slot_uid).map(|asked| beat.saturating_sub(now.duration_since(*asked)));
        let left = left.filter(|left| !left.is_zero());
        if left.is_none() {
            memory.asked.insert(slot_uid.to_owned(), now);
        }
        left
    }

    /// Lets go of what was remembered of an object that is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.bidnodes.forget(uid);
        self.slots.forget(uid);
        let mut memory = self.memory();
        memory.priced.remove(uid);
        memory.reported.remove(uid);
        memory.cost_written.remove(uid);
        memory.scaled.remove(uid);
        memory.empty.remove(uid);
        memory.machine_failures.remove(uid);
        memory.registrations.remove(uid);
        memory.targets.remove(uid);
        memory.asked.remove(uid);
    }
}
