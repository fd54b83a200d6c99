//! One book for one and for two producers: all change one concurrent skip list, or all hand over to one thread
//! that owns a ladder and answers. Left out: the rules, which a skip list could not keep without a lock around
//! several changes, and the journal, for which there has to be one order anyway.
//!
//! ```sh
//! cargo bench --manifest-path benches/peers/Cargo.toml --bench shared
//! ```

use benches::plain::{NumberedLadder, Op, Plain};
use criterion::{Criterion, SamplingMode};
use peers::shared::{SkipBook, deal, play_by_hand_over, play_on_skip_list, prices};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Operations that are played on one state before it is made anew.
const LENGTH: usize = 200_000;

/// Operations played, and the time they took.
type Tally = (u64, Duration);

fn main() {
    let config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(500));
    let mut criterion = config.measurement_time(Duration::from_secs(2)).configure_from_args();
    for (size, resting) in [("10k", 10_000), ("1M", 1_000_000)] {
        let stream = Plain::new(1, resting, LENGTH);
        let prices = prices(stream.resting.iter().chain(&stream.ops));
        let alone = measure(&mut criterion, size, "ladder_alone", || alone(&stream));
        for producers in [1, 2] {
            let dealt = deal(&stream.ops, producers);
            let skip_list = measure(&mut criterion, size, &format!("skip_list/{producers}"), || {
                let book = skip_list(&stream);
                timed(|| play_on_skip_list(&book, &prices, &dealt))
            });
            let hand_over = measure(&mut criterion, size, &format!("hand_over/{producers}"), || {
                let mut book = stream.books::<NumberedLadder>().remove(0);
                timed(|| play_by_hand_over(&mut book, &dealt))
            });
            report(size, producers, alone, skip_list, hand_over);
        }
    }
    criterion.final_summary();
}

fn measure(criterion: &mut Criterion, size: &str, name: &str, round: impl Fn() -> Duration) -> Tally {
    let mut group = criterion.benchmark_group(format!("shared/{size}"));
    group.sampling_mode(SamplingMode::Flat);
    let (mut played, mut time) = (0, Duration::ZERO);
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| {
            let rounds = iterations.div_ceil(LENGTH as u64);
            let took: Duration = (0..rounds).map(|_| round()).sum();
            played += rounds * LENGTH as u64;
            time += took;
            took.mul_f64(iterations as f64 / (rounds * LENGTH as u64) as f64)
        });
    });
    group.finish();
    (played, time)
}

fn timed<T>(play: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    black_box(play());
    started.elapsed()
}

fn alone(stream: &Plain) -> Duration {
    let mut book = stream.books::<NumberedLadder>().remove(0);
    timed(|| stream.ops.iter().map(|op| op.play(&mut book)).collect::<Vec<_>>())
}

fn skip_list(stream: &Plain) -> SkipBook {
    let book = SkipBook::default();
    for op in &stream.resting {
        if let Op::Place { id, price, .. } = *op {
            book.place(id, price);
        }
    }
    book
}

fn report(size: &str, producers: usize, alone: Tally, skip_list: Tally, hand_over: Tally) {
    if [alone, skip_list, hand_over].iter().any(|(played, _)| *played == 0) {
        return;
    }
    let each = |(played, time): Tally| time.as_nanos() as f64 / played as f64;
    println!(
        "shared/{size} {producers} producers: skip list {:.0} ns, handed over {:.0} ns ({:.2} of it), \
         the ladder alone {:.0} ns\n",
        each(skip_list),
        each(hand_over),
        each(hand_over) / each(skip_list),
        each(alone),
    );
}
