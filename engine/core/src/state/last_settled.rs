//! The values that a command or an instant changes, as they were last settled: frozen prices (R8) and charges of claims
//! (R15) are computed with them.

use crate::collections::id_map::Table;
use crate::types::money::Price;
use crate::types::units::{AccountId, AllocationId, BidId, MarketId};

/// Values as last settled, of what changed since then. Settling forgets them.
#[derive(Debug, Default)]
pub(crate) struct LastSettled {
    billed: Table<AllocationId, Price>,
    /// A command changes at most one ceiling and one reserve.
    ceiling: Option<(BidId, Price)>,
    reserve: Option<((MarketId, AccountId), Price)>,
}

impl LastSettled {
    /// Notes the price of a node before the change that follows. Only that of the first change is noted.
    pub(crate) fn note_billed(&mut self, node: AllocationId, billed: Price) {
        self.billed.entry(node).or_insert(billed);
    }

    /// Returns the price of a node as last settled; `now` is its price now.
    pub(crate) fn billed(&self, node: AllocationId, now: Price) -> Price {
        // Most commands change no price of a node before they give notices.
        if self.billed.is_empty() { now } else { self.billed.get(&node).copied().unwrap_or(now) }
    }

    /// Notes the ceiling of a bid before the command changes it.
    pub(crate) fn note_ceiling(&mut self, bid: BidId, ceiling: Price) {
        self.ceiling = Some((bid, ceiling));
    }

    /// Notes the reserve of an offer before the command changes it.
    pub(crate) fn note_reserve(&mut self, market: MarketId, provider: AccountId, reserve: Price) {
        self.reserve = Some(((market, provider), reserve));
    }

    /// Returns the ceiling of a bid as last settled; `now` is its ceiling now.
    pub(crate) fn ceiling(&self, bid: BidId, now: Price) -> Price {
        self.ceiling.filter(|(changed, _)| *changed == bid).map_or(now, |(_, before)| before)
    }

    /// Returns the reserve of an offer as last settled; `now` is its reserve now.
    pub(crate) fn reserve(&self, market: MarketId, provider: AccountId, now: Price) -> Price {
        self.reserve.filter(|(changed, _)| *changed == (market, provider)).map_or(now, |(_, before)| before)
    }

    pub(crate) fn clear(&mut self) {
        self.billed.clear();
        (self.ceiling, self.reserve) = (None, None);
    }
}
