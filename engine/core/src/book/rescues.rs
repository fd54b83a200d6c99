//! Claim holders that would take a free unit instead, best first (R6).

use crate::book::ladder::Rank;
use crate::book::prices::PriceMap;
use crate::money::Price;
use crate::state::Rescue;
use crate::units::BidId;
use std::collections::BTreeMap;
use std::ops::Bound;

#[derive(Debug, Default)]
pub(crate) struct Rescues {
    by_rank: BTreeMap<Rank, (Price, BidId)>,
    /// The reserves that they accept at most, counted.
    accepted: PriceMap<u32>,
}

impl Rescues {
    pub(crate) fn insert(&mut self, bid: BidId, rescue: Rescue) {
        self.by_rank.insert(rescue.rank, (rescue.accepts, bid));
        *self.accepted.or_insert_with(rescue.accepts, || 0) += 1;
    }

    pub(crate) fn remove(&mut self, rescue: Rescue) {
        self.by_rank.remove(&rescue.rank);
        let count = self.accepted.get_mut(rescue.accepts).expect("it was inserted");
        *count -= 1;
        if *count == 0 {
            self.accepted.remove(rescue.accepts);
        }
    }

    /// The best behind a rank that would take a unit of this reserve.
    pub(crate) fn first_for(&self, reserve: Price, behind: Option<Rank>) -> Option<(Rank, BidId)> {
        self.accepted.last().filter(|(most, _)| *most >= reserve)?;
        let behind = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.by_rank.range((behind, Bound::Unbounded));
        rest.find(|(_, (accepts, _))| *accepts >= reserve).map(|(rank, (_, bid))| (*rank, *bid))
    }
}
