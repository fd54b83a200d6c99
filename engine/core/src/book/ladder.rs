//! Orders by price, at one price the older first: the ladder on which bids wait.
//!
//! Orders lie in one slab and are linked in the row of their price, so that what is usual moves nothing but
//! links: an order that comes behind all others of its price, one that goes from anywhere, the best. An order
//! that comes back to an older place than others of its price have (R7) waits in a tree beside the row.

use crate::book::prices::PriceMap;
use crate::money::Price;
use crate::slab::Slab;
use crate::table::Table;
use crate::units::{BidId, Seq};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A bid's place among others: higher ceiling first, then lower `seq` (R2). Unique, since a
/// command concerns one bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    pub ceiling: Reverse<Price>,
    pub seq: Seq,
}

/// Bids in the order of their ranks.
#[derive(Debug, Default)]
pub struct Ladder {
    orders: Slab<Order>,
    rows: Slab<Row>,
    prices: PriceMap<u32>,
    slots: Table<BidId, u32>,
}

#[derive(Clone, Copy, Debug)]
struct Order {
    bid: BidId,
    seq: Seq,
    row: u32,
    /// Its neighbours in the row.
    before: u32,
    behind: u32,
}

/// The orders of one price.
#[derive(Debug)]
struct Row {
    price: Price,
    first: u32,
    last: u32,
    /// Those that came back to an older place, which are not linked.
    returned: BTreeMap<Seq, u32>,
}

/// No neighbour.
const NONE: u32 = u32::MAX;
/// For both neighbours: the order is not linked.
const RETURNED: u32 = u32::MAX - 1;

impl Ladder {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// A bid is on the ladder once.
    pub fn insert(&mut self, bid: BidId, rank: Rank) {
        let (price, seq) = (rank.ceiling.0, rank.seq);
        let rows = &mut self.rows;
        let empty = || Row { price, first: NONE, last: NONE, returned: BTreeMap::new() };
        let row = *self.prices.or_insert_with(price, || rows.put(empty()));
        let last = self.rows[row].last;
        let slot = if last == NONE || self.orders[last].seq < seq {
            let slot = self.orders.put(Order { bid, seq, row, before: last, behind: NONE });
            match last {
                NONE => self.rows[row].first = slot,
                last => self.orders[last].behind = slot,
            }
            self.rows[row].last = slot;
            slot
        } else {
            let slot = self.orders.put(Order { bid, seq, row, before: RETURNED, behind: RETURNED });
            self.rows[row].returned.insert(seq, slot);
            slot
        };
        let twice = self.slots.insert(bid, slot);
        debug_assert!(twice.is_none(), "bid {bid} is on the ladder twice");
    }

    /// False where the bid is not on the ladder.
    pub fn remove(&mut self, bid: BidId) -> bool {
        let Some(slot) = self.slots.remove(&bid) else { return false };
        let Order { seq, row: at, before, behind, .. } = self.orders[slot];
        self.orders.free(slot);
        let row = &mut self.rows[at];
        if before == RETURNED {
            row.returned.remove(&seq);
        } else {
            match before {
                NONE => row.first = behind,
                before => self.orders[before].behind = behind,
            }
            match behind {
                NONE => row.last = before,
                behind => self.orders[behind].before = before,
            }
        }
        if row.first == NONE && row.returned.is_empty() {
            self.prices.remove(row.price);
            self.rows.free(at);
        }
        true
    }

    pub fn rank(&self, bid: BidId) -> Option<Rank> {
        Some(self.rank_at(*self.slots.get(&bid)?))
    }

    fn rank_at(&self, slot: u32) -> Rank {
        let order = &self.orders[slot];
        Rank { ceiling: Reverse(self.rows[order.row].price), seq: order.seq }
    }

    /// The best bid.
    pub fn first(&self) -> Option<(Rank, BidId)> {
        let (price, row) = self.prices.last()?;
        let Row { first, returned, .. } = &self.rows[row];
        let slot = match returned.first_key_value() {
            Some((seq, slot)) if *first == NONE || *seq < self.orders[*first].seq => *slot,
            Some(_) | None => *first,
        };
        let Order { bid, seq, .. } = self.orders[slot];
        Some((Rank { ceiling: Reverse(price), seq }, bid))
    }

    /// The bid that comes next behind a rank.
    pub fn after(&self, rank: Rank) -> Option<(Rank, BidId)> {
        let (price, row) = self.prices.at_most(rank.ceiling.0)?;
        let mut rest = self.row(row).filter(|order| price < rank.ceiling.0 || order.seq > rank.seq);
        let order = rest.next().or_else(|| {
            let (_, row) = self.prices.at_most(Price(price.0.checked_sub(1)?))?;
            self.row(row).next()
        })?;
        Some((Rank { ceiling: Reverse(self.rows[order.row].price), seq: order.seq }, order.bid))
    }

    /// The best first.
    pub fn iter(&self) -> impl Iterator<Item = (Rank, BidId)> {
        self.prices.iter().rev().flat_map(|(price, row)| {
            let ceiling = Reverse(price);
            self.row(row).map(move |order| (Rank { ceiling, seq: order.seq }, order.bid))
        })
    }

    /// The orders of one price, the oldest first.
    fn row(&self, at: u32) -> impl Iterator<Item = &Order> {
        let Row { first, returned, .. } = &self.rows[at];
        let order = |slot: u32| (slot != NONE).then(|| &self.orders[slot]);
        let mut linked = std::iter::successors(order(*first), move |o| order(o.behind)).peekable();
        let mut returned = returned.values().map(|slot| &self.orders[*slot]).peekable();
        std::iter::from_fn(move || match (linked.peek(), returned.peek()) {
            (Some(one), Some(other)) if other.seq < one.seq => returned.next(),
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
        let mut random = crate::random::below(5);
        for prices in [3, 1000] {
            let (mut ladder, mut naive, mut gone) = (Ladder::default(), BTreeMap::new(), Vec::new());
            for seq in 1..10_000u64 {
                let rank = match random(8) {
                    // Back to an old place.
                    0 if !gone.is_empty() => gone.swap_remove(random(gone.len() as u64) as usize),
                    _ => Rank { ceiling: Reverse(Price(random(prices))), seq: Seq(seq) },
                };
                let bid = BidId(rank.seq.0);
                ladder.insert(bid, rank);
                naive.insert(rank, bid);
                while random(5) < 2 && !naive.is_empty() {
                    let at = random(naive.len().min(50) as u64) as usize;
                    let (rank, bid) = naive.iter().nth(at).map(|(rank, bid)| (*rank, *bid)).unwrap();
                    assert_eq!(ladder.rank(bid), Some(rank));
                    assert!(ladder.remove(bid) && !ladder.remove(bid));
                    naive.remove(&rank);
                    gone.push(rank);
                }
                assert_eq!(ladder.first(), naive.first_key_value().map(|(rank, bid)| (*rank, *bid)));
                let after = naive.range(rank..).find(|(other, _)| **other != rank);
                assert_eq!(ladder.after(rank), after.map(|(rank, bid)| (*rank, *bid)));
                assert_eq!(ladder.len(), naive.len());
            }
            assert!(ladder.iter().eq(naive.iter().map(|(rank, bid)| (*rank, *bid))));
            assert!(gone.len() > 100 && naive.len() > 100);
        }
    }
}
