//! One-node bids as commands through `Exchange::apply`, all rules, numbers and events included. Left
//! out: the journal, the wire, keys.
//!
//! ```sh
//! cargo bench -p benches --bench exchange
//! ```

use benches::Bids;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn one_node_bids(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one_node_bids");
    group.throughput(Throughput::Elements(1));
    for waiting in [10_000, 100_000] {
        let (mut exchange, mut bids) = Bids::with_waiting(waiting, 1);
        group.bench_function(BenchmarkId::from_parameter(waiting), |bencher| {
            bencher.iter(|| bids.step(&mut exchange));
        });
    }
    group.finish();
}

criterion_group!(benches, one_node_bids);
criterion_main!(benches);
