//! Plays one stream of the core's benches once, for tools that count rather than time; and counts allocations.
//!
//! ```sh
//! cargo build --release -p benches --bin steps
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*played*' \
//!   target/release/steps plain --size 10000 --steps 100000
//! ```

use benches::naive::Naive;
use benches::one_node::OneNode;
use benches::overloaded::{Overloaded, Prices};
use benches::plain::{Book, NumberedLadder, Plain};
use clap::{Parser, ValueEnum};
use kubebid_core::answer::Auction;
use kubebid_core::{Exchange, StampedCommand};
use std::hint::black_box;
use std::time::Instant;

/// Play one stream of the core's benches once
#[derive(Debug, Parser)]
struct Arguments {
    stream: Stream,
    /// Orders that rest, bids that wait or nodes that are held at the beginning
    #[arg(long, default_value_t = 10_000)]
    size: usize,
    #[arg(long, default_value_t = 1)]
    markets: usize,
    #[arg(long, default_value_t = 100_000)]
    steps: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Stream {
    /// On the ladder
    Plain,
    /// On the naive book
    Naive,
    OneNode,
    Grid,
    Distinct,
}

fn main() {
    let Arguments { stream, size, markets, steps } = Arguments::parse();
    // The first half warms up.
    match stream {
        Stream::Plain => {
            plain::<NumberedLadder>(&Plain::new(markets as u32, size, 2 * steps), size * markets)
        }
        Stream::Naive => plain::<Naive>(&Plain::new(markets as u32, size, 2 * steps), size * markets),
        Stream::OneNode => {
            let stream = OneNode::new(markets, size, 2 * steps);
            commands(|| stream.exchange(), &stream.commands, size * markets);
        }
        Stream::Grid | Stream::Distinct => {
            let prices = if matches!(stream, Stream::Grid) { Prices::Grid } else { Prices::Distinct };
            let stream = Overloaded::new(size, prices, 2 * steps);
            println!("events       {:?}", stream.events);
            commands(|| stream.exchange(), &stream.commands, size);
        }
    }
}

fn plain<B: Book>(stream: &Plain, size: usize) {
    let mut books = weighed(size, || stream.books::<B>());
    let (warm, counted) = stream.ops.split_at(stream.ops.len() / 2);
    for op in warm {
        op.play(&mut books[op.market() as usize]);
    }
    measure(counted.len(), || played_ops(counted, &mut books));
}

#[inline(never)]
fn played_ops<B: Book>(ops: &[benches::plain::Op], books: &mut [B]) {
    for op in ops {
        black_box(op.play(&mut books[op.market() as usize]));
    }
}

fn commands(make: impl Fn() -> Exchange, commands: &[StampedCommand], size: usize) {
    let mut exchange = weighed(size, make);
    let (warm, counted) = commands.split_at(commands.len() / 2);
    for command in warm {
        exchange.apply(command);
    }
    measure(counted.len(), || played_commands(counted, &mut exchange));
}

#[inline(never)]
fn played_commands(commands: &[StampedCommand], exchange: &mut Exchange) {
    for command in commands {
        black_box(exchange.apply(command));
    }
}

/// Says how much memory what is made takes for each of `size` things.
fn weighed<S>(size: usize, make: impl FnOnce() -> S) -> S {
    let mut made = None;
    let info = allocation_counter::measure(|| made = Some(make()));
    println!("memory       {:.0} bytes each", info.bytes_current as f64 / size as f64);
    made.expect("made above")
}

fn measure(steps: usize, play: impl FnOnce()) {
    let started = Instant::now();
    let info = allocation_counter::measure(play);
    let time = started.elapsed();
    println!("steps        {steps}");
    println!("allocations  {:.2} each", info.count_total as f64 / steps as f64);
    println!("time         {:.0} ns each", time.as_nanos() as f64 / steps as f64);
}
