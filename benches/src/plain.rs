//! The plain stream of an order book, on one side of it: half of the orders are placed and rest, four in ten of
//! those that rest are cancelled, one in ten takes the best.

use kubebid_core::units::{AccountId, BidId, Seq};
use kubebid_core::{Handle, Ladder, Price, Rank};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;

/// Of `market`, one of many, in which orders are numbered from 1.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Place { market: u32, id: u64, price: u64 },
    Cancel { market: u32, id: u64 },
    Take { market: u32 },
}

/// Orders placed one after another, and the stream that goes on from there.
#[derive(Debug)]
pub struct Plain {
    pub markets: u32,
    pub resting: Vec<Op>,
    pub ops: Vec<Op>,
}

/// How many different prices orders have.
const PRICES: u64 = 1000;

/// What the stream is played on.
pub trait Book: Default {
    fn place(&mut self, id: u64, price: u64);
    fn cancel(&mut self, id: u64);
    /// Takes the best order and says which it was.
    fn take(&mut self) -> Option<u64>;
}

/// The exchange's ladder, and each order's handle by number: the exchange has that with its bids.
#[derive(Debug, Default)]
pub struct NumberedLadder {
    ladder: Ladder,
    handles: Vec<Option<Handle>>,
}

impl NumberedLadder {
    fn rests(&self, id: u64) -> bool {
        self.handles[id as usize].is_some()
    }
}

impl Book for NumberedLadder {
    fn place(&mut self, id: u64, price: u64) {
        let rank = Rank { ceiling: Reverse(Price(price)), seq: Seq(id) };
        let handle = self.ladder.insert(BidId(id), AccountId(0), rank);
        if self.handles.len() <= id as usize {
            self.handles.resize(id as usize + 1, None);
        }
        self.handles[id as usize] = Some(handle);
    }

    fn cancel(&mut self, id: u64) {
        if let Some(handle) = self.handles[id as usize].take() {
            self.ladder.remove(handle);
        }
    }

    fn take(&mut self) -> Option<u64> {
        let (_, BidId(best)) = self.ladder.first()?;
        self.cancel(best);
        Some(best)
    }
}

impl Plain {
    /// `resting` orders in each of `markets`, and `ops` that follow.
    pub fn new(markets: u32, resting: usize, ops: usize) -> Plain {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut stream = Plain { markets, resting: Vec::new(), ops: Vec::new() };
        // Which orders rest is known only to a book.
        let mut books: Vec<NumberedLadder> = (0..markets).map(|_| NumberedLadder::default()).collect();
        let mut live: Vec<Vec<u64>> = vec![Vec::new(); markets as usize];
        let mut last = vec![0; markets as usize];
        while stream.ops.len() < ops {
            let fills = stream.resting.len() < resting * markets as usize;
            let market =
                if fills { stream.resting.len() as u32 % markets } else { rng.random_range(0..markets) };
            let (book, live) = (&mut books[market as usize], &mut live[market as usize]);
            let op = match if fills { 0 } else { rng.random_range(0..10) } {
                0..=4 => {
                    let id = &mut last[market as usize];
                    *id += 1;
                    let price = rng.random_range(1..=PRICES) * crate::TICK;
                    live.push(*id);
                    Op::Place { market, id: *id, price }
                }
                5..=8 => {
                    // An order that was taken meanwhile is found to be gone.
                    let id = std::iter::from_fn(|| {
                        (!live.is_empty()).then(|| live.swap_remove(rng.random_range(0..live.len())))
                    });
                    let Some(id) = { id }.find(|id| book.rests(*id)) else { continue };
                    Op::Cancel { market, id }
                }
                _ => Op::Take { market },
            };
            op.play(book);
            if fills { stream.resting.push(op) } else { stream.ops.push(op) }
        }
        stream
    }

    /// Books on which the orders rest already.
    pub fn books<B: Book>(&self) -> Vec<B> {
        let mut books: Vec<B> = (0..self.markets).map(|_| B::default()).collect();
        for op in &self.resting {
            op.play(&mut books[op.market() as usize]);
        }
        books
    }
}

impl Op {
    pub fn market(&self) -> u32 {
        match self {
            Op::Place { market, .. } | Op::Cancel { market, .. } | Op::Take { market } => *market,
        }
    }

    /// Says which order was taken, if one was.
    pub fn play<B: Book>(&self, book: &mut B) -> Option<u64> {
        match *self {
            Op::Place { id, price, .. } => book.place(id, price),
            Op::Cancel { id, .. } => book.cancel(id),
            Op::Take { .. } => return book.take(),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ladder_that_is_warm_allocates_nothing() {
        let stream = Plain::new(1, 5_000, 100_000);
        let mut ladders = stream.books::<NumberedLadder>();
        let (warm, steady) = stream.ops.split_at(stream.ops.len() / 2);
        warm.iter().for_each(|op| _ = op.play(&mut ladders[0]));
        let counted =
            allocation_counter::measure(|| steady.iter().for_each(|op| _ = op.play(&mut ladders[0])));
        // A list of vacant places may double once more; no operation allocates by itself.
        assert!(counted.count_total <= 8, "{} allocations", counted.count_total);
    }
}
