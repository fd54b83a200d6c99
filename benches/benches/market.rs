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
use benches::plain::{Book, Plain};
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};
use kubebid_core::answer::Auction;
use kubebid_core::{Exchange, Ladder, Stamped};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Operations that are played on one state before it is made anew.
const LENGTH: usize = 500_000;

fn plain(criterion: &mut Criterion) {
    for (name, markets, resting) in [("1x10k", 1, 10_000), ("100x1k", 100, 1_000), ("1x1M", 1, 1_000_000)] {
        let mut group = criterion.benchmark_group(format!("plain/{name}"));
        let stream = Plain::new(markets, resting, LENGTH);
        play_plain::<Ladder>(&mut group, "ladder", &stream);
        play_plain::<Naive>(&mut group, "naive", &stream);
        group.finish();
    }
}

fn play_plain<B: Book>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, stream: &Plain) {
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| {
            in_rounds(
                iterations,
                || stream.books::<B>(),
                |books, count| {
                    for op in &stream.ops[..count] {
                        black_box(op.play(&mut books[op.market() as usize]));
                    }
                },
            )
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
    commands: &[Stamped],
    exchange: impl Fn() -> Exchange,
) {
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| {
            in_rounds(iterations, &exchange, |exchange, count| {
                for command in &commands[..count] {
                    black_box(exchange.apply(command));
                }
            })
        });
    });
}

/// The time of so many steps, in rounds that begin with a state made anew.
fn in_rounds<S>(steps: u64, make: impl Fn() -> S, play: impl Fn(&mut S, usize)) -> Duration {
    let (mut left, mut time) = (steps as usize, Duration::ZERO);
    while left > 0 {
        let mut state = make();
        let count = left.min(LENGTH);
        let started = Instant::now();
        play(&mut state, count);
        time += started.elapsed();
        left -= count;
    }
    time
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(3));
    targets = plain, one_node, overloaded
}
criterion_main!(benches);
