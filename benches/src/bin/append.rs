//! What a durable commit of the journal takes, by how many records share it: what the engine's writer does for each
//! batch, with nobody else at the store.
//!
//! ```sh
//! cargo run --release -p benches --bin append -- --store postgres://…
//! cargo run --release -p benches --bin append -- --store sqlite:/tmp/append.db
//! ```

use benches::journal::pack;
use benches::one_node::OneNode;
use clap::Parser;
use kubebid_core::StampedCommand;
use kubebid_engine::store::{Store, StoreOptions};
use std::error::Error;
use std::time::{Duration, Instant};

/// As the programs have it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Append batches to the journal of an empty store, and say how long a commit took
#[derive(Debug, Parser)]
struct Arguments {
    /// An empty store: sqlite:PATH or postgres://…
    #[arg(long, env = "KUBEBID_STORE", hide_env_values = true)]
    store: String,
    /// Seconds for each size of a batch
    #[arg(long, default_value_t = 4, value_name = "N")]
    seconds: u64,
}

const SIZES: [usize; 5] = [1, 16, 128, 1024, 8192];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let store = Store::open(&StoreOptions::from_url(&arguments.store)?).await?;
    let mut leadership = store.lead().await?;
    let mut head = leadership.head;
    if head.seq != 0 {
        return Err("the store is not empty".into());
    }
    let commands: Vec<StampedCommand> = OneNode::new(1, SIZES[SIZES.len() - 1], 0).setup;
    println!("{:>8} {:>10} {:>12} {:>9} {:>9}", "records", "commits/s", "records/s", "p50 ms", "p99 ms");
    for size in SIZES {
        let mut times = Vec::new();
        let (started, whole) = (Instant::now(), Duration::from_secs(arguments.seconds));
        while started.elapsed() < whole {
            let batch = pack(head, &commands[..size]);
            let began = Instant::now();
            leadership.writer.append(&batch).await?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
            head = batch.end();
        }
        let rate = times.len() as f64 / started.elapsed().as_secs_f64();
        times.sort_by(f64::total_cmp);
        let [p50, p99] = [50, 99].map(|percent| times[(times.len() - 1) * percent / 100]);
        println!("{size:>8} {rate:>10.0} {:>12.0} {p50:>9.2} {p99:>9.2}", rate * size as f64);
    }
    store.close().await.expect("the file is complete");
    Ok(())
}
