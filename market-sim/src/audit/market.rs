//! The auditor's books of one market: units by state, ceilings and reserves, losing bids, prices (R8).

use super::Violation;
use super::meter::{Meter, Tariff};
use foldhash::HashMap;
use kubebid_core::event::Scope;
use kubebid_core::market_rules::Pricing;
use kubebid_core::numbers::{Numbers, Supply};
use kubebid_core::units::{AccountId, BidId, Seq};
use kubebid_core::{MarketRules, MarketState, Price};
use std::collections::{BTreeMap, BTreeSet};

/// The books of one market.
#[derive(Debug, Default)]
pub struct Market {
    pub(super) rules: MarketRules,
    /// The rules that an event is about to announce.
    pub(super) announced: Option<MarketRules>,
    open: bool,
    state: MarketState,
    /// Something happened here since prices were last worked out.
    pub(super) touched: bool,
    pub(super) supply: Supply,
    /// Ceilings of nodes that are not under notice, and of claims.
    pub(super) live: Levels,
    pub(super) claims: Levels,
    /// Reserves of the same: of a live node the one that counts for it, of a claim that of its unit's offer.
    pub(super) reserves: Levels,
    pub(super) losing: Losing,
    /// Nodes that bids looking here still want; those that look in a whole instance type left out.
    pub(super) unmet: u64,
    numbers: Numbers,
    pub(super) meter: Meter,
    pub(super) notices: u64,
}

/// The bids that want a node here and do not have it.
#[derive(Debug, Default)]
pub(super) struct Losing {
    by_tenant: HashMap<AccountId, Levels>,
    /// The highest ceiling of each tenant.
    tops: BTreeSet<(Price, AccountId)>,
}

/// The inputs of a market's price that are not in its own books.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered<'a> {
    /// The lowest reserve of free units.
    pub(super) free: Option<Price>,
    /// Accounts that have a unit here: their bids do not count (R17).
    pub(super) sellers: &'a BTreeSet<AccountId>,
}

impl Losing {
    /// Changes the ceiling with which a bid of this tenant counts; `None` if it does not count.
    pub(super) fn change(&mut self, tenant: AccountId, before: Option<Price>, after: Option<Price>) {
        let levels = self.by_tenant.entry(tenant).or_default();
        let highest = levels.highest();
        before.into_iter().for_each(|ceiling| levels.remove(ceiling));
        after.into_iter().for_each(|ceiling| levels.add(ceiling));
        let now_highest = levels.highest();
        if highest != now_highest {
            highest.map(|ceiling| self.tops.remove(&(ceiling, tenant)));
            now_highest.map(|ceiling| self.tops.insert((ceiling, tenant)));
        }
        if now_highest.is_none() {
            self.by_tenant.remove(&tenant);
        }
    }

    /// Returns the highest ceiling with its tenant, and the highest one of all other tenants: H and H(t).
    fn highest(&self, sellers: &BTreeSet<AccountId>) -> (Option<(Price, AccountId)>, Price) {
        let mut tops = self.tops.iter().rev().filter(|(_, tenant)| !sellers.contains(tenant));
        (tops.next().copied(), tops.next().map_or(Price::ZERO, |(ceiling, _)| *ceiling))
    }
}

impl Market {
    /// Returns the units by state.
    pub fn supply(&self) -> Supply {
        self.supply
    }

    /// Returns the numbers that were announced last.
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Returns the nodes that open bids want and do not have.
    pub fn unmet(&self) -> u64 {
        self.unmet
    }

    /// Notices given so far.
    pub fn notices(&self) -> u64 {
        self.notices
    }

    pub(super) fn open(&mut self) -> Result<(), Violation> {
        if self.open && self.state == MarketState::Open {
            return Err(Violation::MarketTwice);
        }
        (self.open, self.state) = (true, MarketState::Open);
        Ok(())
    }

    /// Closes the market for bids from the number `next` on (R18).
    pub(super) fn close(&mut self, next: Seq) -> Result<(), Violation> {
        if self.state != MarketState::Open {
            return Err(Violation::ClosedTwice);
        }
        self.state = MarketState::Closing(next);
        Ok(())
    }

