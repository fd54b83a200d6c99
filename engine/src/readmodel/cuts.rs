//! Divides the cost of a node at an instant, such as the end of a month.
//!
//! The cost is known exactly at every full hour and at the end of the node. Within an hour it grows evenly. It is
//! rounded down at each cut, like the bill of a charge is at its end (R15), and a period has the difference between
//! the costs at its two ends. So the parts of a charge add up to the charge, whatever the cuts are, and what is rounded
//! off at a cut falls into the next period.

use super::rows::{BilledNode, Cost, CostMark, Mark};
use kubebid_core::money::Amount;
use kubebid_core::units::Micros;

impl From<Mark> for CostMark {
    fn from(mark: Mark) -> CostMark {
        CostMark { at: mark.at, debit: mark.bill.round(), fee: mark.fee }
    }
}

impl CostMark {
    /// Returns the cost at an instant up to that of `later`. A fee that was lowered falls evenly.
    fn toward(self, later: CostMark, at: Micros) -> CostMark {
        let span = later.at.since(self.at).0.max(1);
        let passed = at.since(self.at).0.min(span);
        let part = |from: Amount, to: Amount| {
            let rise = (to.0 as i128 - from.0 as i128) * i128::from(passed);
            Amount((from.0 as i128 + rise.div_euclid(i128::from(span))) as u128)
        };
        CostMark { at, debit: part(self.debit, later.debit), fee: part(self.fee, later.fee) }
    }
}

impl BilledNode {
    /// Returns the cost up to an instant, if the tables have it. Otherwise the node has run since its last full
    /// hour, and only the exchange knows the cost.
    pub fn cost_at(&self, at: Micros) -> Option<Cost> {
        match self.segment {
            Some((from, to)) if at <= to.at && self.ended_at.is_none_or(|ended| at <= ended) => {
                Some(self.cost(from.toward(to, at)))
            }
            // A node that was free of charge has no segment after its last full hour.
            _ if self.ended_at.is_some() => Some(self.cost(self.noted())),
            _ => None,
        }
    }

    /// Returns the cost of a running node up to an instant, from `marks` that the exchange has computed. They go on
    /// from the last segment.
    pub fn cost_by(&self, at: Micros, marks: &[Mark]) -> Cost {
        let mut before = self.noted();
        for mark in marks.iter().map(|mark| CostMark::from(*mark)) {
            if mark.at <= before.at {
                continue;
            }
            if at <= mark.at {
                return self.cost(before.toward(mark, at));
            }
            before = mark;
        }
        self.cost(before)
    }

    /// Returns the cost at the end of the last segment.
    fn noted(&self) -> CostMark {
        self.segment.map_or(CostMark::from(Mark::start(self.ready_at)), |(_, to)| to)
    }

    fn cost(&self, mark: CostMark) -> Cost {
        Cost { debit: mark.debit, fee: mark.fee, time: mark.at.since(self.ready_at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubebid_core::units::AllocationId;

    fn mark(at: u64, debit: u128, fee: u128) -> CostMark {
        CostMark { at: Micros(at), debit: Amount(debit), fee: Amount(fee) }
    }

    fn node(ready_at: u64, ended_at: Option<u64>, segment: Option<(CostMark, CostMark)>) -> BilledNode {
        BilledNode {
            allocation: AllocationId(1),
            tenant: "t".to_owned(),
            provider: "p".to_owned(),
            market: "m".to_owned(),
            label_value: None,
            ready_at: Micros(ready_at),
            ended_at: ended_at.map(Micros),
            segment,
            charge: None,
        }
    }

    #[test]
    fn the_cost_grows_evenly_between_two_marks_and_is_rounded_down() {
        let node = node(0, None, Some((mark(0, 10, 5), mark(10, 17, 2))));
        let costs: Vec<_> = (0..=10)
            .map(|at| node.cost_at(Micros(at)).map(|cost| (cost.debit.0, cost.fee.0, cost.time.0)))
            .map(Option::unwrap)
            .collect();
        assert_eq!((costs[0], costs[10]), ((10, 5, 0), (17, 2, 10)));
        assert_eq!(costs[3], (12, 4, 3));
        assert!(costs.is_sorted_by(|a, b| a.0 <= b.0 && a.1 >= b.1));
    }

    #[test]
    fn after_the_last_mark_only_the_exchange_knows_the_cost_of_a_running_node() {
        let running = node(5, None, Some((mark(5, 0, 0), mark(10, 50, 0))));
        assert_eq!(running.cost_at(Micros(11)), None);
        let later = Mark { at: Micros(20), bill: kubebid_core::money::Bill(0), fee: Amount(0) };
        let later = Mark { bill: kubebid_core::Price(150).over(Micros::HOUR), ..later };
        assert_eq!(running.cost_by(Micros(15), &[later]).debit, Amount(100));
        assert_eq!(running.cost_by(Micros(20), &[later]).debit, Amount(150));
        assert_eq!(running.cost_by(Micros(30), &[later]).time, Micros(15));
        let fresh = node(5, None, None);
        assert_eq!(fresh.cost_by(Micros(5), &[later]), Cost::default());
    }

    #[test]
    fn a_node_that_was_free_of_charge_costs_what_its_full_hours_showed_until_it_ends() {
        let free = node(5, Some(13), Some((mark(5, 0, 0), mark(10, 50, 5))));
        assert_eq!(free.cost_at(Micros(12)), free.cost_at(Micros(10)));
        assert_eq!(node(5, Some(13), None).cost_at(Micros(12)), Some(Cost::default()));
    }
}
