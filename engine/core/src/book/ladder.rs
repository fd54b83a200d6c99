//! Price levels of waiting bids: by price, and at one price the bid with the lower `seq` first (R2): the one that got its
//! ceiling, or was last enlarged, the longest ago.
//!
//! Orders are in one slab, and the orders of one price are linked in a row. So the usual changes only set
//! links: adding an order that comes after all others of its price, removing any order, finding the best
//! one. An order that returns to a place before others of its price (R7) waits in a tree beside the row.

use crate::collections::slab::Slab;
use crate::collections::sorted_map::SortedMap;
use crate::types::money::Price;
use crate::types::units::{AccountId, BidId, Seq};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// The place of a bid among others: higher ceiling first, then lower `seq` (R2). It is unique, because a
/// command concerns one bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The bid's ceiling, reversed so that the higher ceiling comes first.
    pub ceiling: Reverse<Price>,
    /// The number of the command that last gave the bid a new ceiling or enlarged it.
    pub seq: Seq,
}

impl Rank {
    /// Returns the rank as one number, so that one step compares it.
    fn number(self) -> u128 {
        u128::from(!self.ceiling.0.0) << 64 | u128::from(self.seq.0)
    }

    /// A rank before that of every bid.
    pub(crate) const FIRST: Rank = Rank { ceiling: Reverse(Price(u64::MAX)), seq: Seq(0) };
}

impl Ord for Rank {
    fn cmp(&self, other: &Rank) -> Ordering {
        self.number().cmp(&other.number())
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Rank) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Handle of a bid in the ladder. Reused after the bid is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(NonZeroU32);

impl Handle {
    fn of(order: u32) -> Handle {
        Handle(NonZeroU32::MIN.saturating_add(order))
    }

    fn order(self) -> u32 {
        self.0.get() - 1
    }
}

/// Bids in the order of their ranks.
#[derive(Debug, Default)]
pub struct Ladder {
    orders: Slab<Order>,
    rows: Slab<Row>,
    prices: SortedMap<Price, u32>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Order {
    bid: BidId,
    seq: Seq,
    tenant: AccountId,
    /// The number of nodes it wants.
    nodes: u32,
    /// True if it counts among the losing bids (R8).
    losing: bool,
    /// The row of its price; [`NONE`] once the order is removed.
    row: u32,
    /// The neighbours in the row.
    before: u32,
    next: u32,
}

/// The orders of one price.
#[derive(Debug)]
struct Row {
    price: Price,
    first: u32,
    last: u32,
    /// The sum of the nodes that its orders want.
    nodes: u64,
    /// Bids that returned to an older place. They are not linked, and there are rarely any.
    #[expect(clippy::box_collection, reason = "there are many rows, few have any")]
    returned: Option<Box<BTreeMap<Seq, u32>>>,
}

/// The value for no neighbour and for no row.
const NONE: u32 = u32::MAX;
/// The value of both neighbours of an order that is not linked.
const RETURNED: u32 = u32::MAX - 1;

impl Ladder {
    /// Returns the number of bids on the ladder.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no bid is on the ladder.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a bid and returns its handle. A bid may be on the ladder only once.
    pub fn insert(&mut self, bid: BidId, tenant: AccountId, rank: Rank) -> Handle {
        let (price, seq) = (rank.ceiling.0, rank.seq);
        let rows = &mut self.rows;
        let empty = || Row { price, first: NONE, last: NONE, nodes: 0, returned: None };
        let at = *self.prices.or_insert_with(price, || rows.put(empty()));
        let row = &mut self.rows[at];
        self.len += 1;
        let last = row.last;
        if last != NONE && self.orders[last].seq >= seq {
            let (before, next) = (RETURNED, RETURNED);
            let order =
                self.orders.put(Order { bid, seq, tenant, nodes: 0, losing: true, row: at, before, next });
            row.returned.get_or_insert_default().insert(seq, order);
            return Handle::of(order);
        }
        let (before, next) = (last, NONE);
        let order =
            self.orders.put(Order { bid, seq, tenant, nodes: 0, losing: true, row: at, before, next });
        row.last = order;
        match last {
            NONE => row.first = order,
            last => self.orders[last].next = order,
        }
        Handle::of(order)
    }

    /// Removes a bid. Each handle may be used once. Returns true if the bid counted among the losing bids.
    pub fn remove(&mut self, handle: Handle) -> bool {
        let order = &mut self.orders[handle.order()];
        let Order { seq, nodes, losing, row: at, before, next, .. } = *order;
        order.row = NONE;
        self.orders.free(handle.order());
        self.len -= 1;
        let row = &mut self.rows[at];
        row.nodes -= u64::from(nodes);
        if before == RETURNED {
            let mut returned = row.returned.take().expect("it came back");
            returned.remove(&seq);
            row.returned = Some(returned).filter(|returned| !returned.is_empty());
        } else {
            match before {
                NONE => row.first = next,
                before => self.orders[before].next = next,
            }
            match next {
                NONE => row.last = before,
                next => self.orders[next].before = before,
            }
        }
        if row.first == NONE && row.returned.is_none() {
            self.prices.remove(row.price);
            self.rows.free(at);
        }
        losing
    }

    /// Sets the number of nodes that a bid wants, which is 0 after it is inserted. Only
    /// [`Ladder::levels`] depends on it.
    pub fn set_nodes(&mut self, handle: Handle, nodes: u32) {
        let order = &mut self.orders[handle.order()];
        let before = std::mem::replace(&mut order.nodes, nodes);
        let row = &mut self.rows[order.row];
        row.nodes = row.nodes - u64::from(before) + u64::from(nodes);
    }

