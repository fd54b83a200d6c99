//! Claimants that would take a free unit instead, best first (R6).

use crate::book::ladder::Rank;
use crate::collections::sorted_map::SortedMap;
use crate::types::money::Price;
use crate::types::units::BidId;

#[derive(Debug, Default)]
pub(crate) struct Rescues {
    by_rank: SortedMap<Rank, (Price, BidId)>,
    /// The number of bids for each highest reserve that they accept.
    accepted: SortedMap<Price, u64>,
}

impl Rescues {
    /// Sets the highest reserve that this bid accepts in this market; None removes it. Returns true
    /// if the value changed.
    pub(crate) fn set(&mut self, bid: BidId, rank: Rank, accepts: Option<Price>) -> bool {
        let before = match accepts {
            Some(accepts) => self.by_rank.insert(rank, (accepts, bid)),
            None => self.by_rank.remove(rank),
        };
        let before = before.map(|(before, _)| before);
        if before == accepts {
            return false;
        }
        if let Some(before) = before {
            self.accepted.discount(before);
        }
        if let Some(accepts) = accepts {
            self.accepted.count(accepts);
        }
        true
    }

    /// Returns the best bid after the rank `after` that would take a unit of this reserve.
    pub(crate) fn first_for(&self, reserve: Price, after: Option<Rank>) -> Option<(Rank, BidId)> {
        self.accepted.last().filter(|(most, _)| *most >= reserve)?;
        let mut rest = self.by_rank.at_least(after.unwrap_or(Rank::FIRST));
        let found = rest.find(|(rank, (accepts, _))| *accepts >= reserve && Some(*rank) != after);
        found.map(|(rank, (_, bid))| (rank, bid))
    }
}
