//! The plain stream on the ladder, on a naive book and on books of other people, which all take the same orders
//! (the tests of this package check it). At the end: what an operation took on average, and how many times the
//! naive book's. Left out: what the others keep beside the book, such as owners, quantities and statistics, is
//! not left out of their times; they cannot do without.
//!
//! ```sh
//! cargo bench --manifest-path benches/peers/Cargo.toml --bench plain
//! ```

use benches::naive::Naive;
use benches::plain::{Book, NumberedLadder, Plain};
use criterion::{Criterion, SamplingMode};
use peers::{Lobster, OrderBookRs};
use std::cell::RefCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Operations that are played on one state before it is made anew.
const LENGTH: usize = 200_000;

/// Of a book of this name: operations played, and the time they took.
type Tally = (String, u64, Duration);

fn main() {
    let config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(500));
    let mut criterion = config.measurement_time(Duration::from_secs(2)).configure_from_args();
    for (size, markets, resting) in [("1x10k", 1, 10_000), ("100x1k", 100, 1_000), ("1x1M", 1, 1_000_000)] {
        let stream = Plain::new(markets, resting, LENGTH);
        let tallies = RefCell::new(Vec::new());
        play::<Naive>(&mut criterion, size, "naive", &stream, &tallies);
        play::<NumberedLadder>(&mut criterion, size, "ladder", &stream, &tallies);
        play::<Lobster>(&mut criterion, size, "lobster", &stream, &tallies);
        play::<OrderBookRs>(&mut criterion, size, "orderbook-rs", &stream, &tallies);
        report(size, &tallies.into_inner());
    }
    criterion.final_summary();
}

fn play<B: Book>(
    criterion: &mut Criterion,
    size: &str,
    name: &str,
    stream: &Plain,
    tallies: &RefCell<Vec<Tally>>,
) {
    let mut group = criterion.benchmark_group(format!("plain/{size}"));
    group.sampling_mode(SamplingMode::Flat);
    let (mut played, mut time) = (0, Duration::ZERO);
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| {
            // Whole rounds, so that a short sample does not show the book at its beginning only.
            let rounds = iterations.div_ceil(LENGTH as u64);
            let took: Duration = (0..rounds).map(|_| round::<B>(stream)).sum();
            played += rounds * LENGTH as u64;
            time += took;
            took.mul_f64(iterations as f64 / (rounds * LENGTH as u64) as f64)
        });
    });
    group.finish();
    if played > 0 {
        tallies.borrow_mut().push((name.to_owned(), played, time));
    }
}

fn round<B: Book>(stream: &Plain) -> Duration {
    let mut books = stream.books::<B>();
    let started = Instant::now();
    for op in &stream.ops {
        black_box(op.play(&mut books[op.market() as usize]));
    }
    started.elapsed()
}

fn report(size: &str, tallies: &[Tally]) {
    let each = |(_, played, time): &Tally| time.as_nanos() as f64 / *played as f64;
    let naive = tallies.iter().find(|(name, ..)| name == "naive").map(each);
    for tally in tallies {
        let ratio = naive.map_or(String::new(), |naive| format!("{:.2} x naive", each(tally) / naive));
        println!("plain/{size:<7} {:<13} {:>8.0} ns  {ratio}", tally.0, each(tally));
    }
    println!();
}
