//! The agenda: planned actions by time; those of one instant in the order in which they were planned.

use kubebid_core::units::Micros;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug)]
pub(super) struct Agenda<T> {
    heap: BinaryHeap<Reverse<(Micros, u64, T)>>,
    planned: u64,
}

impl<T: Ord> Agenda<T> {
    pub(super) fn new() -> Agenda<T> {
        Agenda { heap: BinaryHeap::new(), planned: 0 }
    }

    pub(super) fn plan(&mut self, at: Micros, due: T) {
        self.planned += 1;
        self.heap.push(Reverse((at, self.planned, due)));
    }

    pub(super) fn next(&mut self) -> Option<(Micros, T)> {
        self.heap.pop().map(|Reverse((at, _, due))| (at, due))
    }
}
