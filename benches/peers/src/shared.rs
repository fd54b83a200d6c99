//! One book for several threads, in two ways: all change one concurrent skip list, or all hand their orders over
//! to one thread that owns a ladder and tells them what came of it.

use benches::plain::{NumberedLadder, Op};
use crossbeam_queue::ArrayQueue;
use crossbeam_skiplist::SkipMap;
use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Orders by price, at one price the older first, for whoever comes. Who cancels must know the price: a book
/// that looks it up needs a second shared table.
#[derive(Debug, Default)]
pub struct SkipBook(SkipMap<(Reverse<u64>, u64), ()>);

impl SkipBook {
    pub fn place(&self, id: u64, price: u64) {
        self.0.insert((Reverse(price), id), ());
    }

    pub fn cancel(&self, id: u64, price: u64) {
        self.0.remove(&(Reverse(price), id));
    }

    pub fn take(&self) -> Option<u64> {
        self.0.pop_front().map(|entry| entry.key().1)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// As many as an intake holds.
const CAPACITY: usize = 16_384;
/// What a producer has on the way at most, as so many callers would.
const WINDOW: usize = 256;

/// Each producer plays its operations on the skip list; returns what it took.
pub fn play_on_skip_list(book: &SkipBook, prices: &[u64], producers: &[Vec<Op>]) -> Vec<Vec<Option<u64>>> {
    let play = |op: &Op| match *op {
        Op::Place { id, price, .. } => {
            book.place(id, price);
            None
        }
        Op::Cancel { id, .. } => {
            book.cancel(id, prices[id as usize]);
            None
        }
        Op::Take { .. } => book.take(),
    };
    thread::scope(|scope| {
        let playing: Vec<_> = producers
            .iter()
            .map(|ops| scope.spawn(move || ops.iter().map(play).collect::<Vec<Option<u64>>>()))
            .collect();
        playing.into_iter().map(|producer| producer.join().expect("it plays")).collect()
    })
}

/// Each producer hands its operations over to one writer, through a queue of the kind that the intake is, and is
/// told what came of each; returns what it took.
pub fn play_by_hand_over(book: &mut NumberedLadder, producers: &[Vec<Op>]) -> Vec<Vec<Option<u64>>> {
    let intake: ArrayQueue<(usize, Op)> = ArrayQueue::new(CAPACITY);
    let answers: Vec<ArrayQueue<Option<u64>>> = producers.iter().map(|_| ArrayQueue::new(WINDOW)).collect();
    let done = AtomicBool::new(false);
    let (intake, answers, done) = (&intake, &answers, &done);
    thread::scope(|scope| {
        scope.spawn(move || {
            loop {
                while let Some((from, op)) = intake.pop() {
                    answers[from].push(op.play(book)).expect("no more than a window is on the way");
                }
                if done.load(Ordering::Acquire) && intake.is_empty() {
                    return;
                }
                thread::yield_now();
            }
        });
        let playing: Vec<_> = producers
            .iter()
            .enumerate()
            .map(|(me, ops)| scope.spawn(move || hand_over(me, ops, intake, &answers[me])))
            .collect();
        let taken = playing.into_iter().map(|producer| producer.join().expect("it plays")).collect();
        done.store(true, Ordering::Release);
        taken
    })
}

fn hand_over(
    me: usize,
    ops: &[Op],
    intake: &ArrayQueue<(usize, Op)>,
    answers: &ArrayQueue<Option<u64>>,
) -> Vec<Option<u64>> {
    let mut taken = Vec::with_capacity(ops.len());
    let mut sent = 0;
    while taken.len() < ops.len() {
        while sent < ops.len() && sent - taken.len() < WINDOW && intake.push((me, ops[sent])).is_ok() {
            sent += 1;
        }
        let before = taken.len();
        taken.extend(std::iter::from_fn(|| answers.pop()));
        if taken.len() == before {
            thread::yield_now();
        }
    }
    taken
}

/// Deals the operations out: an order is cancelled by the producer that placed it, one of them all those that
/// rest at the beginning; who takes changes in turn.
pub fn deal(ops: &[Op], producers: usize) -> Vec<Vec<Op>> {
    let mut dealt: Vec<Vec<Op>> = vec![Vec::new(); producers];
    for (n, op) in ops.iter().enumerate() {
        let to = match op {
            Op::Place { id, .. } | Op::Cancel { id, .. } => *id as usize,
            Op::Take { .. } => n,
        };
        dealt[to % producers].push(*op);
    }
    dealt
}

/// The price of each order, by its id.
pub fn prices<'a>(ops: impl IntoIterator<Item = &'a Op>) -> Vec<u64> {
    let mut prices = vec![0];
    for op in ops {
        if let Op::Place { id, price, .. } = op {
            assert_eq!(*id as usize, prices.len(), "ids are given in a row");
            prices.push(*price);
        }
    }
    prices
}

#[cfg(test)]
mod tests {
    use super::*;
    use benches::plain::{NumberedLadder, Plain};
    use std::collections::BTreeSet;

    fn skip_list(stream: &Plain) -> SkipBook {
        let book = SkipBook::default();
        for op in &stream.resting {
            if let Op::Place { id, price, .. } = *op {
                book.place(id, price);
            }
        }
        book
    }

    #[test]
    fn one_producer_takes_the_same_orders_either_way() {
        let stream = Plain::new(1, 1000, 20_000);
        let prices = prices(stream.resting.iter().chain(&stream.ops));
        let dealt = deal(&stream.ops, 1);
        let on_skip_list = play_on_skip_list(&skip_list(&stream), &prices, &dealt);
        let by_hand_over = play_by_hand_over(&mut stream.books::<NumberedLadder>()[0], &dealt);
        assert_eq!(on_skip_list, by_hand_over);
        assert!(by_hand_over[0].iter().flatten().count() > 1000);
    }

    #[test]
    fn two_producers_never_take_the_same_order() {
        let stream = Plain::new(1, 1000, 40_000);
        let prices = prices(stream.resting.iter().chain(&stream.ops));
        let dealt = deal(&stream.ops, 2);
        let takes = stream.ops.iter().filter(|op| matches!(op, Op::Take { .. })).count();
        for taken in [
            play_on_skip_list(&skip_list(&stream), &prices, &dealt),
            play_by_hand_over(&mut stream.books::<NumberedLadder>()[0], &dealt),
        ] {
            let taken: Vec<u64> = taken.into_iter().flatten().flatten().collect();
            let different: BTreeSet<u64> = taken.iter().copied().collect();
            assert_eq!(taken.len(), different.len());
            assert_eq!(taken.len(), takes, "there was always one to take");
        }
    }
}