    /// Sets if a bid counts among the losing bids, which it does after it is inserted. Returns if it did.
    pub(crate) fn set_losing(&mut self, handle: Handle, losing: bool) -> bool {
        std::mem::replace(&mut self.orders[handle.order()].losing, losing)
    }

    /// Returns each price, the highest first, with the sum of the nodes that its bids want.
    pub fn levels(&self) -> impl Iterator<Item = (Price, u64)> {
        self.prices.iter().rev().map(|(price, row)| (price, self.rows[row].nodes))
    }

    /// Returns true if the handle is that of a losing bid with this rank.
    pub(crate) fn has_losing(&self, handle: Handle, rank: Rank) -> bool {
        let order = &self.orders[handle.order()];
        order.losing
            && order.seq == rank.seq
            && order.row != NONE
            && self.rows[order.row].price == rank.ceiling.0
    }

    /// Returns the best bid.
    pub fn first(&self) -> Option<(Rank, BidId)> {
        let (price, row) = self.prices.last()?;
        let Row { first, returned, .. } = &self.rows[row];
        let order = match returned.as_ref().and_then(|returned| returned.first_key_value()) {
            Some((seq, order)) if *first == NONE || *seq < self.orders[*first].seq => *order,
            Some(_) | None => *first,
        };
        let Order { bid, seq, .. } = self.orders[order];
        Some((Rank { ceiling: Reverse(price), seq }, bid))
    }

    /// Returns the bid that comes next after a rank.
    pub fn after(&self, rank: Rank) -> Option<(Rank, BidId)> {
        self.orders_after(rank).next().map(|(rank, order)| (rank, self.orders[order].bid))
    }

    /// Returns all bids, the best first.
    pub fn iter(&self) -> impl Iterator<Item = (Rank, BidId)> {
        self.orders_after(Rank::FIRST).map(|(rank, order)| (rank, self.orders[order].bid))
    }

    /// Returns the tenants of the losing bids after a rank, the best first.
    pub(crate) fn losing_after(&self, rank: Rank) -> impl Iterator<Item = (Rank, AccountId, Handle)> {
        let losing = self.orders_after(rank).filter(|(_, order)| self.orders[*order].losing);
        losing.map(|(rank, order)| (rank, self.orders[order].tenant, Handle::of(order)))
    }

    /// Returns the orders after a rank, the best first.
    fn orders_after(&self, rank: Rank) -> impl Iterator<Item = (Rank, u32)> {
        let lower = |price: Price| self.prices.at_most(Price(price.0.checked_sub(1)?));
        let rows =
            std::iter::successors(self.prices.at_most(rank.ceiling.0), move |(price, _)| lower(*price));
        rows.flat_map(move |(price, row)| {
            let ceiling = Reverse(price);
            self.row(row).map(move |order| (Rank { ceiling, seq: self.orders[order].seq }, order))
        })
        .skip_while(move |(other, _)| *other <= rank)
    }

    /// Returns the orders of one price, the oldest first.
    fn row(&self, at: u32) -> impl Iterator<Item = u32> {
        let Row { first, returned, .. } = &self.rows[at];
        let linked = |at: u32| Some(at).filter(|at| *at != NONE);
        let linked = std::iter::successors(linked(*first), move |order| linked(self.orders[*order].next));
        let (mut linked, mut returned) =
            (linked.peekable(), returned.iter().flat_map(|returned| returned.values().copied()).peekable());
        std::iter::from_fn(move || match (linked.peek(), returned.peek()) {
            (Some(one), Some(other)) if self.orders[*other].seq < self.orders[*one].seq => returned.next(),
            (None, _) => returned.next(),
            (Some(_), _) => linked.next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ladder_is_a_sorted_map() {
        let mut random = crate::collections::random::below(5);
        for prices in [3, 1000] {
            let (mut ladder, mut naive, mut gone) = (Ladder::default(), BTreeMap::new(), Vec::new());
            for seq in 1..10_000u64 {
                let rank = match random(8) {
                    // The bid returns to a place that it had before.
                    0 if !gone.is_empty() => gone.swap_remove(random(gone.len() as u64) as usize),
                    _ => Rank { ceiling: Reverse(Price(random(prices))), seq: Seq(seq) },
                };
                let bid = BidId(rank.seq.0);
                naive.insert(rank, (bid, ladder.insert(bid, AccountId(0), rank)));
                while random(5) < 2 && !naive.is_empty() {
                    let at = random(naive.len().min(50) as u64) as usize;
                    let (rank, handle) =
                        naive.iter().nth(at).map(|(rank, (_, handle))| (*rank, *handle)).unwrap();
                    assert!(ladder.has_losing(handle, rank));
                    ladder.remove(handle);
                    assert!(!ladder.has_losing(handle, rank));
                    naive.remove(&rank);
                    gone.push(rank);
                }
                assert_eq!(ladder.first(), naive.first_key_value().map(|(rank, (bid, _))| (*rank, *bid)));
                let after = naive.range(rank..).find(|(other, _)| **other != rank);
                assert_eq!(ladder.after(rank), after.map(|(rank, (bid, _))| (*rank, *bid)));
                assert_eq!(ladder.len(), naive.len());
            }
            assert!(ladder.iter().eq(naive.iter().map(|(rank, (bid, _))| (*rank, *bid))));
            let mut levels: BTreeMap<Reverse<Price>, u64> = BTreeMap::new();
            for (rank, (bid, handle)) in &naive {
                let nodes = (bid.0 % 7) as u32;
                ladder.set_nodes(*handle, 3);
                ladder.set_nodes(*handle, nodes);
                *levels.entry(rank.ceiling).or_default() += u64::from(nodes);
            }
            assert!(ladder.levels().eq(levels.iter().map(|(price, nodes)| (price.0, *nodes))));
            assert!(gone.len() > 100 && naive.len() > 100);
        }
    }
}
