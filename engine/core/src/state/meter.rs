//! Meters of what nodes cost over time (R15), kept so that a price change touches no node.
//!
//! A live node is billed `max(p(t), reserve)` per node-hour, by the microsecond; under notice the price has a cap (R8). A
//! *threshold* `x` is the reserve of a billed node, or its cap. For each threshold in use the meter keeps the integral of
//! `max(p, x)`. A bill is a difference of two readings, since `min(c, max(p, r)) = max(p, r) - max(p, c) + c` for `r <= c`.
//! A threshold below the price grows with the line
//! ∫p, and one above it grows by itself, so a price change concerns only the thresholds that the price
//! crosses. The tenant with the highest losing bid pays another price, because no tenant bids against
//! itself (R8). What that saves is kept separately, for the thresholds of that tenant.

use crate::collections::id_map::Table;
use crate::types::money::{Bill, Price};
use crate::types::units::{AccountId, Micros};
use std::collections::BTreeMap;

/// The prices in force in a market, as last settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tariff {
    /// The price that tenants pay per node-hour, before their own reserves and ceilings.
    pub(crate) price: Price,
    /// The tenant that pays another price, never a higher one, because its own bid is the highest
    /// losing one.
    pub(crate) top: Option<(AccountId, Price)>,
}

impl Tariff {
    pub(crate) fn price_for(&self, tenant: AccountId) -> Price {
        match self.top {
            Some((top, price)) if top == tenant => price,
            Some(_) | None => self.price,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Meter {
    tariff: Tariff,
    /// The time at which the tariff came into force.
    since: Micros,
    /// ∫p up to `since`.
    line: u128,
    thresholds: BTreeMap<Price, Threshold>,
    /// The savings of the top tenant, by tenant and threshold.
    savings: Table<AccountId, Savings>,
}

#[derive(Debug)]
struct Threshold {
    users: u32,
    /// The integral is this number plus the line, or plus `x × time` if `x` is above the price.
    base: i128,
}

/// The savings of one tenant, by threshold.
#[derive(Debug, Default)]
struct Savings(Vec<(Price, Saving)>);

#[derive(Clone, Copy, Debug, Default)]
struct Saving {
    users: u32,
    total: u128,
}

impl Savings {
    fn enter(&mut self, x: Price) {
        let at = self.find(x).unwrap_or_else(|at| {
            self.0.insert(at, (x, Saving::default()));
            at
        });
        self.0[at].1.users += 1;
    }

    fn leave(&mut self, x: Price) {
        let at = self.find(x).expect("entered");
        self.0[at].1.users -= 1;
        if self.0[at].1.users == 0 {
            self.0.remove(at);
        }
    }

    fn total(&self, x: Price) -> u128 {
        self.find(x).map_or(0, |at| self.0[at].1.total)
    }

    fn find(&self, x: Price) -> Result<usize, usize> {
        self.0.binary_search_by_key(&x, |(x, _)| *x)
    }
}

/// The values that determine how the price of a node follows the tariff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) tenant: AccountId,
    pub(crate) reserve: Price,
    /// The most that the node pays under notice, at least the reserve. Equal to the reserve if the price is fixed.
    pub(crate) cap: Option<Price>,
}

fn signed(value: u128) -> i128 {
    i128::try_from(value).expect("a thousand years at the highest price fit")
}

impl Meter {
    pub(crate) fn tariff(&self) -> Tariff {
        self.tariff
    }

    fn line_at(&self, now: Micros) -> u128 {
        self.line + self.tariff.price.over(now.since(self.since)).0
    }

    /// Returns how fast a threshold grows at the price in force.
    fn growth(&self, x: Price, now: Micros) -> i128 {
        if x > self.tariff.price { signed(x.over(now).0) } else { signed(self.line_at(now)) }
    }

    /// Puts another tariff into force.
    pub(crate) fn set(&mut self, now: Micros, tariff: Tariff) {
        if tariff == self.tariff {
            return;
        }
        if let Some((top, _)) = self.tariff.top {
            let (tariff, span) = (self.tariff, now.since(self.since));
            for (x, saving) in self.savings.get_mut(&top).into_iter().flat_map(|savings| &mut savings.0) {
                saving.total += saved(tariff, *x, span);
            }
        }
        let line = self.line_at(now);
        let (low, high) = (self.tariff.price.min(tariff.price), self.tariff.price.max(tariff.price));
        let falls = tariff.price < self.tariff.price;
        if low < high {
            let crossed = (std::ops::Bound::Excluded(low), std::ops::Bound::Included(high));
            for (x, threshold) in self.thresholds.range_mut(crossed) {
                let alone = signed(x.over(now).0) - signed(line);
                threshold.base += if falls { -alone } else { alone };
            }
        }
        (self.line, self.since, self.tariff) = (line, now, tariff);
    }

    /// Starts to keep what readings of these terms need.
    pub(crate) fn enter(&mut self, now: Micros, terms: Terms) {
        for x in terms.thresholds() {
            let growth = self.growth(x, now);
            self.thresholds.entry(x).or_insert(Threshold { users: 0, base: -growth }).users += 1;
            self.savings.entry(terms.tenant).or_default().enter(x);
        }
    }

    pub(crate) fn leave(&mut self, terms: Terms) {
        for x in terms.thresholds() {
            let threshold = self.thresholds.get_mut(&x).expect("entered");
            threshold.users -= 1;
            if threshold.users == 0 {
                self.thresholds.remove(&x);
            }
            self.savings.get_mut(&terms.tenant).expect("entered").leave(x);
        }
    }

    /// Returns the cost of a node with these terms since a fixed moment. All readings of the same
    /// terms have the same moment, as long as a node with them is entered.
    pub(crate) fn reading(&self, now: Micros, terms: Terms) -> i128 {
        if let Some(price) = terms.fixed() {
            return signed(price.over(now).0);
        }
        let floor = self.integral(now, terms.tenant, terms.reserve);
        match terms.cap {
            Some(cap) => floor - self.integral(now, terms.tenant, cap) + signed(cap.over(now).0),
            None => floor,
        }
    }

    fn integral(&self, now: Micros, tenant: AccountId, x: Price) -> i128 {
        let mut saving = self.savings[&tenant].total(x);
        if self.tariff.top.is_some_and(|(top, _)| top == tenant) {
            saving += saved(self.tariff, x, now.since(self.since));
        }
        self.thresholds[&x].base + self.growth(x, now) - signed(saving)
    }
}

impl Terms {
    /// Returns the price, if it does not follow the tariff.
    fn fixed(self) -> Option<Price> {
        self.cap.filter(|cap| *cap == self.reserve)
    }

    fn thresholds(self) -> impl Iterator<Item = Price> {
        let both = [Some(self.reserve), self.cap];
        both.into_iter().flatten().filter(move |_| self.fixed().is_none())
    }
}

/// Returns what the top tenant saves at threshold `x` over `span`.
fn saved(tariff: Tariff, x: Price, span: Micros) -> u128 {
    let Some((_, price)) = tariff.top else { return 0 };
    let difference = Bill(tariff.price.max(x).over(span).0 - price.max(x).over(span).0);
    difference.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the meter with a sum over every microsecond, for all terms at once.
    #[test]
    fn readings_equal_the_naive_integral() {
        let mut random = crate::collections::random::below(7);
        let mut meter = Meter::default();
        let mut nodes: Vec<(Terms, i128, i128)> = Vec::new();
        for now in 0..4000u64 {
            let now = Micros(now);
            if random(5) == 0 {
                let price = Price(random(12));
                let top = (random(2) == 0).then(|| (AccountId(random(3) as u32), Price(random(price.0 + 1))));
                meter.set(now, Tariff { price, top });
            }
            if random(7) == 0 {
                let reserve = Price(random(10));
                let cap = (random(2) == 0).then(|| Price(reserve.0 + random(4)));
                let terms = Terms { tenant: AccountId(random(3) as u32), reserve, cap };
                meter.enter(now, terms);
                nodes.push((terms, meter.reading(now, terms), 0));
            }
            if random(9) == 0 && !nodes.is_empty() {
                let (terms, ..) = nodes.remove(random(nodes.len() as u64) as usize);
                meter.leave(terms);
            }
            for (terms, mark, naive) in &nodes {
                assert_eq!(meter.reading(now, *terms) - mark, *naive, "{terms:?} at {now}");
            }
            for (terms, _, naive) in &mut nodes {
                let price = meter.tariff().price_for(terms.tenant).max(terms.reserve);
                *naive += i128::from(terms.cap.map_or(price, |cap| cap.min(price)).0);
            }
        }
    }
}
