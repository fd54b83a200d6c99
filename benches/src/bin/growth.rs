//! How the cost of a command grows with what a market has: a table, and a picture of it.
//!
//! ```sh
//! cargo run --release -p benches --no-default-features --bin growth -- --picture docs/performance/growth.svg
//! ```

use benches::curves::{Curve, chart, draw};
use benches::one_node::OneNode;
use benches::overloaded::{Overloaded, Prices};
use benches::plain::{NumberedLadder, Op, Plain};
use clap::Parser;
use kubebid_core::answer::Auction;
use kubebid_core::{Exchange, StampedCommand};
use std::error::Error;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

/// As the programs have it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time commands in ever larger markets, and draw how their cost grows
#[derive(Debug, Parser)]
struct Arguments {
    /// Where the picture goes (SVG)
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// The most orders, bids and nodes of a market
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    most: usize,
    /// Commands that are timed, after as many that warm up
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    steps: usize,
    /// The best of so many rounds counts: what others do on the machine makes the rest slower
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,
}

/// All waiting bids of the markets together, as these become more.
const SPREAD: usize = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let Arguments { steps, rounds, most, .. } = arguments;
    let sizes: Vec<usize> =
        std::iter::successors(Some(1000), |size| Some(size * 10)).take_while(|size| *size <= most).collect();
    let curve = |name, cost: &dyn Fn(usize) -> f64, at: &[usize]| {
        let points = at.iter().map(|size| (*size, best(rounds, || cost(*size)))).collect();
        let curve = Curve { name, points };
        curve.print("ns");
        curve
    };
    let by_size = [
        curve("ladder: orders", &|size| ladder(size, steps), &sizes),
        curve("one-node bids: waiting", &|size| one_node(1, size, steps), &sizes),
        curve("overloaded, 1000 prices: nodes held", &|size| overloaded(size, Prices::Grid, steps), &sizes),
        curve(
            "overloaded, all prices differ: nodes held",
            &|size| overloaded(size, Prices::Distinct, steps),
            &sizes,
        ),
    ];
    let markets: Vec<usize> =
        [1, 10, 100, 1000].into_iter().filter(|markets| SPREAD / markets >= 100).collect();
    let by_markets =
        [curve("one-node bids: markets", &|markets| one_node(markets, SPREAD / markets, steps), &markets)];
    if let Some(path) = &arguments.picture {
        let costs = "nanoseconds a command";
        let charts = [
            chart("orders, bids or nodes in the market", costs, &by_size),
            chart("markets, with 100,000 bids in all", costs, &by_markets),
        ];
        draw(path, "Cost of a command as a market grows, and as markets become more", &charts)?;
    }
    Ok(())
}

fn best(rounds: usize, cost: impl Fn() -> f64) -> f64 {
    (0..rounds.max(1)).map(|_| cost()).fold(f64::INFINITY, f64::min)
}

fn ladder(size: usize, steps: usize) -> f64 {
    let stream = Plain::new(1, size, 2 * steps);
    let mut books = stream.books::<NumberedLadder>();
    let mut play = |ops: &[Op]| {
        for op in ops {
            black_box(op.play(&mut books[0]));
        }
    };
    let (warm, timed) = stream.ops.split_at(steps);
    play(warm);
    let started = Instant::now();
    play(timed);
    started.elapsed().as_nanos() as f64 / steps as f64
}

fn one_node(markets: usize, waiting: usize, steps: usize) -> f64 {
    let stream = OneNode::new(markets, waiting, 2 * steps);
    commands(stream.exchange(), &stream.commands)
}

fn overloaded(live: usize, prices: Prices, steps: usize) -> f64 {
    let stream = Overloaded::new(live, prices, 2 * steps);
    commands(stream.exchange(), &stream.commands)
}

/// The second half is timed.
fn commands(mut exchange: Exchange, commands: &[StampedCommand]) -> f64 {
    let (warm, timed) = commands.split_at(commands.len() / 2);
    let mut play = |commands: &[StampedCommand]| {
        for command in commands {
            black_box(exchange.apply(command));
        }
    };
    play(warm);
    let started = Instant::now();
    play(timed);
    started.elapsed().as_nanos() as f64 / timed.len() as f64
}
