//! Each tenant's best bid, so that the price for a tenant need not count its own (R8).

use crate::book::ladder::{Handle, Ladder, Rank};
use crate::sorted::Sorted;
use crate::table::Table;
use crate::units::AccountId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug, Default)]
pub(crate) struct Rivals {
    tenants: Table<AccountId, Tenant>,
    /// The best last, where what comes and goes moves nothing else.
    bests: Sorted<Reverse<Rank>, AccountId>,
    /// The first two of `bests`.
    top: [Option<(Rank, AccountId)>; 2],
}

#[derive(Debug, Default)]
struct Tenant {
    best: Option<Rank>,
    /// Its bids with their handles, and some that are on the ladder no more: they are passed over when they come up.
    bids: BinaryHeap<Reverse<(Rank, Handle)>>,
    waiting: usize,
}

/// How many bids that are gone a tenant's heap may have beside as many that wait.
const SLACK: usize = 32;

impl Rivals {
    /// Behind `ladder`, on which the bid is by now. Whether `top` changed.
    pub(crate) fn insert(&mut self, tenant: AccountId, rank: Rank, handle: Handle, ladder: &Ladder) -> bool {
        let entry = self.tenants.entry(tenant).or_default();
        entry.bids.push(Reverse((rank, handle)));
        entry.waiting += 1;
        if entry.bids.len() > 2 * entry.waiting + SLACK {
            entry.bids.retain(|Reverse((rank, handle))| ladder.has(*handle, *rank));
        }
        if entry.best.is_some_and(|best| best < rank) {
            return false;
        }
        if let Some(best) = entry.best.replace(rank) {
            self.bests.remove(Reverse(best));
        }
        self.bests.insert(Reverse(rank), tenant);
        self.find_top(rank)
    }

    /// Behind `ladder`, from which the bid is gone by now. Whether `top` changed.
    pub(crate) fn remove(&mut self, tenant: AccountId, rank: Rank, ladder: &Ladder) -> bool {
        let entry = self.tenants.get_mut(&tenant).expect("a tenant whose bid waited");
        entry.waiting -= 1;
        if entry.best != Some(rank) {
            return false;
        }
        self.bests.remove(Reverse(rank));
        while let Some(Reverse((rank, handle))) = entry.bids.peek()
            && !ladder.has(*handle, *rank)
        {
            entry.bids.pop();
        }
        entry.best = entry.bids.peek().map(|Reverse((rank, _))| *rank);
        if let Some(best) = entry.best {
            self.bests.insert(Reverse(best), tenant);
        }
        self.find_top(rank)
    }

    /// After a change among the bests at a rank; those behind the second are of no consequence.
    fn find_top(&mut self, rank: Rank) -> bool {
        if self.top[1].is_some_and(|(second, _)| second < rank) {
            return false;
        }
        let mut bests = self.bests.iter().rev().map(|(Reverse(rank), tenant)| (rank, tenant));
        self.top = [bests.next(), bests.next()];
        true
    }

    /// The best bids of the two tenants that have the highest.
    pub(crate) fn top(&self) -> [Option<(Rank, AccountId)>; 2] {
        self.top
    }
}
