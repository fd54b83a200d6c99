//! The queue of the intake in a form that loom can follow: head, tail and stamps change as in
//! `crossbeam_queue::ArrayQueue`, with the same orderings. A slot holds a number, which only the stamps
//! keep in order.

use loom::sync::atomic::{AtomicUsize, Ordering, fence};
use loom::thread::yield_now;

#[derive(Debug)]
pub(crate) struct Ring {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: Vec<(AtomicUsize, AtomicUsize)>,
    lap: usize,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Ring {
        let slots = (0..capacity).map(|stamp| (AtomicUsize::new(stamp), AtomicUsize::new(0))).collect();
        let (head, tail) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ring { head, tail, slots, lap: (capacity + 1).next_power_of_two() }
    }

    fn slot(&self, at: usize) -> &(AtomicUsize, AtomicUsize) {
        &self.slots[at & (self.lap - 1)]
    }

    fn behind(&self, at: usize) -> usize {
        let index = at & (self.lap - 1);
        if index + 1 < self.slots.len() { at + 1 } else { at - index + self.lap }
    }

    pub(crate) fn push(&self, value: usize) -> Result<(), usize> {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let (stamp, held) = self.slot(tail);
            let stamped = stamp.load(Ordering::Acquire);
            if stamped == tail {
                let next = self.behind(tail);
                match self.tail.compare_exchange_weak(tail, next, Ordering::SeqCst, Ordering::Relaxed) {
                    Ok(_) => {
                        held.store(value, Ordering::Relaxed);
                        stamp.store(tail + 1, Ordering::Release);
                        return Ok(());
                    }
                    Err(other) => tail = other,
                }
            } else if stamped + self.lap == tail + 1 {
                fence(Ordering::SeqCst);
                if self.head.load(Ordering::Relaxed) + self.lap == tail {
                    return Err(value);
                }
                yield_now();
                tail = self.tail.load(Ordering::Relaxed);
            } else {
                yield_now();
                tail = self.tail.load(Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn pop(&self) -> Option<usize> {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let (stamp, held) = self.slot(head);
            let stamped = stamp.load(Ordering::Acquire);
            if stamped == head + 1 {
                let next = self.behind(head);
                match self.head.compare_exchange_weak(head, next, Ordering::SeqCst, Ordering::Relaxed) {
                    Ok(_) => {
                        let value = held.load(Ordering::Relaxed);
                        stamp.store(head + self.lap, Ordering::Release);
                        return Some(value);
                    }
                    Err(other) => head = other,
                }
            } else if stamped == head {
                fence(Ordering::SeqCst);
                if self.tail.load(Ordering::Relaxed) == head {
                    return None;
                }
                yield_now();
                head = self.head.load(Ordering::Relaxed);
            } else {
                yield_now();
                head = self.head.load(Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        // Loom's SeqCst loads are weaker than real ones, so whatever holds here holds in reality.
        let (tail, head) = (self.tail.load(Ordering::SeqCst), self.head.load(Ordering::SeqCst));
        let index = |at: usize| at & (self.lap - 1);
        match (index(head), index(tail)) {
            (head_at, tail_at) if head_at < tail_at => tail_at - head_at,
            (head_at, tail_at) if head_at > tail_at => self.slots.len() - head_at + tail_at,
            _ if tail == head => 0,
            _ => self.slots.len(),
        }
    }
}
