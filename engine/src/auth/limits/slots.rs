//! Counts what an account has open at once: requests, watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of things that are open. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Slots(Arc<AtomicU64>);

/// A slot of one open thing. It counts until its last clone is dropped.
#[derive(Clone, Debug)]
pub struct Slot(#[expect(dead_code, reason = "it counts")] Arc<Taken>);

#[derive(Debug)]
struct Taken {
    slots: Slots,
    weight: u64,
}

impl Slots {
    /// Takes a slot that counts as `weight`, if no more than `most` are taken with it.
    pub fn take(&self, weight: u64, most: u64) -> Option<Slot> {
        let mut taken = self.0.load(Ordering::Relaxed);
        loop {
            let more = taken.checked_add(weight).filter(|more| *more <= most)?;
            match self.0.compare_exchange_weak(taken, more, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(Slot(Arc::new(Taken { slots: self.clone(), weight }))),
                Err(other) => taken = other,
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.slots.0.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_when_its_last_clone_is_dropped() {
        let slots = Slots::default();
        let first = slots.take(1, 2).unwrap();
        let (second, clone) = (slots.take(1, 2).unwrap(), first.clone());
        drop(first);
        assert!(slots.take(1, 2).is_none());
        drop(clone);
        assert!(slots.take(2, 2).is_none());
        assert!(slots.take(1, 2).is_some());
        assert!(slots.take(1, 1).is_none());
        drop(second);
        assert!(slots.take(1, 0).is_none());
        assert!(slots.take(2, 2).is_some());
    }
}
