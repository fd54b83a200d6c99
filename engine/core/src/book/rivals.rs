//! The best losing bids of two tenants, so that the price for one tenant need not skip its own bids (R8).

use crate::book::ladder::{Handle, Ladder, Rank};
use crate::collections::id_map::Table;
use crate::collections::sorted_map::SortedMap;
use crate::types::units::AccountId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The best losing bids of the ladder down to `bound`, by tenant. There are as many as it takes to know two
/// tenants, so bids far below cost nothing here.
#[derive(Debug, Default)]
pub(crate) struct Rivals {
    /// The last known bid. None if all bids are known.
    bound: Option<Rank>,
    /// The number of known bids, and the number above which the bids after the two best tenants are
    /// dropped.
    known: usize,
    most: usize,
    tenants: Table<AccountId, Tenant>,
    /// The best bid of each tenant. The best of all comes last, where adding and removing moves
    /// nothing else.
    bests: SortedMap<Reverse<Rank>, AccountId>,
    /// The first two of `bests`.
    top: [Option<(Rank, AccountId)>; 2],
}

#[derive(Debug, Default)]
struct Tenant {
    best: Option<Rank>,
    /// Its bids with their handles. Some may no longer be losing bids of the ladder; they are skipped when
    /// they come up.
    bids: BinaryHeap<Reverse<(Rank, Handle)>>,
    waiting: usize,
}

/// The number of removed bids that a tenant's heap may have beside as many that wait.
const SLACK: usize = 32;
/// The number of bids known after the first of the ladder were read, if two tenants are among them.
const NEAR: usize = 32;

impl Rivals {
    /// Adds a losing bid of `ladder`. Returns true if `top` changed.
    pub(crate) fn insert(&mut self, tenant: AccountId, rank: Rank, handle: Handle, ladder: &Ladder) -> bool {
        if !self.knows(rank) {
            return false;
        }
        self.add(tenant, rank, handle, ladder);
        if self.known > self.most.max(2 * NEAR) {
            self.narrow(ladder);
        }
        self.find_top(rank)
    }

    /// Removes a bid that is no longer a losing bid of `ladder`. Returns true if `top` changed.
    pub(crate) fn remove(&mut self, tenant: AccountId, rank: Rank, ladder: &Ladder) -> bool {
        if !self.knows(rank) {
            return false;
        }
        self.known -= 1;
        let entry = self.tenants.get_mut(&tenant).expect("a tenant whose bid waited");
        entry.waiting -= 1;
        if entry.best != Some(rank) {
            return false;
        }
        self.bests.remove(Reverse(rank));
        while let Some(Reverse((rank, handle))) = entry.bids.peek()
            && !ladder.has_losing(*handle, *rank)
        {
            entry.bids.pop();
        }
        entry.best = entry.bids.peek().map(|Reverse((rank, _))| *rank);
        if let Some(best) = entry.best {
            self.bests.insert(Reverse(best), tenant);
        }
        self.widen(ladder);
        self.find_top(rank)
    }

    fn knows(&self, rank: Rank) -> bool {
        self.bound.is_none_or(|bound| rank <= bound)
    }

    fn add(&mut self, tenant: AccountId, rank: Rank, handle: Handle, ladder: &Ladder) {
        self.known += 1;
        let entry = self.tenants.entry(tenant).or_default();
        entry.bids.push(Reverse((rank, handle)));
        entry.waiting += 1;
        if entry.bids.len() > 2 * entry.waiting + SLACK {
            // A bid that counts again is here twice.
            let mut bids = std::mem::take(&mut entry.bids).into_vec();
            bids.retain(|Reverse((rank, handle))| ladder.has_losing(*handle, *rank));
            bids.sort_unstable();
            bids.dedup();
            entry.bids = bids.into();
        }
        if entry.best.is_none_or(|best| rank < best) {
            if let Some(best) = entry.best.replace(rank) {
                self.bests.remove(Reverse(best));
            }
            self.bests.insert(Reverse(rank), tenant);
        }
    }

