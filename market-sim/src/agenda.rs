//! The agenda of a simulation: steps that are due in the future, in the order in which they are taken.

use kubebid_core::units::Micros;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A step that an [`Agenda`] can hold.
pub(crate) trait Step {
    /// Orders two steps that are due at the same instant. Equal steps keep the order in which they were planned.
    fn rank(&self, _other: &Self) -> Ordering {
        Ordering::Equal
    }
}

/// A queue of steps by time, then by rank, then by the order in which they were planned.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    heap: BinaryHeap<Planned<T>>,
    planned: u64,
}

#[derive(Debug)]
struct Planned<T> {
    at: Micros,
    number: u64,
    step: T,
}

impl<T: Step> Agenda<T> {
    /// Makes an empty agenda.
    pub(crate) fn new() -> Agenda<T> {
        Agenda { heap: BinaryHeap::new(), planned: 0 }
    }

    /// Adds a step that is due at `at`.
    pub(crate) fn plan(&mut self, at: Micros, step: T) {
        self.planned += 1;
        self.heap.push(Planned { at, number: self.planned, step });
    }

    /// Returns the instant of the next step.
    pub(crate) fn next_at(&self) -> Option<Micros> {
        self.heap.peek().map(|planned| planned.at)
    }

    /// Takes the next step if it is due at `now` or before.
    pub(crate) fn take_due(&mut self, now: Micros) -> Option<T> {
        self.next_at().filter(|at| *at <= now)?;
        self.heap.pop().map(|planned| planned.step)
    }
}

impl<T: Step> Ord for Planned<T> {
    /// Orders steps the other way round: the greatest element of the heap is the step that comes first.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_time = other.at.cmp(&self.at);
        by_time.then_with(|| other.step.rank(&self.step)).then_with(|| other.number.cmp(&self.number))
    }
}

impl<T: Step> PartialOrd for Planned<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Step> PartialEq for Planned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T: Step> Eq for Planned<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    impl Step for &str {}
    impl Step for u32 {
        fn rank(&self, other: &u32) -> Ordering {
            self.cmp(other)
        }
    }

    #[test]
    fn steps_of_one_instant_come_in_the_order_in_which_they_were_planned() {
        let mut agenda = Agenda::new();
        for (at, step) in [(2, "c"), (1, "b"), (2, "a"), (1, "a")] {
            agenda.plan(Micros(at), step);
        }
        assert_eq!(agenda.next_at(), Some(Micros(1)));
        assert_eq!(agenda.take_due(Micros(0)), None);
        let taken: Vec<&str> = std::iter::from_fn(|| agenda.take_due(Micros(2))).collect();
        assert_eq!(taken, ["b", "a", "c", "a"]);
    }

    #[test]
    fn a_rank_comes_before_the_order_of_planning() {
        let mut agenda = Agenda::new();
        for (at, step) in [(2, 1), (1, 9), (1, 3)] {
            agenda.plan(Micros(at), step);
        }
        let taken: Vec<u32> = std::iter::from_fn(|| agenda.take_due(Micros(2))).collect();
        assert_eq!(taken, [3, 9, 1]);
    }
}
