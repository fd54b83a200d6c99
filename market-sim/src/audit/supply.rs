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
    /// Reserves of the units that neither leave nor rest, and of the free ones, by market.
    reserves: HashMap<MarketId, Levels>,
    free: HashMap<MarketId, Levels>,
    /// Accounts that have a unit, by market.
    sellers: HashMap<MarketId, BTreeSet<AccountId>>,
    /// Offers that were put since the last settlement.
    unsettled: Vec<(MarketId, AccountId)>,
}

#[derive(Debug, Default)]
struct Offer {
    reserve: Price,
    last_number: u64,
    units: BTreeMap<u64, Unit>,
    staying: u64,
    /// The reserve before the present command or instant.
    settled_reserve: Price,
}

#[derive(Debug, Default)]
struct Unit {
    leaving: bool,
    resting: bool,
    held: Option<AllocationId>,
}

impl Unit {
    fn is_free(&self) -> bool {
        self.held.is_none() && !self.resting
    }
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
        self.unsettled.push((market, provider));
        let levels = self.reserves.entry(market).or_default();
        for _ in offer.units.values().filter(|unit| !unit.leaving && !unit.resting) {
            levels.shift(before, reserve);
        }
        let levels = self.free.entry(market).or_default();
        for _ in offer.units.values().filter(|unit| unit.is_free()) {
            levels.shift(before, reserve);
        }
        (before, offer.units.values().filter_map(|unit| unit.held).collect())
    }

    /// Ends a settlement: the reserves of now are the settled ones.
    pub(super) fn settle(&mut self) {
        for of in self.unsettled.drain(..) {
            if let Some(offer) = self.offers.get_mut(&of) {
                offer.settled_reserve = offer.reserve;
            }
        }
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

    /// Lets a unit rest that nobody holds (R11).
    pub(super) fn rest(&mut self, id: UnitId) -> Result<(), Violation> {
        let (unit, reserve) = self.unit(id)?;
        if let Some(node) = unit.held {
            return Err(Violation::UnitHeld(node));
        }
        if unit.leaving {
            return Err(Violation::UnitLeaves);
        }
        if std::mem::replace(&mut unit.resting, true) {
            return Err(Violation::UnitRests);
        }
        self.reserves.entry(id.market).or_default().remove(reserve);
        self.free.entry(id.market).or_default().remove(reserve);
        Ok(())
    }

    /// Makes a resting unit free (R11).
    pub(super) fn resume(&mut self, id: UnitId) -> Result<(), Violation> {
        let (unit, reserve) = self.unit(id)?;
        if !std::mem::replace(&mut unit.resting, false) {
            return Err(Violation::UnitDoesNotRest);
        }
        self.reserves.entry(id.market).or_default().add(reserve);
        self.free.entry(id.market).or_default().add(reserve);
        Ok(())
    }

    /// Returns a unit, and the reserve of its offer.
    fn unit(&mut self, id: UnitId) -> Result<(&mut Unit, Price), Violation> {
        let offer = self.offers.get_mut(&(id.market, id.provider)).ok_or(Violation::UnknownUnit)?;
        let unit = offer.units.get_mut(&id.number).ok_or(Violation::UnknownUnit)?;
        Ok((unit, offer.reserve))
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

    /// Removes a unit. Returns true if it rested.
    pub(super) fn remove(&mut self, id: UnitId) -> Result<bool, Violation> {
        let offer = self.offers.get_mut(&(id.market, id.provider)).ok_or(Violation::UnknownUnit)?;
        let unit = offer.units.remove(&id.number).ok_or(Violation::UnknownUnit)?;
        if let Some(node) = unit.held {
            return Err(Violation::UnitHeld(node));
        }
        if !unit.leaving {
            offer.staying -= 1;
        }
        if !unit.leaving && !unit.resting {
            self.reserves.entry(id.market).or_default().remove(offer.reserve);
            self.free.entry(id.market).or_default().remove(offer.reserve);
        }
        if offer.units.is_empty() {
            self.sellers.entry(id.market).or_default().remove(&id.provider);
        }
        Ok(unit.resting)
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
        if unit.resting {
            return Err(Violation::UnitRests);
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

    /// Returns the reserve of a unit's offer as last settled.
    pub(super) fn settled_reserve(&self, id: UnitId) -> Price {
        self.offers.get(&(id.market, id.provider)).map_or(Price::ZERO, |offer| offer.settled_reserve)
    }

    pub(super) fn sells(&self, market: MarketId, account: AccountId) -> bool {
        self.sellers.get(&market).is_some_and(|sellers| sellers.contains(&account))
    }

    pub(super) fn floor(&self, market: MarketId) -> Option<Price> {
        self.reserves.get(&market).and_then(Levels::lowest)
    }
}
