//! Bids with unmet demand in one market.

use crate::book::ladder::{Handle, Ladder, Rank};
use crate::book::rivals::Rivals;
use crate::money::Price;
use crate::sorted::Sorted;
use crate::state::Queued;
use crate::units::{AccountId, BidId};

#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Bids that take one node at a time, in the order of R2.
    plain: Ladder,
    rivals: Rivals,
    /// Waiting gangs, by the nodes they need, each in the order of R2 (R12).
    gangs: Sorted<(u32, Rank), BidId>,
}

/// The highest losing bid and the highest of all other tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losing {
    pub(crate) top: Option<(AccountId, Price)>,
    pub(crate) of_others: Price,
}

impl Demand {
    /// Whether that may give anybody a node or change a number: a plain bid behind the best of two tenants does
    /// neither, for those could not be served. `handle` becomes that of a plain bid.
    pub(crate) fn insert(
        &mut self,
        bid: BidId,
        tenant: AccountId,
        queued: Queued,
        rank: Rank,
        handle: &mut Option<Handle>,
    ) -> bool {
        match queued {
            Queued::Gang(nodes) => {
                self.gangs.insert((nodes, rank), bid);
                true
            }
            Queued::Plain => {
                let at = self.plain.insert(bid, tenant, rank);
                *handle = Some(at);
                self.rivals.insert(tenant, rank, at, &self.plain)
            }
        }
    }

    /// Takes the bid out where it is in. Whether that may change anything, as for [`Demand::insert`].
    pub(crate) fn remove(
        &mut self,
        tenant: AccountId,
        queued: Queued,
        rank: Rank,
        handle: &mut Option<Handle>,
    ) -> bool {
        match (queued, handle.take()) {
            (Queued::Gang(nodes), _) => self.gangs.remove((nodes, rank)).is_some(),
            (Queued::Plain, Some(at)) => {
                self.plain.remove(at);
                self.rivals.remove(tenant, rank, &self.plain)
            }
            (Queued::Plain, None) => false,
        }
    }

    pub(crate) fn losing(&self) -> Losing {
        let [first, second] = self.rivals.top();
        Losing {
            top: first.map(|(rank, tenant)| (tenant, rank.ceiling.0)),
            of_others: second.map_or(Price::ZERO, |(rank, _)| rank.ceiling.0),
        }
    }

    /// Plain bids in the order of R2.
    pub(crate) fn plain(&self) -> impl Iterator<Item = (Rank, BidId)> {
        self.plain.iter()
    }

    /// Waiting gangs, by the nodes they need.
    pub(crate) fn gangs(&self) -> impl Iterator<Item = (Rank, BidId)> {
        self.gangs.iter().map(|((_, rank), bid)| (rank, bid))
    }

    pub(crate) fn first(&self) -> Option<(Rank, BidId)> {
        self.plain.first()
    }

    /// The plain bid that comes next behind a rank.
    pub(crate) fn after(&self, rank: Rank) -> Option<(Rank, BidId)> {
        self.plain.after(rank)
    }

    /// The first of the gangs that wait for a number of nodes, for each such number.
    pub(crate) fn first_gangs(&self) -> impl Iterator<Item = (u32, Rank, BidId)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let ((nodes, rank), bid) = self.gangs.at_least((next, Rank::FIRST)).next()?;
            next = nodes + 1;
            Some((nodes, rank, bid))
        })
    }
}
