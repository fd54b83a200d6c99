//! Free units, by offer.

use crate::collections::sorted_map::{SortedMap, SortedSet};
use crate::types::money::Price;
use crate::types::units::{AccountId, Seq};

/// The offers of a market: those with free units in the order of R2, and all of them for the floor.
#[derive(Debug, Default)]
pub(crate) struct Free {
    /// Lower reserve first, then older offer. The value has the number of free units.
    offers: SortedMap<(Price, Seq), (AccountId, u64)>,
    /// The offers that have units that are not leaving.
    floors: SortedSet<(Price, AccountId)>,
    pub(crate) count: u64,
}

impl Free {
    /// Sets the number of free units of an offer with this reserve and place.
    pub(crate) fn set(&mut self, reserve: Price, place: Seq, provider: AccountId, free: u64) {
        let before = if free == 0 {
            self.offers.remove((reserve, place))
        } else {
            self.offers.insert((reserve, place), (provider, free))
        };
        self.count = self.count + free - before.map_or(0, |(_, free)| free);
    }

    /// Returns the number of free units of an offer.
    pub(crate) fn get(&self, reserve: Price, place: Seq) -> u64 {
        let offer = self.offers.at_least((reserve, place)).next();
        offer.filter(|(key, _)| *key == (reserve, place)).map_or(0, |(_, (_, free))| free)
    }

    pub(crate) fn set_floor(&mut self, reserve: Price, provider: AccountId, offered: bool) {
        if offered {
            self.floors.insert((reserve, provider));
        } else {
            self.floors.remove((reserve, provider));
        }
    }

    /// Returns the offer whose free unit comes first (R2).
    pub(crate) fn first(&self) -> Option<(Price, Seq, AccountId)> {
        self.offers.first().map(|((reserve, place), (provider, _))| (reserve, place, provider))
    }

    /// Returns the reserves with the number of free units, the cheapest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Price, u64, AccountId)> {
        self.offers.iter().map(|((reserve, _), (provider, free))| (reserve, free, provider))
    }

    /// Returns the providers that have units that are not leaving, the lowest reserve first.
    pub(crate) fn providers(&self) -> impl Iterator<Item = AccountId> {
        self.floors.iter().map(|(_, provider)| provider)
    }

    /// Returns the lowest reserve of units that are not leaving (R9).
    pub(crate) fn floor(&self) -> Option<Price> {
        self.floors.first().map(|(reserve, _)| reserve)
    }
}
