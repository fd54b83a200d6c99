//! Prices: what each tenant pays, and the five numbers of a market (R8, R9).

use crate::state::{Allocation, Bid, Model};
use kubebid_core::event::{Fact, NoticeReason};
use kubebid_core::market_rules::Pricing;
use kubebid_core::numbers::{Numbers, Supply};
use kubebid_core::units::{AccountId, AllocationId, BidId, MarketId, UnitId};
use kubebid_core::{MarketState, Price};

impl Model {
    fn nodes_in(&self, market: MarketId) -> impl Iterator<Item = (&AllocationId, &Allocation)> {
        self.allocations.iter().filter(move |(_, a)| a.unit.market == market)
    }

    /// Returns the ceiling and the counting reserve of each live allocation and each claim (R8).
    fn accepted(&self, market: MarketId) -> impl Iterator<Item = (Price, Price)> {
        self.nodes_in(market).filter_map(|(_, a)| match (&a.notice, a.claim()) {
            (None, _) => Some((self.bids[&a.bid].ceiling, a.reserve)),
            (Some(_), Some(claim)) => Some((self.bids[&claim.bid].ceiling, self.offer_reserve(a.unit))),
            (Some(_), None) => None,
        })
    }

    /// Returns `L`.
    pub(crate) fn lowest_accepted(&self, market: MarketId) -> Option<Price> {
        self.accepted(market).map(|(ceiling, _)| ceiling).min()
    }

    /// Returns `R`: the highest of the reserves that are at most `L`.
    fn highest_reserve(&self, market: MarketId, lowest: Price) -> Price {
        let reserves = self.accepted(market).map(|(_, reserve)| reserve);
        reserves.filter(|reserve| *reserve <= lowest).max().unwrap_or(Price::ZERO)
    }

    /// Returns `H`; with `but`, `H(t)`, which does not count that tenant's bids.
    pub(crate) fn highest_losing(&self, market: MarketId, but: Option<AccountId>) -> Price {
        let losing = self.bids.iter().filter(|(id, bid)| {
            Some(bid.tenant) != but
                && self.unmet(**id) > 0
                && !self.is_waiting_gang(**id)
                && self.unmet(**id) > self.under_providers_notice(**id)
                && self.eligible_markets(**id).contains(&market)
                && self.takes_part(**id, market)
        });
        losing.map(|(_, bid)| bid.ceiling).max().unwrap_or(Price::ZERO)
    }

    /// Returns the number of a bid's nodes under notice for which the provider is the reason (R8).
    fn under_providers_notice(&self, bid: BidId) -> u32 {
        let by_provider = self.notices(bid).filter(|(_, notice)| match notice.reason {
            NoticeReason::CapacityWithdrawn | NoticeReason::ReserveRaised => true,
            NoticeReason::Outbid | NoticeReason::Funds => false,
        });
        by_provider.count() as u32
    }

    /// Returns `min(L, max(R, H))`, or what `LowestAccepted` makes of it. Without `L` returns `H`.
    fn price_over(&self, market: MarketId, highest_losing: Price) -> Price {
        let Some(lowest) = self.lowest_accepted(market) else { return highest_losing };
        let mut free = self.free_units().filter(|unit| unit.market == market);
        let sold_out = !free.any(|unit| self.offer_reserve(unit) <= lowest);
        match self.rules(market).pricing {
            Pricing::LowestAccepted if sold_out => lowest,
            Pricing::LowestAccepted | Pricing::HighestLosing => {
                lowest.min(self.highest_reserve(market, lowest).max(highest_losing))
            }
        }
    }

    /// Returns `p(t)`.
    fn tenant_price(&self, market: MarketId, tenant: AccountId) -> Price {
        self.price_over(market, self.highest_losing(market, Some(tenant)))
    }

    /// Returns what a node costs per hour. Under notice the frozen price counts: with `OUTBID` it is the price,
    /// otherwise the highest price.
    pub(crate) fn billed(&self, a: &Allocation) -> Price {
        let tenant = self.bids[&a.bid].tenant;
        let price = self.tenant_price(a.unit.market, tenant).max(a.reserve);
        match &a.notice {
            None => price,
            Some(notice) => match notice.reason {
                NoticeReason::Outbid | NoticeReason::Funds => notice.frozen_price,
                NoticeReason::CapacityWithdrawn | NoticeReason::ReserveRaised => {
                    notice.frozen_price.min(price)
                }
            },
        }
    }

