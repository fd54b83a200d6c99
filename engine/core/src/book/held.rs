//! Live allocations by the ceiling of their bids, and claims: the next victim of a displacement is first (R4).

use crate::collections::indexed_heap::IndexedHeap;
use crate::collections::sorted_map::{SortedMap, SortedSet};
use crate::types::money::Price;
use crate::types::units::{AllocationId, Micros};
use std::cmp::Reverse;

#[derive(Debug, Default)]
pub(crate) struct Held {
    levels: SortedMap<Price, Level>,
    /// Lowest ceiling first, newest first.
    unprotected: IndexedHeap<(Price, Reverse<AllocationId>)>,
    /// Lowest ceiling first, then the protection that ends first.
    protected: IndexedHeap<(Price, Micros, AllocationId)>,
    /// Lowest ceiling first, last claimed first.
    claims: SortedSet<(Price, Reverse<u64>, AllocationId)>,
    /// The claims, counted by the ceilings of their bids.
    claim_levels: SortedMap<Price, u64>,
    /// The reserves of live and claimed units, counted (R8).
    reserves: SortedMap<Price, u64>,
    pub(crate) live: u64,
}

/// The live allocations of one ceiling, counted.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    unprotected: u32,
    protected: u32,
}

impl Level {
    /// Returns the count to which an allocation belongs.
    fn of(&mut self, live: Live) -> &mut u32 {
        match live.protected {
            Some(_) => &mut self.protected,
            None => &mut self.unprotected,
        }
    }
}

/// A live allocation, as it is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) ceiling: Price,
    /// The end of its protection, if it is protected.
    pub(crate) protected: Option<Micros>,
    pub(crate) reserve: Price,
}

/// An allocation or claim that yields, and the ceiling of the bid that would lose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) allocation: AllocationId,
    pub(crate) ceiling: Price,
    /// True if the victim is the claim on the node, which moves. False if the node's own notice
    /// begins.
    pub(crate) claimed: bool,
}

impl Held {
    /// Adds a live allocation. Returns the handle by which it can be removed.
    pub(crate) fn insert_live(&mut self, id: AllocationId, live: Live) -> u32 {
        self.live += 1;
        self.reserves.count(live.reserve);
        self.enter_level(live);
        self.push(id, live)
    }

    pub(crate) fn remove_live(&mut self, live: Live, handle: u32) {
        self.live -= 1;
        self.reserves.discount(live.reserve);
        self.leave_level(live);
        self.take(live, handle);
    }

    /// Changes the position of a live allocation. Returns its new handle.
    pub(crate) fn move_live(&mut self, id: AllocationId, from: Live, to: Live, handle: u32) -> u32 {
        if from.reserve != to.reserve {
            self.reserves.discount(from.reserve);
            self.reserves.count(to.reserve);
        }
        if from.ceiling == to.ceiling {
            let level = self.level(from);
            *level.of(from) -= 1;
            *level.of(to) += 1;
        } else {
            self.leave_level(from);
            self.enter_level(to);
        }
        self.take(from, handle);
        self.push(id, to)
    }

    fn push(&mut self, id: AllocationId, live: Live) -> u32 {
        match live.protected {
            Some(until) => self.protected.push((live.ceiling, until, id)),
            None => self.unprotected.push((live.ceiling, Reverse(id))),
        }
    }

    fn take(&mut self, live: Live, handle: u32) {
        match live.protected {
            Some(_) => self.protected.remove(handle),
            None => self.unprotected.remove(handle),
        }
    }

    fn enter_level(&mut self, live: Live) {
        *self.levels.or_insert_with(live.ceiling, Level::default).of(live) += 1;
    }

    fn leave_level(&mut self, live: Live) {
        let level = self.level(live);
        *level.of(live) -= 1;
        if level.protected == 0 && level.unprotected == 0 {
            self.levels.remove(live.ceiling);
        }
    }

    fn level(&mut self, live: Live) -> &mut Level {
        self.levels.get_mut(live.ceiling).expect("the level of a live allocation")
    }

    pub(crate) fn insert_claim(&mut self, id: AllocationId, ceiling: Price, number: u64, reserve: Price) {
        self.claims.insert((ceiling, Reverse(number), id));
        self.claim_levels.count(ceiling);
        self.reserves.count(reserve);
    }

    pub(crate) fn remove_claim(&mut self, id: AllocationId, ceiling: Price, number: u64, reserve: Price) {
        self.claims.remove((ceiling, Reverse(number), id));
        self.claim_levels.discount(ceiling);
        self.reserves.discount(reserve);
    }

