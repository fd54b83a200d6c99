//! The core alone: the ladder on which bids wait, beside a naive book in the same run; one-node bids and an
//! overloaded market as commands through `Exchange::apply`, all rules, numbers and events included. Left out:
//! the journal, the wire, keys, and the making of the commands.
//!
//! ```sh
//! cargo bench -p benches --bench market
//! ```

use benches::naive::Naive;
use benches::one_node::OneNode;
use benches::overloaded::{Overloaded, Prices};
use benches::plain::{Book, NumberedLadder, Plain};
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};
use kubebid_core::answer::Auction;
use kubebid_core::{Exchange, StampedCommand};
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

/// As the programs have it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Operations that are played on one state before it is made anew.
const LENGTH: usize = 500_000;

fn plain(criterion: &mut Criterion) {
    for (name, markets, resting) in [("1x10k", 1, 10_000), ("100x1k", 100, 1_000), ("1x1M", 1, 1_000_000)] {
        let mut group = criterion.benchmark_group(format!("plain/{name}"));
        let stream = Plain::new(markets, resting, LENGTH);
        play_plain::<NumberedLadder>(&mut group, "ladder", &stream);
        play_plain::<Naive>(&mut group, "naive", &stream);
        group.finish();
    }
}

fn play_plain<B: Book>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, stream: &Plain) {
    let mut rounds = Rounds::new(|| stream.books::<B>());
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|steps| {
            rounds.play(steps, |books, at| {
                for op in &stream.ops[at] {
                    black_box(op.play(&mut books[op.market() as usize]));
                }
            })
        });
    });
}

fn one_node(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one_node");
    for (name, markets, waiting) in [("1x10k", 1, 10_000), ("100x1k", 100, 1_000), ("1x1M", 1, 1_000_000)] {
        let stream = OneNode::new(markets, waiting, LENGTH);
        apply(&mut group, name, &stream.commands, || stream.exchange());
    }
    group.finish();
}

fn overloaded(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("overloaded");
    for (size, live) in [("10k", 10_000), ("100k", 100_000), ("1M", 1_000_000)] {
        for (kind, prices) in [("grid", Prices::Grid), ("distinct", Prices::Distinct)] {
            let stream = Overloaded::new(live, prices, LENGTH);
            apply(&mut group, &format!("{size}/{kind}"), &stream.commands, || stream.exchange());
        }
    }
    group.finish();
}

fn apply(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    commands: &[StampedCommand],
    exchange: impl Fn() -> Exchange,
) {
    let mut rounds = Rounds::new(exchange);
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|steps| {
            rounds.play(steps, |exchange, at| {
                for command in &commands[at] {
                    black_box(exchange.apply(command));
                }
            })
        });
    });
}

/// A stream that is gone on with from one sample to the next; at its end the state is made anew.
struct Rounds<S, M> {
    make: M,
    state: S,
    at: usize,
}

impl<S, M: Fn() -> S> Rounds<S, M> {
    fn new(make: M) -> Rounds<S, M> {
        Rounds { state: make(), make, at: 0 }
    }

    /// The time of so many steps.
    fn play(&mut self, steps: u64, play: impl Fn(&mut S, Range<usize>)) -> Duration {
        let (mut left, mut time) = (steps as usize, Duration::ZERO);
        while left > 0 {
            if self.at == LENGTH {
                (self.state, self.at) = ((self.make)(), 0);
            }
            let end = (self.at + left).min(LENGTH);
            let started = Instant::now();
            play(&mut self.state, self.at..end);
            time += started.elapsed();
            left -= end - self.at;
            self.at = end;
        }
        time
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(3));
    targets = plain, one_node, overloaded
}
criterion_main!(benches);
