//! The price rule (R8) and the five numbers (R9): the only place that knows them.

use crate::event::Fact;
use crate::exchange::{Exchange, Market};
use crate::state::Allocation;
use crate::state::meter::{Tariff, Terms};
use crate::types::market_rules::{MarketRules, Pricing};
use crate::types::market_state::MarketState;
use crate::types::money::Price;
use crate::types::numbers::{Numbers, Supply};
use crate::types::units::{MarketId, UnitId};

impl MarketRules {
    /// Returns Δ of R4: how much more than this ceiling a challenger must offer. It is rounded up, so
    /// the holder gains.
    pub fn increment(&self, ceiling: Price) -> u64 {
        let share = match ceiling.0.checked_mul(self.increment_bps) {
            Some(share) => share.div_ceil(10_000),
            None => {
                let share = (u128::from(ceiling.0) * u128::from(self.increment_bps)).div_ceil(10_000);
                u64::try_from(share).unwrap_or(u64::MAX)
            }
        };
        self.tick.max(share)
    }

    /// Returns the lowest ceiling that may displace this one (R4), without regard to the unit's
    /// reserve.
    pub fn needed(&self, ceiling: Price) -> Price {
        Price(ceiling.0.saturating_add(self.increment(ceiling)))
    }
}

impl Exchange {
    /// Returns the ceiling needed to displace a bid with `ceiling` from this unit (R4).
    pub(crate) fn needed(&self, unit: UnitId, ceiling: Price) -> Price {
        let market = self.market(unit.market);
        market.rules.needed(ceiling).max(market.offers[&unit.provider].reserve)
    }

    /// Returns the price in force for a node, with the tariff as last settled (R8).
    pub(crate) fn billed(&self, allocation: &Allocation) -> Price {
        let Terms { tenant, reserve, cap } = allocation.terms();
        let price = self.market(allocation.unit.market).meter.tariff().price_for(tenant).max(reserve);
        cap.map_or(price, |cap| cap.min(price))
    }

    /// Announces the numbers of a market that changed, and puts its prices into force (§3, step 6).
    pub(crate) fn publish_prices(&mut self, id: MarketId) {
        let numbers = self.numbers(id);
        let now = self.now;
        self.changed.insert(id);
        let market = self.market_mut(id);
        market.meter.set(now, market.tariff());
        if market.numbers != Some(numbers) {
            market.numbers = Some(numbers);
            self.emit(Fact::PriceChanged { market: id, numbers });
        }
    }

    pub(crate) fn numbers(&self, id: MarketId) -> Numbers {
        let market = self.market(id);
        Numbers {
            market_price: market.market_price(),
            entry_price: self.entry_price_of(id, 1),
            floor: market.book.free.floor(),
            lowest_accepted: market.book.held.lowest(),
            highest_losing: market.highest_losing(),
        }
    }

    /// Returns the lowest ceiling with which a new tenant's bid would get all of `nodes` nodes now
    /// (R9): that of the `nodes`-th cheapest among free units, standing notices and displacements. None if the market
    /// takes no new bids (R18).
    pub(crate) fn entry_price_of(&self, id: MarketId, nodes: u32) -> Option<Price> {
        let market = self.market(id);
        if market.state != MarketState::Open || nodes == 0 || u64::from(nodes) > market.rules.bid_nodes_max {
            return None;
        }
        let needed = self.needed_for(id, nodes)?;
        let entry = needed.max(Price(1)).round_up(market.rules.tick)?;
        (entry.0 <= market.rules.ceiling_max).then_some(entry)
    }
}

impl Allocation {
    /// Returns what determines the price of the node (R8). A live node follows the tariff; it costs at most L, which is at
    /// most its ceiling. Under notice an outbid node costs the frozen price, and any other at most that.
    pub(crate) fn terms(&self) -> Terms {
        let Allocation { tenant, reserve, notice, .. } = *self;
        let Some(notice) = notice else { return Terms { tenant, reserve, cap: None } };
        let least = if notice.is_of_provider() { reserve.min(notice.frozen) } else { notice.frozen };
        Terms { tenant, reserve: least, cap: Some(notice.frozen) }
    }
}

impl Market {
    fn highest_losing(&self) -> Price {
        self.book.demand.losing().top.map_or(Price::ZERO, |(_, ceiling)| ceiling)
    }

    /// Returns the price of R8, `min(L, max(R, H))`, or L if `pricing` says so. L is the lowest ceiling among live
    /// allocations and claims, R the highest reserve of their units that is at most L, and H the highest ceiling among
    /// the losing bids (`highest_losing`). Returns H if nothing is held.
    fn price_with(&self, highest_losing: Price) -> Price {
        let held = &self.book.held;
        let Some(lowest) = held.lowest() else { return highest_losing };
        match self.rules.pricing {
            Pricing::LowestAccepted
                if self.book.free.first().is_none_or(|(reserve, ..)| reserve > lowest) =>
            {
                lowest
            }
            Pricing::LowestAccepted | Pricing::HighestLosing => {
                lowest.min(held.highest_reserve(lowest).unwrap_or(Price::ZERO).max(highest_losing))
            }
        }
    }

    /// Returns what each tenant pays: all count the highest losing bid, except the tenant that made it (R8).
    pub(crate) fn tariff(&self) -> Tariff {
        let losing = self.book.demand.losing();
        let price = self.price_with(self.highest_losing());
        let top = losing.top.map(|(tenant, _)| (tenant, self.price_with(losing.of_others)));
        Tariff { price, top: top.filter(|(_, own)| *own != price) }
    }

    fn market_price(&self) -> Price {
        let losing = self.highest_losing();
        if self.book.held.lowest().is_some() {
            return self.price_with(losing);
        }
        let free = self.book.free.first().map(|(reserve, ..)| reserve);
        let standing = self.book.standing.first().map(|(reserve, ..)| reserve);
        free.into_iter().chain(standing).min().unwrap_or(losing)
    }

    pub(crate) fn supply(&self) -> Supply {
        Supply {
            total: self.units,
            free: self.book.free.count,
            allocated: self.book.held.live,
            notice: self.book.notices,
            claimed: self.book.held.claimed(),
            resting: self.resting,
        }
    }
}
