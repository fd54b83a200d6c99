//! The auditor's offers and units.

use super::Violation;
use super::market::{Levels, Offered};
use foldhash::HashMap;
use kubebid_core::Price;
use kubebid_core::units::{AccountId, AllocationId, MarketId, UnitId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct Offers {
    offers: HashMap<(MarketId, AccountId), Offer>,
    /// Reserves of the units that stay, and of the free ones, by market.
    reserves: HashMap<MarketId, Levels>,
    free: HashMap<MarketId, Levels>,
    /// Accounts that have a unit, by market.
    sellers: HashMap<MarketId, BTreeSet<AccountId>>,
}

#[derive(Debug, Default)]
struct Offer {
    reserve: Price,
    last_number: u64,
    units: BTreeMap<u64, Unit>,
    staying: u64,
}

#[derive(Debug, Default)]
struct Unit {
    leaving: bool,
    held: Option<AllocationId>,
}

impl Offers {
    /// Puts an offer. Returns the reserve before, and the allocations whose reserve changes at once or later.
    pub(super) fn put(
        &mut self,
        market: MarketId,
        provider: AccountId,
        reserve: Price,
    ) -> (Price, Vec<AllocationId>) {
        let offer = self.offers.entry((market, provider)).or_default();
        let before = std::mem::replace(&mut offer.reserve, reserve);
        if before == reserve {
            return (before, Vec::new());
        }
        let levels = self.reserves.entry(market).or_default();
        for _ in 0..offer.staying {
            levels.shift(before, reserve);
        }
        let levels = self.free.entry(market).or_default();
        for _ in offer.units.values().filter(|unit| unit.held.is_none()) {
            levels.shift(before, reserve);
        }
        (before, offer.units.values().filter_map(|unit| unit.held).collect())
    }

    /// Returns what the price of a market follows from.
    pub(super) fn offered(&self, market: MarketId) -> Offered<'_> {
        const NONE: &BTreeSet<AccountId> = &BTreeSet::new();
        let sellers = self.sellers.get(&market).unwrap_or(NONE);
        Offered { free: self.free.get(&market).and_then(Levels::lowest), sellers }
    }

    pub(super) fn has(&self, market: MarketId, provider: AccountId, capacity: u64) -> Result<(), Violation> {
        let ours = self.offers.get(&(market, provider)).map_or(0, |offer| offer.staying);
        if ours == capacity { Ok(()) } else { Err(Violation::Capacity { ours, theirs: capacity }) }
    }

    pub(super) fn add(&mut self, id: UnitId, reserve: Price) -> Result<(), Violation> {
        let offer = self.offers.get_mut(&(id.market, id.provider)).ok_or(Violation::UnknownUnit)?;
        if id.number != offer.last_number + 1 {
            return Err(Violation::UnitNumber);
        }
        if reserve != offer.reserve {
            return Err(Violation::UnitReserve(reserve));
        }
        offer.last_number = id.number;
        offer.staying += 1;
        offer.units.insert(id.number, Unit::default());
        self.reserves.entry(id.market).or_default().add(reserve);
        self.free.entry(id.market).or_default().add(reserve);
        self.sellers.entry(id.market).or_default().insert(id.provider);
        Ok(())
    }

    pub(super) fn leaving(&mut self, id: UnitId) -> Result<(), Violation> {
        self.turn(id, true)
    }

    pub(super) fn back(&mut self, id: UnitId) -> Result<(), Violation> {
        self.turn(id, false)
    }

    fn turn(&mut self, id: UnitId, leaving: bool) -> Result<(), Violation> {
        let offer = self.offers.get_mut(&(id.market, id.provider)).ok_or(Violation::UnknownUnit)?;
        let unit = offer.units.get_mut(&id.number).ok_or(Violation::UnknownUnit)?;
        if unit.leaving == leaving {
            return Err(if leaving { Violation::UnitLeaves } else { Violation::UnitStays });
        }
        unit.leaving = leaving;
        let (reserve, levels) = (offer.reserve, self.reserves.entry(id.market).or_default());
        if leaving {
            offer.staying -= 1;
            levels.remove(reserve);
        } else {
            offer.staying += 1;
            levels.add(reserve);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, id: UnitId) -> Result<(), Violation> {
        let offer = self.offers.get_mut(&(id.market, id.provider)).ok_or(Violation::UnknownUnit)?;
        let unit = offer.units.remove(&id.number).ok_or(Violation::UnknownUnit)?;
        if let Some(node) = unit.held {
            return Err(Violation::UnitHeld(node));
        }
        if !unit.leaving {
            offer.staying -= 1;
            self.reserves.entry(id.market).or_default().remove(offer.reserve);
            self.free.entry(id.market).or_default().remove(offer.reserve);
        }
        if offer.units.is_empty() {
            self.sellers.entry(id.market).or_default().remove(&id.provider);
        }
        Ok(())
    }

    /// Gives a unit to an allocation, and returns the unit's reserve.
    pub(super) fn hold(&mut self, id: UnitId, node: AllocationId) -> Result<Price, Violation> {
        let offer = self.offers.get_mut(&(id.market, id.provider)).ok_or(Violation::UnknownUnit)?;
        let unit = offer.units.get_mut(&id.number).ok_or(Violation::UnknownUnit)?;
        if let Some(holder) = unit.held {
            return Err(Violation::UnitHeld(holder));
        }
        if unit.leaving {
            return Err(Violation::UnitLeaves);
        }
        unit.held = Some(node);
        self.free.entry(id.market).or_default().remove(offer.reserve);
        Ok(offer.reserve)
    }

    /// Returns whether the unit stays on offer.
    pub(super) fn free(&mut self, id: UnitId) -> Result<bool, Violation> {
        let offer = self.offers.get_mut(&(id.market, id.provider)).ok_or(Violation::UnknownUnit)?;
        let unit = offer.units.get_mut(&id.number).ok_or(Violation::UnknownUnit)?;
        unit.held = None;
        if !unit.leaving {
            self.free.entry(id.market).or_default().add(offer.reserve);
        }
        Ok(!unit.leaving)
    }

    pub(super) fn reserve(&self, id: UnitId) -> Price {
        self.offers.get(&(id.market, id.provider)).map_or(Price::ZERO, |offer| offer.reserve)
    }

    pub(super) fn sells(&self, market: MarketId, account: AccountId) -> bool {
        self.sellers.get(&market).is_some_and(|sellers| sellers.contains(&account))
    }

    pub(super) fn floor(&self, market: MarketId) -> Option<Price> {
        self.reserves.get(&market).and_then(Levels::lowest)
    }
}
