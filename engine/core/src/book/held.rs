//! Live allocations by the ceiling of their bids, and claims: who would yield first (R4).

use crate::money::Price;
use crate::units::AllocationId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Held {
    levels: BTreeMap<Price, Level>,
    /// Lowest ceiling first, last claimed first.
    claims: BTreeSet<(Price, Reverse<u64>, AllocationId)>,
    /// The reserves of live and claimed units, counted (R8).
    reserves: BTreeMap<Price, u64>,
    pub(crate) live: u64,
}

/// The live allocations of one ceiling.
#[derive(Debug, Default)]
struct Level {
    unprotected: BTreeSet<AllocationId>,
    protected: u64,
}

/// Who yields, and the ceiling of the bid that would lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) allocation: AllocationId,
    pub(crate) ceiling: Price,
    /// The claim on it moves, rather than the node's own notice beginning.
    pub(crate) claimed: bool,
}

impl Held {
    pub(crate) fn insert_live(&mut self, id: AllocationId, ceiling: Price, protected: bool, reserve: Price) {
        let level = self.levels.entry(ceiling).or_default();
        if protected {
            level.protected += 1;
        } else {
            level.unprotected.insert(id);
        }
        self.live += 1;
        *self.reserves.entry(reserve).or_default() += 1;
    }

    pub(crate) fn remove_live(&mut self, id: AllocationId, ceiling: Price, protected: bool, reserve: Price) {
        let level = self.levels.get_mut(&ceiling).expect("the level of a live allocation");
        if protected {
            level.protected -= 1;
        } else {
            level.unprotected.remove(&id);
        }
        if level.protected == 0 && level.unprotected.is_empty() {
            self.levels.remove(&ceiling);
        }
        self.live -= 1;
        self.remove_reserve(reserve);
    }

    pub(crate) fn insert_claim(&mut self, id: AllocationId, ceiling: Price, number: u64, reserve: Price) {
        self.claims.insert((ceiling, Reverse(number), id));
        *self.reserves.entry(reserve).or_default() += 1;
    }

    pub(crate) fn remove_claim(&mut self, id: AllocationId, ceiling: Price, number: u64, reserve: Price) {
        self.claims.remove(&(ceiling, Reverse(number), id));
        self.remove_reserve(reserve);
    }

    fn remove_reserve(&mut self, reserve: Price) {
        let count = self.reserves.get_mut(&reserve).expect("the reserve of a held unit");
        *count -= 1;
        if *count == 0 {
            self.reserves.remove(&reserve);
        }
    }

    pub(crate) fn claimed(&self) -> u64 {
        self.claims.len() as u64
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = AllocationId> {
        self.claims.iter().map(|(.., id)| *id)
    }

    /// Of the bids that have the claims, lowest first.
    pub(crate) fn claim_ceilings(&self) -> impl DoubleEndedIterator<Item = Price> {
        self.claims.iter().map(|(ceiling, ..)| *ceiling)
    }

    /// The lowest ceiling among live allocations and claims: L of R8.
    pub(crate) fn lowest(&self) -> Option<Price> {
        let live = self.levels.first_key_value().map(|(ceiling, _)| *ceiling);
        let claim = self.claims.first().map(|(ceiling, ..)| *ceiling);
        live.into_iter().chain(claim).min()
    }

    /// Live allocations by ceiling, lowest first.
    pub(crate) fn levels(&self) -> impl DoubleEndedIterator<Item = (Price, u64)> {
        self.levels
            .iter()
            .map(|(ceiling, level)| (*ceiling, level.protected + level.unprotected.len() as u64))
    }

    /// The highest reserve that is at most `limit`: R of R8.
    pub(crate) fn highest_reserve(&self, limit: Price) -> Option<Price> {
        self.reserves.range(..=limit).next_back().map(|(reserve, _)| *reserve)
    }

    /// Those who would yield one after another (R4): the unprotected of the lowest level, newest
    /// first, the next level only behind one that is wholly gone; claims, which evict nobody,
    /// before allocations of the same ceiling.
    pub(crate) fn victims(&self) -> impl Iterator<Item = Victim> {
        let mut levels = self.levels.iter();
        let mut level =
            levels.next().map(|(ceiling, level)| (*ceiling, level, level.unprotected.iter().rev()));
        let mut claims = self.claims.iter().peekable();
        std::iter::from_fn(move || {
            let live = loop {
                let Some((ceiling, held, unprotected)) = &mut level else { break None };
                if let Some(id) = unprotected.clone().next() {
                    break Some((*ceiling, *id));
                }
                if held.protected > 0 {
                    break None;
                }
                level =
                    levels.next().map(|(ceiling, level)| (*ceiling, level, level.unprotected.iter().rev()));
            };
            let claim = claims.peek().map(|(ceiling, _, id)| (*ceiling, *id));
            match (live, claim) {
                (live, Some((ceiling, allocation))) if live.is_none_or(|(c, _)| ceiling <= c) => {
                    claims.next();
                    Some(Victim { allocation, ceiling, claimed: true })
                }
                (Some((ceiling, allocation)), _) => {
                    let (_, _, unprotected) = level.as_mut().expect("the level it came from");
                    unprotected.next();
                    Some(Victim { allocation, ceiling, claimed: false })
                }
                (None, _) => None,
            }
        })
    }

    /// Whether a live allocation of this ceiling, unprotected, would be the one of R4 (i).
    pub(crate) fn would_yield_first(&self, id: AllocationId, ceiling: Price) -> bool {
        let first_live = match self.levels.first_key_value() {
            None => true,
            Some((lowest, level)) => {
                ceiling < *lowest
                    || ceiling == *lowest && level.unprotected.last().is_none_or(|newest| *newest < id)
            }
        };
        first_live && self.claims.first().is_none_or(|(claim, ..)| ceiling < *claim)
    }
}
