//! A short queue of bids in the order of R2: the heads of the books that are being settled.

use crate::book::Rank;
use crate::types::units::BidId;
use std::cmp::Reverse;

/// A few bids in the order of R2, each once.
#[derive(Debug, Default)]
pub(crate) struct HeadQueue(Vec<(Reverse<Rank>, BidId)>);

impl HeadQueue {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn insert(&mut self, rank: Rank, bid: BidId) {
        if let Err(at) = self.0.binary_search_by_key(&Reverse(rank), |(rank, _)| *rank) {
            self.0.insert(at, (Reverse(rank), bid));
        }
    }

    pub(crate) fn first(&self) -> Option<(Rank, BidId)> {
        self.0.last().map(|(rank, bid)| (rank.0, *bid))
    }

    pub(crate) fn pop_first(&mut self) -> Option<(Rank, BidId)> {
        self.0.pop().map(|(rank, bid)| (rank.0, bid))
    }
}