    pub(crate) fn claimed(&self) -> u64 {
        self.claims.len() as u64
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = AllocationId> {
        self.claims.iter().map(|(.., id)| id)
    }

    /// Returns the ceilings of the bids that have the claims, the lowest first, with the number of claims.
    pub(crate) fn claim_levels(&self) -> impl DoubleEndedIterator<Item = (Price, u64)> {
        self.claim_levels.iter()
    }

    /// Returns the lowest ceiling among live allocations and claims, which is L of R8.
    pub(crate) fn lowest(&self) -> Option<Price> {
        let live = self.levels.first().map(|(ceiling, _)| ceiling);
        let claim = self.claims.first().map(|(ceiling, ..)| ceiling);
        live.into_iter().chain(claim).min()
    }

    /// Returns the ceilings of live allocations, the lowest first, with the number of allocations.
    pub(crate) fn levels(&self) -> impl DoubleEndedIterator<Item = (Price, u64)> {
        self.levels.iter().map(|(ceiling, level)| (ceiling, u64::from(level.protected + level.unprotected)))
    }

    /// Returns the protected allocations with the ends of their protection: lowest ceiling first,
    /// then the protection that ends first.
    pub(crate) fn protected(&self) -> impl Iterator<Item = (Price, Micros, AllocationId)> {
        self.protected.in_order()
    }

    /// Returns the highest reserve that is at most `limit`, which is R of R8.
    pub(crate) fn highest_reserve(&self, limit: Price) -> Option<Price> {
        self.reserves.at_most(limit).map(|(reserve, _)| reserve)
    }

    /// Returns the victims that would yield one after another (R4): the unprotected allocations of
    /// the lowest price level, newest first. The next level follows only if the whole level before it
    /// is gone. At the same ceiling, claims come before allocations, because displacing a claim
    /// evicts no tenant.
    pub(crate) fn victims(&self) -> impl Iterator<Item = Victim> {
        let mut unprotected = self.unprotected.in_order().peekable();
        // A challenger may not pass a level in which an allocation stays.
        let mut levels = self.levels.iter().peekable();
        let mut claims = self.claims.iter().peekable();
        std::iter::from_fn(move || {
            let live = unprotected.peek().copied().filter(|(ceiling, _)| {
                while levels.next_if(|(below, level)| below < ceiling && level.protected == 0).is_some() {}
                levels.peek().is_some_and(|(lowest, _)| lowest == ceiling)
            });
            let live = live.map(|(ceiling, Reverse(id))| (ceiling, id));
            let claim = claims.peek().map(|(ceiling, _, id)| (*ceiling, *id));
            match (live, claim) {
                (live, Some((ceiling, allocation))) if live.is_none_or(|(c, _)| ceiling <= c) => {
                    claims.next();
                    Some(Victim { allocation, ceiling, claimed: true })
                }
                (Some((ceiling, allocation)), _) => {
                    unprotected.next();
                    Some(Victim { allocation, ceiling, claimed: false })
                }
                (None, _) => None,
            }
        })
    }

    /// Returns the first of [`Held::victims`].
    pub(crate) fn first_victim(&self) -> Option<Victim> {
        let lowest = self.levels.first().map(|(lowest, _)| lowest);
        let live = self.unprotected.first().filter(|(ceiling, _)| Some(*ceiling) == lowest);
        match (live, self.claims.first()) {
            (live, Some((ceiling, _, id))) if live.is_none_or(|(level, _)| ceiling <= level) => {
                Some(Victim { allocation: id, ceiling, claimed: true })
            }
            (Some((ceiling, Reverse(allocation))), _) => Some(Victim { allocation, ceiling, claimed: false }),
            (None, _) => None,
        }
    }

    /// Returns true if an unprotected live allocation with this ceiling would be the first candidate
    /// of R4 (1).
    pub(crate) fn would_yield_first(&self, id: AllocationId, ceiling: Price) -> bool {
        let lowest = self.levels.first().map(|(lowest, _)| lowest);
        let newest = self.unprotected.first().filter(|(level, _)| *level == ceiling);
        let first_live = match lowest {
            Some(lowest) if lowest == ceiling => newest.is_none_or(|(_, Reverse(newest))| newest < id),
            Some(lowest) => ceiling < lowest,
            None => true,
        };
        first_live && self.claims.first().is_none_or(|(claim, ..)| ceiling < claim)
    }
}
