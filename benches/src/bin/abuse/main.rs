//! What one tenant can take from another: an engine with little memory and few files, one caller that does its worst
//! in one way after the other, and what another tenant and the probes notice.
//!
//! ```sh
//! cargo build --release -p kubebid
//! cargo run --release -p benches --bin abuse
//! cargo run --release -p benches --bin abuse -- --store sqlite --seconds 30 unread watches
//! ```

mod caller;
mod engine;
mod spell;
mod ways;

use clap::{Parser, ValueEnum};
use engine::Engine;
use kubebid_testkit::Cluster;
use spell::{CALLS, Spell, observe};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use ways::Way;

/// A tenant's slowest hundredth may take so much longer while another abuses the engine.
const SLOWER: f64 = 1.5;
/// What the engine may have in memory.
const MEMORY_MIB: u64 = 512;
/// How long a probe may take.
const PROBE: Duration = Duration::from_millis(100);

/// Abuses an engine of its own, and prints what another tenant notices
#[derive(Debug, Parser)]
#[command(after_help = "\
For each way it starts an engine on an empty store, measures a quiet spell, and then one with the abuse. The tenant that is
measured and the one that abuses come from two addresses of the loopback. The load has the lowest priority (nice 19): it would
run on another machine. The last column says which of these was not reached: p99 of each call within 1.5 times of the quiet
spell, at most 512 MiB of memory, probes within 100 ms.")]
struct Arguments {
    /// Ways of abuse [default: all]
    #[arg(value_enum, value_name = "WAY")]
    ways: Vec<Way>,
    /// Where the engine has its journal [default: both]
    #[arg(long, value_enum)]
    store: Option<Place>,
    /// How long each spell is
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The program that is abused
    #[arg(long, value_name = "FILE", default_value = "target/release/kubebid")]
    kubebid: PathBuf,
    /// Flags for `kubebid serve` besides, in one argument each, as in --serve=--limit-watches=10
    #[arg(long, value_name = "FLAG")]
    serve: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Place {
    Sqlite,
    Postgres,
}

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    engine::raise_open_files();
    let ways: &[Way] = if arguments.ways.is_empty() { Way::value_variants() } else { &arguments.ways };
    let places = arguments.store.map_or(vec![Place::Sqlite, Place::Postgres], |store| vec![store]);
    let head = CALLS.map(|(call, _)| format!("{:>30}", format!("{} p50, p99 ms", name(call))));
    println!("{:<9}{:<11}{} {:>9} {:>9}  goal", "store", "way", head.concat(), "MiB", "probe ms");
    let mut missed = 0;
    for place in places {
        let cluster = (place == Place::Postgres).then(|| Cluster::start(&[]));
        for way in ways {
            let url = cluster.as_ref().map(Cluster::database);
            let store = format!("{place:?}").to_lowercase();
            match arguments.try_way(*way, url) {
                Ok((quiet, abused)) => missed += u32::from(!print(&store, *way, &quiet, &abused)),
                Err(failure) => {
                    missed += 1;
                    println!("{store:<9}{:<11} failed: {failure}", way.word());
                }
            }
        }
    }
    println!("{missed} rows beside the goal");
    Ok(())
}

impl Arguments {
    fn try_way(&self, way: Way, store: Option<String>) -> Result<(Spell, Spell), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let engine = Arc::new(Engine::start(&self.kubebid, store, &self.serve).await?);
            let spell = Duration::from_secs(self.seconds);
            let load = ways::Load::prepare(way, engine.clone())?;
            let quiet = observe(&engine, spell).await?;
            load.begin();
            let abused = observe(&engine, spell).await?;
            Ok((quiet, abused))
        })
    }
}

/// Prints a row. Returns whether all of the goal is reached.
fn print(store: &str, way: Way, quiet: &Spell, abused: &Spell) -> bool {
    let mut beside = Vec::new();
    print!("{store:<9}{:<11}", way.word());
    for ((before, after), (call, _)) in quiet.calls.iter().zip(&abused.calls).zip(CALLS) {
        let times =
            [before.p50(), after.p50(), before.p99(), after.p99()].map(|time| time.as_secs_f64() * 1000.0);
        let [before50, after50, before99, after99] = times;
        print!("{:>30}", format!("{before50:.1}>{after50:.1}, {before99:.1}>{after99:.1}"));
        let name = name(call);
        if after99 > SLOWER * before99 {
            beside.push(format!("{name} {:.1}x", after99 / before99));
        }
        if after.failed > 0 {
            beside.push(format!("{name}: {} failed", after.failed));
        }
    }
    print!(" {:>9} {:>9.0}", abused.memory_mib, abused.probe.as_secs_f64() * 1000.0);
    if abused.memory_mib > MEMORY_MIB {
        beside.push("memory".to_owned());
    }
    if abused.probe > PROBE {
        beside.push("probe".to_owned());
    }
    println!("  {}", if beside.is_empty() { "reached".to_owned() } else { beside.join(", ") });
    beside.is_empty()
}

/// The name of a method without its service.
fn name(method: &str) -> &str {
    method.rsplit('/').next().unwrap_or(method)
}
