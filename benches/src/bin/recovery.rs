//! How long it takes to be back: from the journal alone, and from a snapshot. Makes a market in which bids wait
//! and goes on from there, writes all of it to the journal of an empty store, and reads it back: step by step,
//! and as an engine does that starts. The projections of that engine have to write everything once; the second
//! start is the usual one.
//!
//! ```sh
//! cargo run --release -p benches --bin recovery -- --store sqlite:/tmp/recovery.db
//! ```

use benches::journal::write_journal;
use benches::one_node::OneNode;
use clap::Parser;
use kubebid_core::answer::Auction;
use kubebid_core::{Exchange, StampedCommand};
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::runtime::recovery::ReadAhead;
use kubebid_engine::store::{Position, Store, StoreOptions};
use kubebid_engine::{Engine, EngineOptions};
use std::error::Error;
use std::time::{Duration, Instant};

/// As the programs have it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Recover a made-up market, and say how long it took
#[derive(Debug, Parser)]
struct Arguments {
    /// An empty store: sqlite:PATH or postgres://…
    #[arg(long, env = "KUBEBID_STORE", hide_env_values = true)]
    store: String,
    /// Bids that wait
    #[arg(long, default_value_t = 1_000_000)]
    waiting: usize,
    /// Commands that follow
    #[arg(long, default_value_t = 500_000)]
    commands: usize,
    /// Commands that share a commit
    #[arg(long, default_value_t = 256)]
    batch: usize,
    /// Start an engine too, twice
    #[arg(long)]
    engine: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let options = StoreOptions::from_url(&arguments.store)?;
    let stream = OneNode::new(1, arguments.waiting, arguments.commands);
    let commands: Vec<StampedCommand> = stream.setup.into_iter().chain(stream.commands).collect();

    let started = Instant::now();
    write_journal(&options, &commands, arguments.batch).await?;
    say("append", commands.len(), started.elapsed());
    let started = Instant::now();
    let exchange = replay(&options).await?;
    say("read, decode and apply", commands.len(), started.elapsed());
    from_snapshot(&exchange);
    drop(exchange);
    if arguments.engine {
        for start in ["first start of an engine", "second start of an engine"] {
            let started = Instant::now();
            let mut engine_options = EngineOptions::new(options.clone(), Clock::Stepped);
            engine_options.projection_lag = u64::MAX;
            let (_, running) = Engine::start(engine_options).await?;
            say(start, commands.len(), started.elapsed());
            running.stop().await?;
        }
    }
    Ok(())
}

fn say(what: &str, commands: usize, took: Duration) {
    let seconds = took.as_secs_f64();
    println!("{what:<26} {commands} commands in {seconds:.2} s: {:.0}/s", commands as f64 / seconds);
}

/// As a recovery does, without views and projections.
async fn replay(options: &StoreOptions) -> Result<Exchange, Box<dyn Error>> {
    let store = Store::open(options).await?;
    let mut exchange = Exchange::new();
    let mut reader = ReadAhead::new(store.journal().read_after(Position::START));
    loop {
        let batches = reader.next().await?;
        if batches.is_empty() {
            break;
        }
        for batch in batches {
            for command in &batch.commands {
                exchange.apply(command);
            }
        }
    }
    store.close().await.expect("the file is complete");
    Ok(exchange)
}

/// What a start from a snapshot adds up to, the read from the store left out.
fn from_snapshot(exchange: &Exchange) {
    let started = Instant::now();
    let body = exchange.snapshot();
    println!("take a snapshot            {} bytes in {:.2} s", body.len(), started.elapsed().as_secs_f64());
    let started = Instant::now();
    let restored = Exchange::restore(&body).expect("it was just taken");
    println!("restore it                 {:.2} s", started.elapsed().as_secs_f64());
    let started = Instant::now();
    assert_eq!(restored.state_hash(), exchange.state_hash());
    println!("two hashes of the state    {:.2} s", started.elapsed().as_secs_f64());
}
