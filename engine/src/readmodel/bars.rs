//! Price bars: open, high, low, close, and the time-weighted mean.

use super::rows::PriceBar;
use kubebid_core::money::{Bill, Price};
use kubebid_core::units::Micros;

/// Builds bars from price changes in order.
#[derive(Debug)]
pub(crate) struct Bars {
    length: Micros,
    until: Micros,
    limit: usize,
    done: Vec<PriceBar>,
    /// The bar that is being built, and the time from which it has a price.
    bar: PriceBar,
    since: Micros,
    last: Micros,
    sum: Bill,
}

impl Bars {
    /// Starts with the bar that contains `from` and ends at `until`. `price` is in force when that
    /// bar begins. Without one, the market opens in that bar.
    pub(crate) fn new(from: Micros, until: Micros, length: Micros, limit: u32, price: Option<Price>) -> Bars {
        let start = Micros(from.0 / length.0 * length.0);
        let bar = flat(start, price.unwrap_or_default());
        Bars {
            length,
            until,
            limit: limit as usize,
            done: Vec::new(),
            bar,
            since: from,
            last: from,
            sum: Bill(0),
        }
    }

    /// Sets the price from `at` on.
    pub(crate) fn change(&mut self, at: Micros, price: Price) {
        self.run_to(at);
        if self.is_full() || at >= self.until {
            return;
        }
        self.take(at);
        let bar = &mut self.bar;
        // A price that was replaced at the instant at which the bar begins was never the price of
        // the bar.
        if at == self.since {
            *bar = PriceBar { changes: bar.changes, ..flat(bar.start, price) };
        }
        bar.high = bar.high.max(price);
        bar.low = bar.low.min(price);
        bar.close = price;
        bar.changes += 1;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.done.len() >= self.limit
    }

    /// Returns true if at least one bar is complete.
    pub(crate) fn has_any(&self) -> bool {
        !self.done.is_empty()
    }

    /// Returns the bars that are complete.
    pub(crate) fn complete(self) -> Vec<PriceBar> {
        self.done
    }

    pub(crate) fn finish(mut self) -> Vec<PriceBar> {
        self.run_to(self.until);
        if !self.is_full() && self.bar.start < self.until {
            self.close_at(self.until);
        }
        self.done
    }

    /// Finishes the bars that end up to `at`.
    fn run_to(&mut self, at: Micros) {
        while !self.is_full() && self.bar.start.after(self.length) <= at.min(self.until) {
            let end = self.bar.start.after(self.length);
            self.close_at(end);
            self.bar = flat(end, self.bar.close);
            (self.since, self.last, self.sum) = (end, end, Bill(0));
        }
    }

    fn close_at(&mut self, end: Micros) {
        self.take(end);
        let span = end.since(self.since);
        let mean =
            self.sum.0.checked_div(span.0.into()).map(|mean| u64::try_from(mean).expect("a mean of prices"));
        self.done.push(PriceBar { mean: mean.map_or(self.bar.close, Price), ..self.bar });
    }

    /// Adds the time up to `at` with the last price.
    fn take(&mut self, at: Micros) {
        self.sum += self.bar.close.over(at.since(self.last));
        self.last = at;
    }
}

fn flat(start: Micros, price: Price) -> PriceBar {
    PriceBar { start, open: price, high: price, low: price, close: price, mean: price, changes: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(mut bars: Bars, changes: &[(u64, u64)]) -> Vec<(u64, [u64; 5], u32)> {
        for (at, price) in changes {
            bars.change(Micros(*at), Price(*price));
        }
        let show = |bar: PriceBar| {
            let prices = [bar.open, bar.high, bar.low, bar.close, bar.mean].map(|price| price.0);
            (bar.start.0, prices, bar.changes)
        };
        bars.finish().into_iter().map(show).collect()
    }

    #[test]
    fn a_bar_begins_with_the_price_in_force_and_carries_it_on() {
        let new = Bars::new(Micros(100), Micros(400), Micros(100), 10, Some(Price(10)));
        let made = bars(new, &[(150, 30), (175, 20)]);
        assert_eq!(
            made,
            [(100, [10, 30, 10, 20, 17], 2), (200, [20, 20, 20, 20, 20], 0), (300, [20, 20, 20, 20, 20], 0)]
        );
    }

    #[test]
    fn the_first_bar_counts_from_the_opening_and_the_last_to_the_end() {
        let made = bars(Bars::new(Micros(150), Micros(230), Micros(100), 10, None), &[(150, 10), (210, 40)]);
        assert_eq!(made, [(100, [10, 10, 10, 10, 10], 1), (200, [10, 40, 10, 40, 30], 1)]);
    }

    #[test]
    fn a_price_that_held_for_no_time_at_the_beginning_is_not_of_the_bar() {
        let new = Bars::new(Micros(100), Micros(200), Micros(100), 10, Some(Price(10)));
        assert_eq!(bars(new, &[(100, 90), (100, 20), (150, 20)]), [(100, [20, 20, 20, 20, 20], 3)]);
    }

    #[test]
    fn no_more_bars_than_asked_for() {
        let new = Bars::new(Micros(0), Micros(1000), Micros(100), 2, Some(Price(10)));
        assert_eq!(bars(new, &[(50, 20), (250, 90)]).len(), 2);
    }
}
