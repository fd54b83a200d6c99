//! Bids with unmet demand in one market: plain ones by price level, gangs by the nodes they need (R12).

use crate::book::ladder::{Handle, Ladder, Rank};
use crate::book::rivals::Rivals;
use crate::collections::sorted_map::SortedMap;
use crate::types::money::Price;
use crate::types::units::{AccountId, BidId};

#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Bids that take one node at a time, in the order of R2.
    plain: Ladder,
    rivals: Rivals,
    /// Waiting gangs, by the nodes they need, each in the order of R2 (R12).
    gangs: SortedMap<(u32, Rank), Gang>,
    /// The sum of the nodes that waiting gangs want, by ceiling.
    gang_levels: SortedMap<Price, u64>,
}

/// The way in which a bid with unmet demand waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// It takes one node at a time.
    Plain,
    /// It needs this many nodes at once (R12).
    Gang(u32),
}

impl Queued {
    /// Returns the number of nodes that the bid takes at a time.
    pub(crate) fn nodes_at_once(self) -> u32 {
        match self {
            Queued::Plain => 1,
            Queued::Gang(nodes) => nodes,
        }
    }
}

/// A waiting gang.
#[derive(Clone, Copy, Debug)]
struct Gang {
    bid: BidId,
    /// The number of nodes it wants, which may be more than it needs at once.
    nodes: u32,
}

/// The highest losing bid and the highest of all other tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losing {
    pub(crate) top: Option<(AccountId, Price)>,
    pub(crate) of_others: Price,
}

impl Demand {
    /// Adds a bid with `nodes` of unmet demand, and sets `handle` if it is a plain bid. `losing` says if it counts in H
    /// (R8). Returns true if the bid may get a node or change a number. A losing bid worse than the best losing bids of
    /// two tenants can do neither, because those could not be served.
    #[expect(
        clippy::too_many_arguments,
        reason = "what a bid is sorted by, at the one place that calls this"
    )]
    pub(crate) fn insert(
        &mut self,
        bid: BidId,
        tenant: AccountId,
        queued: Queued,
        nodes: u32,
        losing: bool,
        rank: Rank,
        handle: &mut Option<Handle>,
    ) -> bool {
        match queued {
            Queued::Gang(least) => {
                self.gangs.insert((least, rank), Gang { bid, nodes });
                *self.gang_levels.or_insert_with(rank.ceiling.0, || 0) += u64::from(nodes);
                true
            }
            Queued::Plain => {
                let at = self.plain.insert(bid, tenant, rank);
                self.plain.set_nodes(at, nodes);
                *handle = Some(at);
                if !losing {
                    self.plain.set_losing(at, false);
                    return true;
                }
                self.rivals.insert(tenant, rank, at, &self.plain)
            }
        }
    }

    /// Removes a bid, if it is in the book. Returns true if that may change anything, as
    /// [`Demand::insert`] does.
    pub(crate) fn remove(
        &mut self,
        tenant: AccountId,
        queued: Queued,
        rank: Rank,
        handle: &mut Option<Handle>,
    ) -> bool {
        match (queued, handle.take()) {
            (Queued::Gang(least), _) => match self.gangs.remove((least, rank)) {
                Some(gang) => {
                    self.leave_gang_level(rank.ceiling.0, gang.nodes);
                    true
                }
                None => false,
            },
            (Queued::Plain, Some(at)) => {
                let losing = self.plain.remove(at);
                !losing || self.rivals.remove(tenant, rank, &self.plain)
            }
            (Queued::Plain, None) => false,
        }
    }

    /// Returns true if a bid is in the book.
    pub(crate) fn has(&self, queued: Queued, rank: Rank, handle: Option<Handle>) -> bool {
        match queued {
            Queued::Plain => handle.is_some(),
            Queued::Gang(least) => {
                let found = self.gangs.at_most((least, rank));
                found.is_some_and(|(key, _)| key == (least, rank))
            }
        }
    }

    /// Sets the unmet demand of a bid, if it is in the book. Only [`Demand::levels`] depends on it.
    pub(crate) fn set_nodes(&mut self, queued: Queued, nodes: u32, rank: Rank, handle: Option<Handle>) {
        match (queued, handle) {
            (Queued::Gang(least), _) => {
                let Some(gang) = self.gangs.get_mut((least, rank)) else { return };
                let before = std::mem::replace(&mut gang.nodes, nodes);
                *self.gang_levels.or_insert_with(rank.ceiling.0, || 0) += u64::from(nodes);
                self.leave_gang_level(rank.ceiling.0, before);
            }
            (Queued::Plain, Some(at)) => self.plain.set_nodes(at, nodes),
            (Queued::Plain, None) => {}
        }
    }

    /// Sets if a plain bid counts in H, if it is in the book. Returns true if that may change a number.
    pub(crate) fn set_losing(
        &mut self,
        tenant: AccountId,
        losing: bool,
        rank: Rank,
        handle: Option<Handle>,
    ) -> bool {
        let Some(at) = handle else { return false };
        if self.plain.set_losing(at, losing) == losing {
            return false;
        }
        if losing {
            self.rivals.insert(tenant, rank, at, &self.plain)
        } else {
            self.rivals.remove(tenant, rank, &self.plain)
        }
    }

    fn leave_gang_level(&mut self, ceiling: Price, nodes: u32) {
        let level = self.gang_levels.get_mut(ceiling).expect("the level of a gang");
        *level -= u64::from(nodes);
        if *level == 0 {
            self.gang_levels.remove(ceiling);
        }
    }

    /// Returns the ceilings of plain bids, the highest first, with the sum of their unmet demand.
    pub(crate) fn levels(&self) -> impl Iterator<Item = (Price, u64)> {
        self.plain.levels()
    }

    /// Returns the ceilings of waiting gangs, the highest first, with the sum of their unmet demand.
    pub(crate) fn gang_levels(&self) -> impl Iterator<Item = (Price, u64)> {
        self.gang_levels.iter().rev()
    }

    pub(crate) fn losing(&self) -> Losing {
        let [first, second] = self.rivals.top();
        Losing {
            top: first.map(|(rank, tenant)| (tenant, rank.ceiling.0)),
            of_others: second.map_or(Price::ZERO, |(rank, _)| rank.ceiling.0),
        }
    }

    /// Returns the plain bids in the order of R2.
    pub(crate) fn plain(&self) -> impl Iterator<Item = (Rank, BidId)> {
        self.plain.iter()
    }

    pub(crate) fn first(&self) -> Option<(Rank, BidId)> {
        self.plain.first()
    }

    /// Returns the plain bid that comes next after a rank.
    pub(crate) fn after(&self, rank: Rank) -> Option<(Rank, BidId)> {
        self.plain.after(rank)
    }

    /// Returns, for each number of nodes that gangs need, the first gang that needs it, in rising
    /// order of that number.
    pub(crate) fn first_gangs(&self) -> impl Iterator<Item = (u32, Rank, BidId)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let ((nodes, rank), gang) = self.gangs.at_least((next, Rank::FIRST)).next()?;
            next = nodes + 1;
            Some((nodes, rank, gang.bid))
        })
    }
}
