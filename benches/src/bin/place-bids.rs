//! Durable unary PlaceBid against a running engine, closed loop: so many callers, each waiting for its
//! answer before it asks again. Prints bids per second and the time of a call. Tokens and keys are on.
//! Left out: corrections for coordinated omission, other calls, warm-up of the engine's machine.
//!
//! ```sh
//! KUBEBID_TOKEN=… cargo run --release -p benches --bin place-bids -- \
//!   --market h100-8x/eu-west --callers 256 --seconds 10
//! ```

use clap::Parser;
use hdrhistogram::Histogram;
use kubebid_client::v1::PlaceBidRequest;
use kubebid_client::{Client, Error};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Load a running engine with bids that wait, and say how long each took to be durable
#[derive(Debug, Parser)]
struct Arguments {
    /// Where the engine is
    #[arg(long, env = "KUBEBID_ENDPOINTS", default_value = "http://127.0.0.1:7440")]
    endpoint: String,
    /// A tenant's token
    #[arg(long, env = "KUBEBID_TOKEN", hide_env_values = true)]
    token: String,
    /// The market to bid in, which should have no free units
    #[arg(long)]
    market: String,
    #[arg(long, default_value_t = 256)]
    callers: u32,
    /// Connections that the callers share
    #[arg(long, default_value_t = 4)]
    connections: u32,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments = Arguments::parse();
    let clients: Vec<Client> = (0..arguments.connections)
        .map(|_| Client::builder().endpoints([arguments.endpoint.clone()]).token(&arguments.token).build())
        .collect::<Result<_, _>>()?;
    let started = Instant::now();
    let end = started + Duration::from_secs(arguments.seconds);
    let mut callers = JoinSet::new();
    for n in 0..arguments.callers {
        let client = clients[(n % arguments.connections) as usize].clone();
        callers.spawn(call(client, arguments.market.clone(), u64::from(n), end));
    }
    let mut all = Histogram::<u64>::new_with_max(60_000_000, 3).expect("three digits are allowed");
    for result in callers.join_all().await {
        all.add(result?).expect("the same shape");
    }
    let seconds = started.elapsed().as_secs_f64();
    let micros = |quantile| all.value_at_quantile(quantile) as f64 / 1e3;
    println!("callers     {}", arguments.callers);
    println!("bids        {} in {seconds:.1} s: {:.0}/s", all.len(), all.len() as f64 / seconds);
    println!("call        p50 {:.2} ms  p99 {:.2} ms  max {:.2} ms", micros(0.5), micros(0.99), micros(1.0));
    Ok(())
}

async fn call(client: Client, market: String, caller: u64, end: Instant) -> Result<Histogram<u64>, Error> {
    let mut times = Histogram::new_with_max(60_000_000, 3).expect("three digits are allowed");
    let mut n = 0u64;
    while Instant::now() < end {
        n += 1;
        let bid = PlaceBidRequest {
            markets: vec![market.clone()],
            ceiling_micros: 100 * (1 + (caller * 7919 + n * 104_729) % 5000),
            max_nodes: 1,
            ..PlaceBidRequest::default()
        };
        let asked = Instant::now();
        client.place_bid(bid).await?;
        times.saturating_record(asked.elapsed().as_micros() as u64);
    }
    Ok(times)
}
