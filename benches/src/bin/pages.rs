//! Measures how long the first page of a list takes on the tables of a large store: 100 rows, by what people ask for.
//! Left out: the network, and other readers and writers.
//!
//! ```sh
//! cargo run --release -p benches --bin projections -- --store postgres://… --commands 9800000
//! cargo run --release -p benches --bin pages -- --store postgres://…
//! ```

use clap::Parser;
use kubebid_core::EventKind;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName};
use kubebid_engine::readmodel::queries::{AllocationQuery, BidQuery, EventQuery};
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::store::StoreOptions;
use kubebid_engine::{Engine, EngineOptions};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Makes a random query of one kind.
type Question<'a> = &'a dyn Fn(&mut ChaCha8Rng) -> EventQuery;

/// Rows of a page.
const PAGE: u32 = 100;
/// Rows that a request may read, as in the API.
const MOST: usize = 10_000;

/// Measure the first pages of lists on a store that the `projections` benchmark has filled
#[derive(Debug, Parser)]
struct Arguments {
    /// The store: sqlite:PATH or postgres://…
    #[arg(long, env = "KUBEBID_STORE", hide_env_values = true)]
    store: String,
    /// Pages of each kind of list
    #[arg(long, default_value_t = 300)]
    pages: usize,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let options = EngineOptions::new(StoreOptions::from_url(&arguments.store)?, Clock::Stepped);
    let (engine, running) = Engine::start(options).await?;
    let commands = engine.applied();
    println!("{commands} commands; {} pages of {PAGE} rows each", arguments.pages);
    println!("{:<28} {:>9} {:>9} {:>9}", "list", "p50 ms", "p99 ms", "rows");
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let all = AllocationQuery { limit: 10_000, ..AllocationQuery::default() };
    let allocations = engine.read_model().allocations(&all).await?;
    let tenant = |rng: &mut ChaCha8Rng| format!("tenant-{}", rng.random_range(0..1000));
    let market = |rng: &mut ChaCha8Rng| {
        let n: u32 = rng.random_range(0..10);
        MarketName::new(&format!("type-{}/region-{}", n / 2, n % 2))
    };
    let lists: [(&str, Question<'_>); 8] = [
        ("events of a tenant", &|rng| EventQuery {
            account: Some(AccountName::new(&tenant(rng))),
            ..EventQuery::default()
        }),
        ("events of a provider", &|rng| EventQuery {
            account: Some(AccountName::new(&format!("provider-{}", rng.random_range(0..4)))),
            ..EventQuery::default()
        }),
        ("events of a bid", &|rng| EventQuery {
            bids: [BidId(rng.random_range(50..commands))].into(),
            ..EventQuery::default()
        }),
        ("events of an allocation", &|rng| EventQuery {
            allocations: [AllocationId(rng.random_range(1..=allocations.len() as u64))].into(),
            ..EventQuery::default()
        }),
        ("events of a market", &|rng| EventQuery { markets: [market(rng)].into(), ..EventQuery::default() }),
        ("events of a kind", &|rng| EventQuery {
            kinds: [EventKind::ALL[rng.random_range(0..EventKind::ALL.len())]].into(),
            ..EventQuery::default()
        }),
        ("a tenant's events of a kind", &|rng| EventQuery {
            account: Some(AccountName::new(&tenant(rng))),
            kinds: [EventKind::ALL[rng.random_range(0..EventKind::ALL.len())]].into(),
            ..EventQuery::default()
        }),
        ("all events from a time on", &|rng| EventQuery {
            from: Some(allocations[rng.random_range(0..allocations.len())].allocated_at),
            ..EventQuery::default()
        }),
    ];
    for newest_first in [false, true] {
        for (name, query) in lists {
            let (mut times, mut rows) = (Vec::new(), 0);
            for _ in 0..arguments.pages {
                let query = EventQuery { newest_first, limit: PAGE, ..query(&mut rng) };
                let started = Instant::now();
                rows += engine.read_model().event_page(&query, MOST).await?.events.len();
                times.push(started.elapsed().as_secs_f64());
            }
            print_line(&format!("{name}{}", if newest_first { ", back" } else { "" }), times, rows);
        }
    }
    let (mut times, mut rows) = (Vec::new(), 0);
    for _ in 0..arguments.pages {
        let query = BidQuery { account: Some(tenant(&mut rng)), limit: PAGE, ..BidQuery::default() };
        let started = Instant::now();
        rows += engine.read_model().bid_page(&query, MOST).await?.bids.len();
        times.push(started.elapsed().as_secs_f64());
    }
    print_line("bids of a tenant", times, rows);
    drop(engine);
    running.stop().await?;
    Ok(())
}

fn print_line(name: &str, mut times: Vec<f64>, rows: usize) {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| 1e3 * times[((times.len() - 1) as f64 * share) as usize];
    println!("{name:<28} {:>9.1} {:>9.1} {rows:>9}", at(0.5), at(0.99));
}
