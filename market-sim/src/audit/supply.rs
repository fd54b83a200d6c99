//! Offers and their units, as events tell of them.

use super::Lie;
use super::market::Levels;
use foldhash::HashMap;
use kubebid_core::Price;
use kubebid_core::units::{AccountId, AllocationId, MarketId, UnitId};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Offers {
    offers: HashMap<(MarketId, AccountId), Offer>,
    /// Reserves of the units that stay, by market.
    reserves: HashMap<MarketId, Levels>,
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
    /// The allocations that bear another reserve from here on or later, when it is another.
    pub(super) fn put(&mut self, market: MarketId, provider: AccountId, reserve: Price) -> Vec<AllocationId> {
        let offer = self.offers.entry((market, provider)).or_default();
        let before = std::mem::replace(&mut offer.reserve, reserve);
        if before == reserve {
            return Vec::new();
        }
        let levels = self.reserves.entry(market).or_default();
        for _ in 0..offer.staying {
            levels.shift(before, reserve);
        }
        offer.units.values().filter_map(|unit| unit.held).collect()
    }

    pub(super) fn has(&self, market: MarketId, provider: AccountId, capacity: u64) -> Result<(), Lie> {
        let ours = self.offers.get(&(market, provider)).map_or(0, |offer| offer.staying);
        if ours == capacity { Ok(()) } else { Err(Lie::Capacity { ours, theirs: capacity }) }
    }

    pub(super) fn add(&mut self, id: UnitId, reserve: Price) -> Result<(), Lie> {
        let offer = self.offers.get_mut(&(id.market, id.provider)).ok_or(Lie::UnknownUnit)?;
        if id.number != offer.last_number + 1 {
            return Err(Lie::UnitNumber);
        }
        if reserve != offer.reserve {
            return Err(Lie::UnitReserve(reserve));
        }
        offer.last_number = id.number;
        offer.staying += 1;
        offer.units.insert(id.number, Unit::default());
        self.reserves.entry(id.market).or_default().add(reserve);
        Ok(())
    }

    pub(super) fn leaving(&mut self, id: UnitId) -> Result<(), Lie> {
        self.turn(id, true)
    }

    pub(super) fn back(&mut self, id: UnitId) -> Result<(), Lie> {
        self.turn(id, false)
    }

    fn turn(&mut self, id: UnitId, leaving: bool) -> Result<(), Lie> {
        let offer = self.offers.get_mut(&(id.market, id.provider)).ok_or(Lie::UnknownUnit)?;
        let unit = offer.units.get_mut(&id.number).ok_or(Lie::UnknownUnit)?;
        if unit.leaving == leaving {
            return Err(if leaving { Lie::UnitLeaves } else { Lie::UnitStays });
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

    pub(super) fn remove(&mut self, id: UnitId) -> Result<(), Lie> {
        let offer = self.offers.get_mut(&(id.market, id.provider)).ok_or(Lie::UnknownUnit)?;
        let unit = offer.units.remove(&id.number).ok_or(Lie::UnknownUnit)?;
        if let Some(node) = unit.held {
            return Err(Lie::UnitHeld(node));
        }
        if !unit.leaving {
            offer.staying -= 1;
            self.reserves.entry(id.market).or_default().remove(offer.reserve);
        }
        Ok(())
    }

    /// Gives a unit to an allocation; its reserve.
    pub(super) fn hold(&mut self, id: UnitId, node: AllocationId) -> Result<Price, Lie> {
        let offer = self.offers.get_mut(&(id.market, id.provider)).ok_or(Lie::UnknownUnit)?;
        let unit = offer.units.get_mut(&id.number).ok_or(Lie::UnknownUnit)?;
        if let Some(holder) = unit.held {
            return Err(Lie::UnitHeld(holder));
        }
        if unit.leaving {
            return Err(Lie::UnitLeaves);
        }
        unit.held = Some(node);
        Ok(offer.reserve)
    }

    /// Whether the unit stays on offer.
    pub(super) fn free(&mut self, id: UnitId) -> Result<bool, Lie> {
        let offer = self.offers.get_mut(&(id.market, id.provider)).ok_or(Lie::UnknownUnit)?;
        let unit = offer.units.get_mut(&id.number).ok_or(Lie::UnknownUnit)?;
        unit.held = None;
        Ok(!unit.leaving)
    }

    pub(super) fn reserve(&self, id: UnitId) -> Price {
        self.offers.get(&(id.market, id.provider)).map_or(Price::ZERO, |offer| offer.reserve)
    }

    pub(super) fn sells(&self, market: MarketId, account: AccountId) -> bool {
        self.offers.get(&(market, account)).is_some_and(|offer| !offer.units.is_empty())
    }

    pub(super) fn floor(&self, market: MarketId) -> Option<Price> {
        self.reserves.get(&market).and_then(Levels::lowest)
    }
}
