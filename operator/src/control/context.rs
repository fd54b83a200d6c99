//! What every look at an object has at hand.

use super::Error;
use super::written::Written;
use crate::api::{BidNode, BidSlot};
use crate::auction::Auction;
use crate::metrics::ActiveNodes;
use crate::plan::slot::Limits;
use crate::provision::Provisioner;
use crate::reign::Reign;
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
    pub reign: Reign,
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
    pub(super) bidnodes: Written<BidNode>,
    pub(super) slots: Written<BidSlot>,
    pub(super) nodes: Written<Node>,
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
    reign: Reign,
}

impl Herald {
    /// For as long as it is polled. News that cannot be written is not worth a failure.
    pub(super) async fn run(mut self) {
        while let Some(News { event, about }) = self.news.recv().await {
            if !self.reign.holds() {
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
    failures: BTreeMap<String, u32>,
    /// When the mean price of a BidNode was last written, by UID.
    priced: BTreeMap<String, Timestamp>,
    /// When the status of a BidNode was last written, by UID.
    reported: BTreeMap<String, Timestamp>,
    /// Since when the node of a slot has been empty, by UID.
    empty: BTreeMap<String, Timestamp>,
    /// How many machines of a BidNode failed in a row, and when the last one did, by UID.
    machine_failures: BTreeMap<String, (u32, Timestamp)>,
    /// How many slots a BidNode is to have, by UID.
    targets: BTreeMap<String, usize>,
    /// When the provisioner was last asked for the machine of a slot, by UID.
    asked: BTreeMap<String, Instant>,
}

impl Context {
    pub(super) fn new(client: Client, world: World, wakes: Wakes, options: Options) -> (Self, Herald) {
        let reporter = Reporter { controller: "kubebid-operator".to_owned(), instance: None };
        let recorder = Recorder::new(client.clone(), reporter);
        let (sender, news) = unbounded_channel();
        let herald = Herald { recorder, news, reign: options.reign.clone() };
        let context = Context {
            client,
            world,
            wakes,
            options,
            news: sender,
            pictured: AtomicBool::new(false),
            memory: Mutex::default(),
            bidnodes: Written::default(),
            slots: Written::default(),
            nodes: Written::default(),
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

    pub(super) fn limits(&self) -> Limits {
        self.options.limits
    }

    pub(super) fn active_nodes(&self) -> &ActiveNodes {
        &self.options.active_nodes
    }

    /// To be asked before each act.
    pub(super) fn leads(&self) -> Result<(), Error> {
        if self.options.reign.holds() { Ok(()) } else { Err(Error::NotLeading) }
    }

    pub(super) fn set_pictured(&self) {
        self.pictured.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_pictured(&self) -> bool {
        self.pictured.load(Ordering::Relaxed)
    }

    /// Tells people.
    pub(super) fn tell<K>(&self, about: &K, type_: EventType, reason: &str, note: String)
    where
        K: Resource<DynamicType = ()>,
    {
        let (reason, action) = (reason.to_owned(), reason.to_owned());
        let event = Event { type_, reason, note: Some(note), action, secondary: None };
        // At the end nobody listens any more.
        let _ = self.news.send(News { event, about: about.object_ref(&()) });
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failure in a row.
    pub(super) fn failed(&self, object: &str) -> u32 {
        let mut memory = self.memory();
        let times = memory.failures.entry(object.to_owned()).or_default();
        *times = times.saturating_add(1);
        *times
    }

    pub(super) fn succeeded(&self, object: &str) {
        self.memory().failures.remove(object);
    }

    /// How many slots a BidNode is to have, as of its last look.
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

    /// Since when the node of this slot has been empty.
    pub(super) fn empty_since(&self, slot_uid: &str, empty: bool, now: Timestamp) -> Option<Timestamp> {
        let mut memory = self.memory();
        if !empty {
            memory.empty.remove(slot_uid);
            return None;
        }
        Some(*memory.empty.entry(slot_uid.to_owned()).or_insert(now))
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

    /// How much is left of the beat since the provisioner was last asked for the machine of a slot; where nothing is,
    /// it is asked again at this moment.
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
        memory.empty.remove(uid);
        memory.machine_failures.remove(uid);
        memory.targets.remove(uid);
        memory.asked.remove(uid);
    }
}