    /// Keeps only the first bids of the ladder, if these belong to two tenants.
    fn narrow(&mut self, ladder: &Ladder) {
        let near = || ladder.losing_after(Rank::FIRST).take(NEAR);
        let mut tenants = near().map(|(_, tenant, _)| tenant);
        let first = tenants.next();
        if !tenants.any(|tenant| Some(tenant) != first) {
            self.most = 2 * self.known;
            return;
        }
        *self = Rivals { top: self.top, ..Rivals::default() };
        for (rank, tenant, handle) in near() {
            self.add(tenant, rank, handle, ladder);
            self.bound = Some(rank);
        }
    }

    /// Reads on down the ladder, if fewer than two tenants are known. Reads as many bids again as are
    /// known, so that it does not have to read again soon.
    fn widen(&mut self, ladder: &Ladder) {
        let Some(bound) = self.bound.filter(|_| self.bests.len() < 2) else { return };
        let least = self.known + self.known.max(NEAR);
        let mut further = ladder.losing_after(bound);
        while self.bests.len() < 2 || self.known < least {
            let Some((rank, tenant, handle)) = further.next() else {
                self.bound = None;
                break;
            };
            self.add(tenant, rank, handle, ladder);
            self.bound = Some(rank);
        }
        self.most = self.most.max(2 * self.known);
    }

    /// Finds `top` again after a change among the best bids at a rank. Bids after the second one do not matter.
    fn find_top(&mut self, rank: Rank) -> bool {
        if self.top[1].is_some_and(|(second, _)| second < rank) {
            return false;
        }
        let mut bests = self.bests.iter().rev().map(|(Reverse(rank), tenant)| (rank, tenant));
        self.top = [bests.next(), bests.next()];
        true
    }

    /// Returns the best bids of the two tenants that have the highest ones.
    pub(crate) fn top(&self) -> [Option<(Rank, AccountId)>; 2] {
        self.top
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::money::Price;
    use crate::types::units::{BidId, Seq};
    use std::collections::BTreeMap;

    #[test]
    fn the_best_of_two_tenants_are_known() {
        let mut random = crate::collections::random::below(3);
        // Bids of many tenants, of few, and of one tenant that has nearly all of them.
        for (tenants, often) in [(300, 0), (3, 0), (3, 97), (300, 97)] {
            let (mut ladder, mut rivals, mut naive) = (Ladder::default(), Rivals::default(), BTreeMap::new());
            let (mut changes, mut narrowed) = (0, 0);
            for seq in 1..20_000u64 {
                let rising = seq % 4_000 < 2_500;
                if random(10) < if rising { 7 } else { 2 } {
                    let tenant = if random(100) < often { 0 } else { random(tenants) };
                    let tenant = AccountId(tenant as u32);
                    let rank = Rank { ceiling: Reverse(Price(random(200))), seq: Seq(seq) };
                    let handle = ladder.insert(BidId(seq), tenant, rank);
                    naive.insert(rank, (tenant, handle));
                    let before = rivals.top();
                    let has_changed = rivals.insert(tenant, rank, handle, &ladder);
                    assert!(has_changed || before == rivals.top());
                    changes += u64::from(has_changed);
                } else if !naive.is_empty() {
                    // Often the first or the second, so that another bid takes its
                    // place.
                    let among = if random(2) == 0 { naive.len().min(3) } else { naive.len() };
                    let (rank, (tenant, handle)) =
                        naive.iter().nth(random(among as u64) as usize).map(|(r, o)| (*r, *o)).unwrap();
                    ladder.remove(handle);
                    naive.remove(&rank);
                    let before = rivals.top();
                    assert!(rivals.remove(tenant, rank, &ladder) || before == rivals.top());
                }
                let first = naive.iter().next().map(|(rank, (tenant, _))| (*rank, *tenant));
                let mut others = naive.iter().map(|(rank, (tenant, _))| (*rank, *tenant));
                let second = others.find(|(_, tenant)| Some(*tenant) != first.map(|(_, tenant)| tenant));
                assert_eq!(rivals.top(), [first, second]);
                narrowed += u64::from(rivals.bound.is_some());
            }
            assert!(changes > 100 && narrowed > 1_000, "{changes} {narrowed}");
        }
    }
}
