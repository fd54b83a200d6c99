//! One market's books: its units by state, its ceilings, its price over time.

use super::Lie;
use kubebid_core::picture::{Numbers, Supply};
use kubebid_core::units::Micros;
use kubebid_core::{MarketRules, Price};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Market {
    pub(super) rules: MarketRules,
    open: bool,
    pub(super) supply: Supply,
    /// Ceilings of nodes that are not under notice, and of claims.
    pub(super) live: Levels,
    pub(super) claims: Levels,
    /// Nodes that bids looking here still want; those that look in a whole instance type left out.
    pub(super) unmet: u64,
    numbers: Numbers,
    since: Micros,
    /// ∫ max(price, reserve) up to `since`, for the reserves that nodes are billed by.
    integrals: BTreeMap<Price, Integral>,
    pub(super) notices: u64,
}

#[derive(Debug, Default)]
struct Integral {
    users: u32,
    total: u128,
}

impl Market {
    pub fn supply(&self) -> Supply {
        self.supply
    }

    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    pub fn unmet(&self) -> u64 {
        self.unmet
    }

    /// Notices given so far.
    pub fn notices(&self) -> u64 {
        self.notices
    }

    pub(super) fn open(&mut self) -> Result<(), Lie> {
        if self.open {
            return Err(Lie::MarketTwice);
        }
        self.open = true;
        Ok(())
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    pub(super) fn unit_added(&mut self) {
        self.supply.total += 1;
        self.supply.free += 1;
    }

    /// A unit is removed free: its allocation has ended.
    pub(super) fn unit_removed(&mut self) {
        self.supply.total -= 1;
        self.supply.free -= 1;
    }

    pub(super) fn price(&mut self, now: Micros, numbers: Numbers, floor: Option<Price>) -> Result<(), Lie> {
        let lowest = self.live.lowest().into_iter().chain(self.claims.lowest()).min();
        if numbers.lowest_accepted != lowest {
            return Err(Lie::LowestAccepted(lowest));
        }
        if numbers.floor != floor {
            return Err(Lie::Floor(floor));
        }
        if lowest.is_some_and(|lowest| numbers.market_price > lowest) {
            return Err(Lie::PriceAboveLowest);
        }
        self.run(now);
        self.numbers = numbers;
        Ok(())
    }

    /// What all pay but the tenant of the highest losing bid, who may pay less (R8).
    pub(super) fn rate(&self) -> Price {
        self.numbers.lowest_accepted.map_or(self.numbers.highest_losing, |_| self.numbers.market_price)
    }

    fn run(&mut self, now: Micros) {
        let (rate, span) = (self.rate(), now.since(self.since));
        for (reserve, integral) in &mut self.integrals {
            integral.total += rate.max(*reserve).over(span).0;
        }
        self.since = now;
    }

    /// Begins to keep the integral for a reserve, and reads it.
    pub(super) fn enter(&mut self, now: Micros, reserve: Price) -> u128 {
        self.integrals.entry(reserve).or_default().users += 1;
        self.reading(now, reserve)
    }

    pub(super) fn reading(&self, now: Micros, reserve: Price) -> u128 {
        self.integrals[&reserve].total + self.rate().max(reserve).over(now.since(self.since)).0
    }

    pub(super) fn leave(&mut self, reserve: Price) {
        let integral = self.integrals.get_mut(&reserve).expect("entered");
        integral.users -= 1;
        if integral.users == 0 {
            self.integrals.remove(&reserve);
        }
    }
}

/// How many of something there are at each price.
#[derive(Debug, Default)]
pub(super) struct Levels(BTreeMap<Price, u32>);

impl Levels {
    pub(super) fn add(&mut self, price: Price) {
        *self.0.entry(price).or_default() += 1;
    }

    pub(super) fn remove(&mut self, price: Price) {
        if let Some(count) = self.0.get_mut(&price) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&price);
            }
        }
    }

    pub(super) fn shift(&mut self, from: Price, to: Price) {
        self.remove(from);
        self.add(to);
    }

    pub(super) fn lowest(&self) -> Option<Price> {
        self.0.first_key_value().map(|(price, _)| *price)
    }
}
