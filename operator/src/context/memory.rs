//! Memory of the process: facts that are not worth a write, and are observed again after a restart.

use crate::api::UnusedNodes;
use crate::plan::resources::Resources;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The facts, by the UID of the BidNode or of the slot.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bidnodes: BTreeMap<String, OfBidNode>,
    slots: BTreeMap<String, OfSlot>,
}

/// The facts of a BidNode.
#[derive(Debug, Default)]
struct OfBidNode {
    price_written: Option<Timestamp>,
    cost_written: Option<Timestamp>,
    status_written: Option<Timestamp>,
    /// The generation for which slots were given up.
    scaled: Option<Option<i64>>,
    /// The number of machines that failed in a row, and the time of the last failure.
    machine_failures: Option<(u32, Timestamp)>,
    /// The number of slots that it is to have.
    target: Option<usize>,
    /// The generation whose labels and taints the API server answered last, with its refusal if it refused them. The slot that
    /// found this out may be gone before its BidNode is reconciled.
    registration: Option<(Option<i64>, Option<String>)>,
    /// The generation, and the nodes in a row that pods brought and did not use. The status that says so may lag.
    unused: Option<(Option<i64>, Option<UnusedNodes>)>,
    /// The resources of an empty node, by instance type, as last found on the nodes of the BidNode.
    found: BTreeMap<String, Resources>,
}

/// The facts of a slot.
#[derive(Debug, Default)]
struct OfSlot {
    empty_since: Option<Timestamp>,
    /// True if it is known what came of its node: a pod was bound to it, it was given up without one, or this process has not observed
    /// it from the beginning.
    is_proven: Option<bool>,
    /// The pods on its node, by UID, and the time since which they have been the same.
    same_pods: Option<(BTreeSet<String>, Timestamp)>,
    /// The time of the last question about its machine.
    machine_polled: Option<Instant>,
}

