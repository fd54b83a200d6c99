//! The book that one writes first: queues by price in a sorted map, and where an order is in a hash map, both
//! of the standard library.

use crate::plain::Book;
use std::collections::{BTreeMap, HashMap, VecDeque};

#[derive(Debug, Default)]
pub struct Naive {
    queues: BTreeMap<u64, VecDeque<u64>>,
    prices: HashMap<u64, u64>,
}

impl Book for Naive {
    fn place(&mut self, id: u64, price: u64) {
        self.queues.entry(price).or_default().push_back(id);
        self.prices.insert(id, price);
    }

    fn cancel(&mut self, id: u64) {
        let Some(price) = self.prices.remove(&id) else { return };
        let queue = self.queues.get_mut(&price).expect("the queue of an order");
        let at = queue.binary_search(&id).expect("ids rise in a queue");
        queue.remove(at);
        if queue.is_empty() {
            self.queues.remove(&price);
        }
    }

    fn take(&mut self) -> Option<u64> {
        let mut best = self.queues.last_entry()?;
        let id = best.get_mut().pop_front()?;
        if best.get().is_empty() {
            best.remove();
        }
        self.prices.remove(&id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::{NumberedLadder, Plain};

    #[test]
    fn the_ladder_and_the_naive_book_take_the_same_orders() {
        let stream = Plain::new(3, 500, 20_000);
        let (mut ladders, mut naive) = (stream.books::<NumberedLadder>(), stream.books::<Naive>());
        for op in &stream.ops {
            let market = op.market() as usize;
            assert_eq!(op.play(&mut ladders[market]), op.play(&mut naive[market]));
        }
    }
}
