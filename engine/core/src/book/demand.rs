//! Bids with unmet demand in one market.

use crate::money::Price;
use crate::state::{Queued, Rank};
use crate::units::{AccountId, BidId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Bids that take one node at a time, in the order of R2.
    plain: BTreeMap<Rank, BidId>,
    /// The same by tenant, and each tenant's best: the price for a tenant does not count its own (R8).
    by_tenant: BTreeSet<(AccountId, Rank)>,
    tenants: BTreeSet<(Rank, AccountId)>,
    /// Waiting gangs, by the nodes they need, each in the order of R2 (R12).
    gangs: BTreeMap<(u32, Rank), BidId>,
}

/// The highest losing bid and the highest of all other tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losing {
    pub(crate) top: Option<(AccountId, Price)>,
    pub(crate) of_others: Price,
}

impl Demand {
    pub(crate) fn insert(&mut self, bid: BidId, tenant: AccountId, queued: Queued) {
        match queued.gang {
            Some(nodes) => {
                self.gangs.insert((nodes, queued.rank), bid);
            }
            None => {
                let before = self.best_of(tenant);
                self.plain.insert(queued.rank, bid);
                self.by_tenant.insert((tenant, queued.rank));
                self.move_tenant(tenant, before);
            }
        }
    }

    /// Takes the bid out where it is in.
    pub(crate) fn remove(&mut self, tenant: AccountId, queued: Queued) {
        match queued.gang {
            Some(nodes) => {
                self.gangs.remove(&(nodes, queued.rank));
            }
            None => {
                let before = self.best_of(tenant);
                self.plain.remove(&queued.rank);
                self.by_tenant.remove(&(tenant, queued.rank));
                self.move_tenant(tenant, before);
            }
        }
    }

    fn best_of(&self, tenant: AccountId) -> Option<Rank> {
        let (_, rank) = self.by_tenant.range((tenant, Rank::FIRST)..).next().filter(|(t, _)| *t == tenant)?;
        Some(*rank)
    }

    fn move_tenant(&mut self, tenant: AccountId, before: Option<Rank>) {
        let after = self.best_of(tenant);
        if before != after {
            before.map(|rank| self.tenants.remove(&(rank, tenant)));
            after.map(|rank| self.tenants.insert((rank, tenant)));
        }
    }

    pub(crate) fn losing(&self) -> Losing {
        let mut best = self.tenants.iter();
        Losing {
            top: best.next().map(|(rank, tenant)| (*tenant, rank.ceiling.0)),
            of_others: best.next().map_or(Price::ZERO, |(rank, _)| rank.ceiling.0),
        }
    }

    /// Plain bids in the order of R2.
    pub(crate) fn plain(&self) -> impl Iterator<Item = (Rank, BidId)> {
        self.plain.iter().map(|(rank, bid)| (*rank, *bid))
    }

    /// Waiting gangs, by the nodes they need.
    pub(crate) fn gangs(&self) -> impl Iterator<Item = (Rank, BidId)> {
        self.gangs.iter().map(|((_, rank), bid)| (*rank, *bid))
    }

    pub(crate) fn first(&self) -> Option<(Rank, BidId)> {
        self.plain.first_key_value().map(|(rank, bid)| (*rank, *bid))
    }

    /// The plain bid that comes next behind a rank.
    pub(crate) fn after(&self, rank: Rank) -> Option<(Rank, BidId)> {
        let behind = (Bound::Excluded(rank), Bound::Unbounded);
        self.plain.range(behind).next().map(|(rank, bid)| (*rank, *bid))
    }

    /// The first of the gangs that wait for a number of nodes, for each such number.
    pub(crate) fn first_gangs(&self) -> impl Iterator<Item = (u32, Rank, BidId)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let (&(nodes, rank), &bid) = self.gangs.range((next, Rank::FIRST)..).next()?;
            next = nodes + 1;
            Some((nodes, rank, bid))
        })
    }
}

impl Rank {
    /// Before any bid's.
    pub(crate) const FIRST: Rank =
        Rank { ceiling: std::cmp::Reverse(Price(u64::MAX)), seq: crate::units::Seq(0) };
}