/// The times at which parts of the status of a BidNode were last written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteTimes {
    pub(crate) price: Option<Timestamp>,
    pub(crate) cost: Timestamp,
    pub(crate) status: Option<Timestamp>,
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the facts of a BidNode, if there are any.
    fn read<T>(&self, uid: &str, read: impl FnOnce(&OfBidNode) -> Option<T>) -> Option<T> {
        self.state().bidnodes.get(uid).and_then(read)
    }

    /// Writes a fact of a BidNode.
    fn write<T>(&self, uid: &str, write: impl FnOnce(&mut OfBidNode) -> T) -> T {
        write(self.state().bidnodes.entry(uid.to_owned()).or_default())
    }

    /// Returns when the status of a BidNode was last written. A cost that this process has not written counts as written at
    /// the first call.
    pub(crate) fn written(&self, uid: &str, now: Timestamp) -> WriteTimes {
        self.write(uid, |it| WriteTimes {
            price: it.price_written,
            cost: *it.cost_written.get_or_insert(now),
            status: it.status_written,
        })
    }

    /// Records that the status of a BidNode was written, and whether its mean price or its cost changed.
    pub(crate) fn set_written(&self, uid: &str, now: Timestamp, price_changed: bool, cost_changed: bool) {
        self.write(uid, |it| {
            it.status_written = Some(now);
            if price_changed {
                it.price_written = Some(now);
            }
            if cost_changed {
                it.cost_written = Some(now);
            }
        });
    }

    /// Returns whether no slots were given up for this generation of a BidNode yet.
    pub(crate) fn is_new_generation(&self, uid: &str, generation: Option<i64>) -> bool {
        self.read(uid, |it| it.scaled) != Some(generation)
    }

    /// Records that slots were given up for this generation of a BidNode.
    pub(crate) fn set_scaled(&self, uid: &str, generation: Option<i64>) {
        self.write(uid, |it| it.scaled = Some(generation));
    }

    /// Returns the number of slots that a BidNode is to have, as of its last plan.
    pub(crate) fn target(&self, uid: &str) -> Option<usize> {
        self.read(uid, |it| it.target)
    }

    /// Records the number of slots that a BidNode is to have.
    pub(crate) fn set_target(&self, uid: &str, slots: usize) {
        self.write(uid, |it| it.target = Some(slots));
    }

    /// Returns the API server's last answer to the labels and taints of this generation of a BidNode, if it was asked: the
    /// message of its refusal, or `None` if it accepted them.
    pub(crate) fn registration(&self, uid: &str, generation: Option<i64>) -> Option<Option<String>> {
        let last = self.read(uid, |it| it.registration.clone());
        last.filter(|(asked, _)| *asked == generation).map(|(_, refused)| refused)
    }

    /// Records the API server's answer to the labels and taints of this generation of a BidNode.
    pub(crate) fn set_registration(&self, uid: &str, generation: Option<i64>, refused: Option<String>) {
        self.write(uid, |it| it.registration = Some((generation, refused)));
    }

    /// Counts a machine of a BidNode that failed.
    pub(crate) fn machine_failed(&self, uid: &str, now: Timestamp) {
        self.write(uid, |it| {
            let count = it.machine_failures.map_or(0, |(count, _)| count);
            it.machine_failures = Some((count.saturating_add(1), now));
        });
    }

    /// Forgets the failed machines of a BidNode: one has come.
    pub(crate) fn machine_came(&self, uid: &str) {
        self.write(uid, |it| it.machine_failures = None);
    }

    /// Returns the rest of the pause after machines that failed. It doubles with each failure, since each one costs money.
    pub(crate) fn pause_after_failures(&self, uid: &str, now: Timestamp) -> Option<Duration> {
        let (count, when) = self.read(uid, |it| it.machine_failures)?;
        let pause = SignedDuration::from_secs(1 << count.min(8)) - now.duration_since(when);
        Duration::try_from(pause).ok().filter(|pause| !pause.is_zero())
    }

    /// Records whether the node of a slot is empty, and returns the time since which it has been.
    pub(crate) fn empty_since(&self, slot_uid: &str, empty: bool, now: Timestamp) -> Option<Timestamp> {
        let mut state = self.state();
        if empty {
            let slot = state.slots.entry(slot_uid.to_owned()).or_default();
            return Some(*slot.empty_since.get_or_insert(now));
        }
        if let Some(slot) = state.slots.get_mut(slot_uid) {
            slot.empty_since = None;
        }
        None
    }

    /// Records whether pods are on the node of a slot. Returns true if they are the first, and the process has observed the node since it
    /// was ready.
    pub(crate) fn is_first_use(&self, slot_uid: &str, is_observed_whole: bool, has_pods: bool) -> bool {
        let mut state = self.state();
        let slot = state.slots.entry(slot_uid.to_owned()).or_default();
        let is_proven = slot.is_proven.get_or_insert(!is_observed_whole);
        let is_first = has_pods && !*is_proven;
        *is_proven |= has_pods;
        is_first
    }

    /// Returns true if no pod was ever bound to the node of a slot, and it was not given up.
    pub(crate) fn is_unproven(&self, slot_uid: &str) -> bool {
        self.state().slots.get(slot_uid).and_then(|slot| slot.is_proven) == Some(false)
    }

    /// Records that the node of a slot ends. Returns true if no pod was ever bound to it.
    pub(crate) fn prove(&self, slot_uid: &str) -> bool {
        let mut state = self.state();
        let slot = state.slots.get_mut(slot_uid);
        slot.is_some_and(|slot| slot.is_proven.replace(true) == Some(false))
    }

    /// Returns the nodes in a row that this generation of a BidNode brought for pods and that were not used; those of `status` if this
    /// process has not counted yet.
    pub(crate) fn unused(
        &self,
        uid: &str,
        generation: Option<i64>,
        status: impl FnOnce() -> Option<UnusedNodes>,
    ) -> Option<UnusedNodes> {
        let counted = self.read(uid, |it| it.unused.clone()).filter(|(counted, _)| *counted == generation);
        counted.map_or_else(status, |(_, unused)| unused)
    }

    /// Records the nodes in a row that were not used.
    pub(crate) fn set_unused(&self, uid: &str, generation: Option<i64>, unused: Option<UnusedNodes>) {
        self.write(uid, |it| it.unused = Some((generation, unused)));
    }

    /// Returns the time since which the open node of a slot has had these pods.
    pub(crate) fn same_pods_since(
        &self,
        slot_uid: &str,
        pods: BTreeSet<String>,
        now: Timestamp,
    ) -> Timestamp {
        let mut state = self.state();
        let slot = state.slots.entry(slot_uid.to_owned()).or_default();
        match &slot.same_pods {
            Some((before, since)) if *before == pods => *since,
            Some(_) | None => {
                slot.same_pods = Some((pods, now));
                now
            }
        }
    }

    /// Forgets the pods of a slot whose node does not take pods: the scheduler looks at it again when it does.
    pub(crate) fn forget_pods(&self, slot_uid: &str) {
        if let Some(slot) = self.state().slots.get_mut(slot_uid) {
            slot.same_pods = None;
        }
    }

    /// Returns the resources of an empty node of a type, as found on the nodes of a BidNode: at this moment, or before if there is
    /// no such node at this moment.
    pub(crate) fn found(
        &self,
        uid: &str,
        instance_type: &str,
        found: Option<&Resources>,
    ) -> Option<Resources> {
        match found {
            Some(found) => {
                self.write(uid, |it| it.found.insert(instance_type.to_owned(), found.clone()));
                Some(found.clone())
            }
            None => self.read(uid, |it| it.found.get(instance_type).cloned()),
        }
    }

    /// Returns the time until the provisioner may be asked for the machine of a slot again. If it may be asked at once, records
    /// that it is.
    pub(crate) fn machine_poll_left(&self, slot_uid: &str, poll: Duration) -> Option<Duration> {
        let now = Instant::now();
        let mut state = self.state();
        let slot = state.slots.entry(slot_uid.to_owned()).or_default();
        let left = slot.machine_polled.map(|polled| poll.saturating_sub(now.duration_since(polled)));
        let left = left.filter(|left| !left.is_zero());
        if left.is_none() {
            slot.machine_polled = Some(now);
        }
        left
    }

    /// Forgets a BidNode or a slot that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        let mut state = self.state();
        state.bidnodes.remove(uid);
        state.slots.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_after_failed_machines_doubles_and_ends_when_one_comes() {
        let memory = Memory::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let pause = |second| memory.pause_after_failures("u", at(second)).map(|pause| pause.as_secs());
        assert_eq!(pause(0), None);
        memory.machine_failed("u", at(0));
        assert_eq!((pause(0), pause(1), pause(2)), (Some(2), Some(1), None));
        memory.machine_failed("u", at(2));
        assert_eq!(pause(2), Some(4));
        memory.machine_came("u");
        assert_eq!(pause(2), None);
    }

    #[test]
    fn a_node_is_empty_since_it_was_first_observed_so() {
        let memory = Memory::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(memory.empty_since("u", true, at(1)), Some(at(1)));
        assert_eq!(memory.empty_since("u", true, at(5)), Some(at(1)));
        assert_eq!(memory.empty_since("u", false, at(6)), None);
        assert_eq!(memory.empty_since("u", true, at(7)), Some(at(7)));
    }
}
