//! How fast the projections write: makes a journal of a busy market in an empty store and rebuilds the
//! tables from it. Replaying the journal is part of the time, as applying commands is in an engine.
//! Left out: whoever reads the tables meanwhile.
//!
//! ```sh
//! cargo run --release -p benches --bin projections -- --store postgres://… --commands 500000
//! ```

use benches::journal::write_journal;
use benches::stamped;
use clap::Parser;
use kubebid_core::answer::Auction;
use kubebid_core::command::{CancelMode, PlaceBid};
use kubebid_core::event::Fact;
use kubebid_core::units::{AccountName, AllocationId, BidId, ClientKey, MarketName, Micros};
use kubebid_core::{Command, Exchange, Price, StampedCommand};
use kubebid_engine::lifecycle::rebuild::rebuild;
use kubebid_engine::store::StoreOptions;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// As the programs have it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rebuild the projections of a made-up journal, and say how long it took
#[derive(Debug, Parser)]
struct Arguments {
    /// An empty store: sqlite:PATH or postgres://…
    #[arg(long, env = "KUBEBID_STORE", hide_env_values = true)]
    store: String,
    #[arg(long, default_value_t = 500_000)]
    commands: usize,
    /// Commands that share a commit
    #[arg(long, default_value_t = 256)]
    batch: usize,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let options = StoreOptions::from_url(&arguments.store)?;
    let started = Instant::now();
    let (commands, events) = busy_market(arguments.commands);
    let applying = started.elapsed().as_secs_f64();
    write_journal(&options, &commands, arguments.batch).await?;
    let (started, worked) = (Instant::now(), processor_seconds());
    rebuild(&options, |_, _| ()).await?;
    let (seconds, worked) = (started.elapsed().as_secs_f64(), processor_seconds() - worked);
    println!("commands  {} in {seconds:.1} s: {:.0}/s", commands.len(), commands.len() as f64 / seconds);
    println!("events    {events} in {seconds:.1} s: {:.0}/s", events as f64 / seconds);
    println!("processor {:.1} µs an event, without the database's", 1e6 * worked / events as f64);
    println!("applying  {applying:.1} s of about as much");
    Ok(())
}

/// What this process had of the processors so far.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Ten markets with 100 units each; bids come, wait, get nodes, outbid each other, report ready, release,
/// are amended and cancelled. Returns the commands and how many events they have.
fn busy_market(count: usize) -> (Vec<StampedCommand>, usize) {
    let mut market =
        Market { exchange: Exchange::new(), commands: Vec::with_capacity(count), events: 0, now: 0 };
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let name = |n: u64| MarketName::new(&format!("type-{}/region-{}", n / 2, n % 2));
    for n in 0..10 {
        market.give(None, Command::OpenMarket { market: name(n), rules: Vec::new() });
        for provider in 0..4 {
            let provider = AccountName::new(&format!("provider-{provider}"));
            let reserve = Price(100 * (1 + n));
            market.give(None, Command::PutOffer { provider, market: name(n), capacity: 25, reserve });
        }
    }
    let mut bids: Vec<(BidId, AccountName)> = Vec::new();
    let mut nodes: Vec<(AllocationId, AccountName)> = Vec::new();
    let mut seen = 0;
    while market.commands.len() < count {
        let tenant = AccountName::new(&format!("tenant-{}", rng.random_range(0..1000)));
        market.now += rng.random_range(0..20_000);
        let pick = |rng: &mut ChaCha8Rng, len: usize| rng.random_range(0..len.max(1));
        match rng.random_range(0..10) {
            5 if !bids.is_empty() => {
                let (bid, tenant) = bids[pick(&mut rng, bids.len())].clone();
                let ceiling = Some(Price(100 * rng.random_range(1..5000)));
                market.give(None, Command::AmendBid { tenant, bid, ceiling, max_nodes: None });
            }
            6 if !bids.is_empty() => {
                let at = pick(&mut rng, bids.len());
                let (bid, tenant) = bids.swap_remove(at);
                market.give(None, Command::CancelBid { tenant, bid, mode: CancelMode::Release });
            }
            7 | 8 if seen < nodes.len() => {
                let allocation = nodes[seen].0;
                seen += 1;
                market.give(None, Command::ReportReady { allocation, by: None });
            }
            9 if seen > 0 => {
                seen -= 1;
                let (allocation, tenant) = nodes.remove(0);
                market.give(None, Command::ReleaseAllocation { tenant, allocation });
            }
            _ => {
                let place = PlaceBid {
                    tenant: tenant.clone(),
                    markets: Some(vec![name(rng.random_range(0..10))]),
                    instance_type: None,
                    ceiling: Price(100 * rng.random_range(1..5000)),
                    min_nodes: 1,
                    max_nodes: 1,
                    time_in_force: Default::default(),
                    expire_at: None,
                    on_preemption: Default::default(),
                };
                let key = ClientKey::new(&format!("key-{}", market.commands.len()));
                let allocated = market.give(Some(key), Command::PlaceBid(place));
                bids.push((BidId(market.commands.len() as u64), tenant));
                nodes.extend(allocated);
            }
        }
    }
    (market.commands, market.events)
}

struct Market {
    exchange: Exchange,
    commands: Vec<StampedCommand>,
    events: usize,
    now: u64,
}

impl Market {
    /// The nodes that were given.
    #[expect(clippy::wildcard_enum_match_arm, reason = "one kind is looked for")]
    fn give(&mut self, key: Option<ClientKey>, command: Command) -> Vec<(AllocationId, AccountName)> {
        let command = StampedCommand { at: Micros(self.now), key, ..stamped(command) };
        let answer = self.exchange.apply(&command);
        self.commands.push(command);
        self.events += answer.events.len();
        let nodes = answer.events.iter().filter_map(|event| match &event.fact {
            Fact::Allocated { node } => {
                Some((node.allocation, self.exchange.names().account(node.tenant).clone()))
            }
            _ => None,
        });
        nodes.collect()
    }
}
