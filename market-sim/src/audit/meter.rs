//! The auditor's meters of what nodes cost over time (R8, R15), from prices that it computes itself.
//!
//! A live node costs `max(p(t), reserve)`, where `p(t)` is the price of its tenant. Under a provider's notice it costs
//! at most its frozen price, and `min(c, max(p, r)) = max(p, r) − max(p, c) + c` for `r ≤ c`. So these bills are sums of
//! integrals of `max(p, x)`, which the meter keeps for each `x` in use, and of what one tenant pays less than the others.
//! After it was outbid a node costs its frozen price.

use kubebid_core::Price;
use kubebid_core::units::{AccountId, Micros};
use std::collections::BTreeMap;

/// The prices in force in a market, as last settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tariff {
    pub(super) price: Price,
    /// The tenant of the highest losing bid, and its price: its own bids do not count for it (R8).
    pub(super) top: Option<(AccountId, Price)>,
}

impl Tariff {
    pub(super) fn price_for(&self, tenant: AccountId) -> Price {
        self.top.filter(|(top, _)| *top == tenant).map_or(self.price, |(_, own)| own)
    }
}

/// The terms of one node that decide its price together with the tariff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) tenant: AccountId,
    pub(super) rate: Rate,
}

/// The price of a node (R8). A reserve is the one that counts for the node (R11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rate {
    /// A live node: the price of its tenant, and its reserve at least.
    Live { reserve: Price },
    /// The same under a provider's notice, at most the frozen price, which is not below the reserve.
    Withdrawn { reserve: Price, frozen: Price },
    /// Outbid: its frozen price.
    Outbid { frozen: Price },
}

#[derive(Debug, Default)]
pub(super) struct Meter {
    tariff: Tariff,
    since: Micros,
    /// ∫ max(price, x), by x.
    integrals: BTreeMap<Price, Integral>,
    /// ∫ max(price, x) − max(own price, x) over the time in which a tenant had a price of its own, by tenant and x.
    discounts: BTreeMap<(AccountId, Price), Integral>,
}

/// Kept while a node uses it; only differences of two readings mean something.
#[derive(Debug, Default)]
struct Integral {
    users: u32,
    total: i128,
}

fn over(price: Price, span: Micros) -> i128 {
    i128::from(price.0) * i128::from(span.0)
}

impl Meter {
    pub(super) fn tariff(&self) -> Tariff {
        self.tariff
    }

    /// Puts another tariff into force.
    pub(super) fn set(&mut self, now: Micros, tariff: Tariff) {
        if tariff == self.tariff {
            return;
        }
        let (before, span) = (self.tariff, now.since(self.since));
        for (x, integral) in &mut self.integrals {
            integral.total += over(before.price.max(*x), span);
        }
        if let Some((top, own)) = before.top {
            for ((_, x), discount) in self.discounts.range_mut((top, Price(0))..=(top, Price(u64::MAX))) {
                discount.total += over(before.price.max(*x), span) - over(own.max(*x), span);
            }
        }
        (self.tariff, self.since) = (tariff, now);
    }

    /// Begins to keep what readings of these terms need.
    pub(super) fn enter(&mut self, now: Micros, terms: Terms) {
        let span = now.since(self.since);
        let Tariff { price, top } = self.tariff;
        for x in terms.thresholds() {
            // As if it had been kept since the tariff is in force: readings add that time.
            let integral = self
                .integrals
                .entry(x)
                .or_insert_with(|| Integral { users: 0, total: -over(price.max(x), span) });
            integral.users += 1;
            let own = top.filter(|(top, _)| *top == terms.tenant).map_or(price, |(_, own)| own);
            let discount = over(price.max(x), span) - over(own.max(x), span);
            let kept =
                self.discounts.entry((terms.tenant, x)).or_insert(Integral { users: 0, total: -discount });
            kept.users += 1;
        }
    }

    pub(super) fn leave(&mut self, terms: Terms) {
        for x in terms.thresholds() {
            leave(&mut self.integrals, x);
            leave(&mut self.discounts, (terms.tenant, x));
        }
    }

    /// Returns what a node with these terms has cost since a moment that all readings of the terms share, as long
    /// as a node stays entered.
    pub(super) fn reading(&self, now: Micros, terms: Terms) -> i128 {
        let at_least = |x| self.integral(now, terms.tenant, x);
        match terms.rate {
            Rate::Live { reserve } => at_least(reserve),
            Rate::Withdrawn { reserve, frozen } => at_least(reserve) - at_least(frozen) + over(frozen, now),
            Rate::Outbid { frozen } => over(frozen, now),
        }
    }

    /// Returns ∫ max(price of the tenant, x).
    fn integral(&self, now: Micros, tenant: AccountId, x: Price) -> i128 {
        let own = self.tariff.price_for(tenant);
        self.integrals[&x].total - self.discounts[&(tenant, x)].total
            + over(own.max(x), now.since(self.since))
    }
}

fn leave<K: Ord>(integrals: &mut BTreeMap<K, Integral>, key: K) {
    let integral = integrals.get_mut(&key).expect("entered");
    integral.users -= 1;
    if integral.users == 0 {
        integrals.remove(&key);
    }
}

impl Terms {
    /// Returns the price of a node with these terms.
    pub(super) fn price(self, tariff: Tariff) -> Price {
        let price = tariff.price_for(self.tenant);
        match self.rate {
            Rate::Live { reserve } => price.max(reserve),
            Rate::Withdrawn { reserve, frozen } => price.max(reserve).min(frozen),
            Rate::Outbid { frozen } => frozen,
        }
    }

    fn thresholds(self) -> impl Iterator<Item = Price> {
        let thresholds = match self.rate {
            Rate::Live { reserve } => [Some(reserve), None],
            Rate::Withdrawn { reserve, frozen } => [Some(reserve), Some(frozen)],
            Rate::Outbid { .. } => [None, None],
        };
        thresholds.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn readings_are_the_sum_over_every_microsecond() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let mut below = |end: u64| rng.random_range(0..end);
        let mut meter = Meter::default();
        let mut nodes: Vec<(Terms, i128, i128)> = Vec::new();
        for now in 0..3000 {
            let now = Micros(now);
            if below(5) == 0 {
                let price = Price(below(12));
                let top = (below(2) == 0).then(|| (AccountId(below(3) as u32), Price(below(price.0 + 1))));
                meter.set(now, Tariff { price, top });
            }
            if below(7) == 0 {
                let reserve = Price(below(10));
                let frozen = Price(reserve.0 + below(4));
                let rate = match below(4) {
                    0 => Rate::Outbid { frozen },
                    1 => Rate::Withdrawn { reserve, frozen },
                    _ => Rate::Live { reserve },
                };
                let terms = Terms { tenant: AccountId(below(3) as u32), rate };
                meter.enter(now, terms);
                nodes.push((terms, meter.reading(now, terms), 0));
            }
            if below(9) == 0 && !nodes.is_empty() {
                let (terms, ..) = nodes.remove(below(nodes.len() as u64) as usize);
                meter.leave(terms);
            }
            for (terms, mark, sum) in &mut nodes {
                assert_eq!(meter.reading(now, *terms) - *mark, *sum, "{terms:?} at {now}");
                *sum += i128::from(terms.price(meter.tariff()).0);
            }
        }
    }
}