    /// Ends the market, which must be closing and without units (R18).
    pub(super) fn end(&mut self) -> Result<(), Violation> {
        if !matches!(self.state, MarketState::Closing(_)) || self.supply.total > 0 {
            return Err(Violation::EndedEarly);
        }
        self.state = MarketState::Ended;
        self.forget_bids();
        Ok(())
    }

    pub(super) fn admits(&self, bid: BidId) -> bool {
        self.state.admits(bid)
    }

    pub(super) fn forget_bids(&mut self) {
        (self.losing, self.unmet) = (Losing::default(), 0);
    }

    /// Counts a change of what a bid wants here.
    pub(super) fn count(
        &mut self,
        tenant: AccountId,
        scope: &Scope,
        nodes: i64,
        before: Option<Price>,
        after: Option<Price>,
    ) {
        if matches!(scope, Scope::Markets(_)) {
            self.unmet = self.unmet.wrapping_add_signed(nodes);
        }
        self.losing.change(tenant, before, after);
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    pub(super) fn unit_added(&mut self) {
        self.supply.total += 1;
        self.supply.free += 1;
    }

    /// Removes a unit that nobody holds. It is free, unless it rested.
    pub(super) fn unit_removed(&mut self, rested: bool) {
        self.supply.total -= 1;
        if rested {
            self.supply.resting -= 1;
        } else {
            self.supply.free -= 1;
        }
    }

    pub(super) fn unit_resting(&mut self) {
        self.supply.free -= 1;
        self.supply.resting += 1;
    }

    pub(super) fn unit_resumed(&mut self) {
        self.supply.resting -= 1;
        self.supply.free += 1;
    }

    /// Returns L of R8, the lowest ceiling.
    fn lowest_accepted(&self) -> Option<Price> {
        self.live.lowest().into_iter().chain(self.claims.lowest()).min()
    }

    /// Returns `min(L, max(R, H))`, or L if the pricing is `LowestAccepted`; without L it returns H.
    fn price_with(&self, highest_losing: Price, free: Option<Price>) -> Price {
        let Some(lowest) = self.lowest_accepted() else { return highest_losing };
        let sold_out = free.is_none_or(|reserve| reserve > lowest);
        match self.rules.pricing {
            Pricing::LowestAccepted if sold_out => lowest,
            Pricing::LowestAccepted | Pricing::HighestLosing => {
                lowest.min(self.reserves.highest_up_to(lowest).unwrap_or(Price::ZERO).max(highest_losing))
            }
        }
    }

    /// Returns what each tenant pays (R8).
    pub(super) fn tariff(&self, offered: Offered<'_>) -> Tariff {
        let (top, of_others) = self.losing.highest(offered.sellers);
        let highest = top.map_or(Price::ZERO, |(ceiling, _)| ceiling);
        let top = top.map(|(_, tenant)| (tenant, self.price_with(of_others, offered.free)));
        Tariff { price: self.price_with(highest, offered.free), top }
    }

    /// Checks that the announced numbers follow from the books. The entry price is not judged.
    pub(super) fn price(
        &mut self,
        numbers: Numbers,
        floor: Option<Price>,
        offered: Offered<'_>,
    ) -> Result<(), Violation> {
        let lowest = self.lowest_accepted();
        if numbers.lowest_accepted != lowest {
            return Err(Violation::LowestAccepted(lowest));
        }
        if numbers.floor != floor {
            return Err(Violation::Floor(floor));
        }
        if lowest.is_some_and(|lowest| numbers.market_price > lowest) {
            return Err(Violation::PriceAboveLowest);
        }
        let highest = self.losing.highest(offered.sellers).0.map_or(Price::ZERO, |(ceiling, _)| ceiling);
        if numbers.highest_losing != highest {
            return Err(Violation::HighestLosing(highest));
        }
        let price = self.price_with(highest, offered.free);
        // With nothing live or claimed the price is a reserve, which also depends on who wants nodes back.
        if lowest.is_some() && numbers.market_price != price {
            return Err(Violation::MarketPrice(price));
        }
        self.numbers = numbers;
        Ok(())
    }
}

/// A count for each price.
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

    fn highest(&self) -> Option<Price> {
        self.0.last_key_value().map(|(price, _)| *price)
    }

    fn highest_up_to(&self, most: Price) -> Option<Price> {
        self.0.range(..=most).next_back().map(|(price, _)| *price)
    }
}
