//! The reference price: the price of which 65 % is the time-weighted median of the market price over the last 48 hours
//! (`kubebid_strategy::reference_micros`). Time without supply does not count.

use kubebid_core::Price;
use kubebid_core::numbers::Numbers;
use kubebid_core::units::Micros;
use kubebid_strategy::{REFERENCE_HOURS, reference_micros};
use std::collections::{BTreeMap, VecDeque};

/// The time for which a price counts.
pub(crate) const WINDOW: Micros = Micros(REFERENCE_HOURS * Micros::HOUR.0);

/// The market prices of the window, and how long each was in force.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    /// The time at which each price began. None means that there was no supply.
    changes: VecDeque<(Micros, Option<Price>)>,
    /// The completed spans within the window, summed by price.
    spans: BTreeMap<Price, u64>,
    floor: Option<Price>,
}

impl Reference {
    pub(crate) fn change(&mut self, at: Micros, numbers: &Numbers) {
        self.floor = numbers.floor;
        let price = numbers.floor.map(|_| numbers.market_price);
        if let Some((since, Some(before))) = self.changes.back()
            && at > *since
        {
            *self.spans.entry(*before).or_default() += at.since(*since).0;
        }
        self.changes.push_back((at, price));
    }

    /// Returns the reference price at `now`, or None if no time counts and there is no floor.
    pub(crate) fn price(&mut self, now: Micros) -> Option<Price> {
        self.median(now).map(|median| Price(reference_micros(median.0)))
    }

    /// Returns the median at `now`: the floor if no time counts, and none without a floor.
    fn median(&mut self, now: Micros) -> Option<Price> {
        self.forget_before(Micros(now.0.saturating_sub(WINDOW.0)));
        let mut spans = self.spans.clone();
        if let Some((since, Some(price))) = self.changes.back() {
            *spans.entry(*price).or_default() += now.since(*since).0;
        }
        let total: u64 = spans.values().sum();
        let mut passed = 0;
        let median = spans.iter().find(|(_, span)| {
            passed += **span;
            total > 0 && passed >= total.div_ceil(2)
        });
        median.map(|(price, _)| *price).or(self.floor)
    }

    fn forget_before(&mut self, start: Micros) {
        while let (Some(&(since, price)), Some(&(until, _))) = (self.changes.front(), self.changes.get(1)) {
            if since >= start {
                return;
            }
            let gone = until.min(start).since(since).0;
            if let Some(price) = price.filter(|_| gone > 0) {
                let span = self.spans.get_mut(&price).expect("a finished stretch is summed");
                *span -= gone;
                if *span == 0 {
                    self.spans.remove(&price);
                }
            }
            if until > start {
                self.changes[0].0 = start;
                return;
            }
            self.changes.pop_front();
        }
        if let Some((since, _)) = self.changes.front_mut() {
            *since = (*since).max(start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(price: u64, floor: Option<u64>) -> Numbers {
        Numbers { market_price: Price(price), floor: floor.map(Price), ..Numbers::default() }
    }

    #[test]
    fn the_median_is_the_price_of_half_of_the_time() {
        let mut reference = Reference::default();
        assert_eq!(reference.median(Micros(0)), None);
        reference.change(Micros::seconds(0), &numbers(100, Some(50)));
        reference.change(Micros::seconds(10), &numbers(300, Some(50)));
        reference.change(Micros::seconds(15), &numbers(200, Some(50)));
        assert_eq!(reference.median(Micros::seconds(15)), Some(Price(100)));
        assert_eq!(reference.median(Micros::seconds(22)), Some(Price(200)));
    }

    #[test]
    fn time_without_supply_does_not_count() {
        let mut reference = Reference::default();
        reference.change(Micros::seconds(0), &numbers(100, Some(50)));
        reference.change(Micros::seconds(10), &numbers(900, None));
        reference.change(Micros::seconds(1000), &numbers(200, Some(60)));
        assert_eq!(reference.median(Micros::seconds(1005)), Some(Price(100)));
    }

    #[test]
    fn what_is_older_than_two_days_is_forgotten() {
        let mut reference = Reference::default();
        let day = Micros::DAY.0 / 1_000_000;
        reference.change(Micros::seconds(0), &numbers(100, Some(50)));
        reference.change(Micros::seconds(2 * day), &numbers(300, Some(50)));
        assert_eq!(reference.median(Micros::seconds(3 * day - 1)), Some(Price(100)));
        assert_eq!(reference.median(Micros::seconds(3 * day + 1)), Some(Price(300)));
        assert_eq!(reference.median(Micros::seconds(6 * day)), Some(Price(300)));
    }

    #[test]
    fn sixty_five_percent_of_the_reference_is_the_median() {
        let mut reference = Reference::default();
        assert_eq!(reference.price(Micros(0)), None);
        reference.change(Micros::seconds(0), &numbers(2_600_000, Some(50)));
        assert_eq!(reference.price(Micros::seconds(10)), Some(Price(4_000_000)));
    }

    #[test]
    fn a_price_that_held_for_no_time_is_forgotten_too() {
        let mut reference = Reference::default();
        for at in [0, 10, 10, 10, 20] {
            reference.change(Micros::seconds(at), &numbers(100, Some(50)));
        }
        reference.change(Micros::seconds(30), &numbers(300, Some(50)));
        assert_eq!(reference.median(Micros(2 * WINDOW.0)), Some(Price(300)));
    }

    #[test]
    fn without_any_counted_time_it_is_the_floor() {
        let mut reference = Reference::default();
        reference.change(Micros::seconds(5), &numbers(100, Some(50)));
        assert_eq!(reference.median(Micros::seconds(5)), Some(Price(50)));
    }
}
