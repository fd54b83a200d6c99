//! Commands to bytes and back, alone and as a batch of the journal, and a snapshot of a market with many bids.
//!
//! ```sh
//! cargo bench -p benches --bench records
//! ```

use benches::journal::pack;
use benches::one_node::OneNode;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kubebid_core::command::PlaceBid;
use kubebid_core::units::{AccountName, ClientKey, MarketName, Micros};
use kubebid_core::{Command, Exchange, Price, StampedCommand};
use kubebid_engine::runtime::recovery::command_of;
use kubebid_engine::store::{Batch, Position};
use std::hint::black_box;

/// As the programs have it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn records(criterion: &mut Criterion) {
    let command = StampedCommand {
        at: Micros(1_700_000_000_000_000),
        key: Some(ClientKey::new("5f3b0a55-7c3f-4d0a-9f5e-1c1f0a0b0c0d")),
        command: Command::PlaceBid(PlaceBid {
            tenant: AccountName::new("team-vision"),
            markets: Some(vec![MarketName::new("h100-8x/eu-west")]),
            instance_type: None,
            ceiling: Price(31_000_000),
            min_nodes: 1,
            max_nodes: 4,
            time_in_force: Default::default(),
            expire_at: None,
            on_preemption: Default::default(),
        }),
    };
    let mut group = criterion.benchmark_group("record");
    group.throughput(Throughput::Elements(1));
    let mut bytes = Vec::new();
    group.bench_function("encode", |bencher| {
        bencher.iter(|| {
            bytes.clear();
            black_box(&command).encode(&mut bytes);
        });
    });
    group.bench_function("decode", |bencher| bencher.iter(|| StampedCommand::decode(black_box(&bytes))));
    group.finish();
}

/// What shares a commit, from a caller alone to a full drain.
fn batches(criterion: &mut Criterion) {
    for size in [1, 128, 8192] {
        let commands = OneNode::new(1, size, 0).setup;
        let pack = || pack(Position::START, &commands);
        let bytes = pack().bytes().clone();
        let mut group = criterion.benchmark_group(format!("batch_of_{size}"));
        group.throughput(Throughput::Elements(commands.len() as u64));
        group.bench_function("encode", |bencher| bencher.iter(&pack));
        group.bench_function("decode", |bencher| {
            bencher.iter(|| {
                let batch = Batch::decode(bytes.clone()).expect("it was packed here");
                batch.records().map(|record| command_of(record).expect("a command")).for_each(|command| {
                    black_box(command);
                });
            });
        });
        group.finish();
    }
}

fn snapshots(criterion: &mut Criterion) {
    let exchange = OneNode::new(1, 100_000, 0).exchange();
    let snapshot = exchange.snapshot();
    let mut group = criterion.benchmark_group("snapshot_of_100k_bids");
    group.sample_size(10);
    group.bench_function("take", |bencher| bencher.iter(|| exchange.snapshot()));
    group.bench_function("restore", |bencher| bencher.iter(|| Exchange::restore(&snapshot)));
    group.finish();
}

criterion_group!(benches, records, batches, snapshots);
criterion_main!(benches);