    /// Returns what a bid would pay for a unit on which it has a claim (R15).
    pub(crate) fn would_pay(&self, bid: &Bid, unit: UnitId) -> Price {
        let price = self.tenant_price(unit.market, bid.tenant);
        bid.ceiling.min(price.max(self.offer_reserve(unit)))
    }

    /// Stores the prices that are in force until the next settling.
    pub(crate) fn set_prices(&mut self) {
        let prices: Vec<(AllocationId, Price)> =
            self.allocations.iter().map(|(id, a)| (*id, self.billed(a))).collect();
        for (id, billed) in prices {
            self.allocations.get_mut(&id).expect("just listed").billed = billed;
        }
    }

    fn market_price(&self, market: MarketId) -> Price {
        let highest_losing = self.highest_losing(market, None);
        if self.lowest_accepted(market).is_some() {
            return self.price_over(market, highest_losing);
        }
        let free = self.free_units().filter(|unit| unit.market == market);
        let standing = self.nodes_in(market).filter(|(id, _)| self.stands(**id)).map(|(_, a)| a.unit);
        free.chain(standing).map(|unit| self.offer_reserve(unit)).min().unwrap_or(highest_losing)
    }

    fn floor(&self, market: MarketId) -> Option<Price> {
        let here = self.units.iter().filter(|(id, _)| id.market == market);
        let to_sell = here.filter(|(_, unit)| !unit.leaving && !unit.resting);
        to_sell.map(|(id, _)| self.offer_reserve(*id)).min()
    }

    /// Returns the lowest ceiling with which a new tenant would get this many nodes now, found by
    /// trying (R9). None in a market that takes no new bids (R18).
    pub(crate) fn price_of_entry(&self, market: MarketId, nodes: u32) -> Option<Price> {
        let rules = self.rules(market);
        let is_open = self.market_state(market) == MarketState::Open;
        if !is_open || nodes == 0 || u64::from(nodes) > rules.bid_nodes_max {
            return None;
        }
        let book = self.book(&[market]);
        let mut ceilings: Vec<Price> =
            book.thresholds().into_iter().filter_map(|price| price.round_up(rules.tick)).collect();
        ceilings.sort();
        ceilings.dedup();
        // A unit may cost nothing, but no bid has a ceiling of 0.
        let ceilings = ceilings.into_iter().map(|ceiling| ceiling.max(Price(rules.tick)));
        let mut possible = ceilings.filter(|ceiling| ceiling.0 <= rules.ceiling_max);
        possible.find(|ceiling| book.all_or_nothing(*ceiling, nodes).is_some())
    }

    pub(crate) fn numbers(&self, market: MarketId) -> Numbers {
        Numbers {
            market_price: self.market_price(market),
            entry_price: self.price_of_entry(market, 1),
            floor: self.floor(market),
            lowest_accepted: self.lowest_accepted(market),
            highest_losing: self.highest_losing(market, None),
        }
    }

    pub(crate) fn supply(&self, market: MarketId) -> Supply {
        let count = |what: &dyn Fn(&Allocation) -> bool| {
            self.nodes_in(market).filter(|(_, a)| what(a)).count() as u64
        };
        Supply {
            total: self.units.keys().filter(|unit| unit.market == market).count() as u64,
            free: self.free_units().filter(|unit| unit.market == market).count() as u64,
            allocated: count(&|a| a.notice.is_none()),
            notice: count(&|a| a.notice.is_some()),
            claimed: count(&|a| a.claim().is_some()),
            resting: self.resting_units(market).count() as u64,
        }
    }

    /// Writes one `PriceChanged` for each market of which a number has changed (§3, step 6).
    pub(crate) fn announce_prices(&mut self) {
        for market in self.market_ids() {
            let numbers = self.numbers(market);
            let announced = &mut self.markets[market.0 as usize].announced;
            if announced.replace(numbers) != Some(numbers) {
                self.emit(Fact::PriceChanged { market, numbers });
            }
        }
    }
}
