//! From callers to the one thread and back, and reads of what it publishes. The hand-over is the engine's own queue
//! (`engine/src/runtime/intake/work_queue.rs`) over the queue it uses; beside it tokio's channel in its place, and beside the
//! published views a lock. Left out: what the thread does with a command, the journal above all.
//!
//! ```sh
//! cargo bench -p benches --bench handover
//! ```

use arc_swap::ArcSwap;
use benches::one_node::OneNode;
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use crossbeam_queue::ArrayQueue;
use kubebid_core::Auction;
use kubebid_core::units::{MarketId, Micros};
use kubebid_engine::SubmitError;
use kubebid_engine::runtime::views::MarketView;
use std::hint::black_box;
use std::sync::{Arc, Barrier, RwLock};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use work_queue::{Queue, Refuse, WorkQueue};

#[allow(dead_code, reason = "a bench neither asks nor refuses all that an engine does")]
#[path = "../../engine/src/runtime/intake/work_queue.rs"]
mod work_queue;

/// What the queue is made of, as in the engine.
mod sync {
    pub(super) use futures_util::task::AtomicWaker;
    pub(super) use std::sync::atomic::{AtomicBool, Ordering, fence};
}

/// As many as an engine's intake holds.
const CAPACITY: usize = 16_384;

/// Something to be done, and who waits for it.
type Work = (u64, oneshot::Sender<u64>);

impl Refuse for Work {
    fn refuse(self) {}
}

impl Queue for ArrayQueue<Work> {
    type Work = Work;

    fn push(&self, work: Work) -> Result<(), Work> {
        ArrayQueue::push(self, work)
    }

    fn pop(&self) -> Option<Work> {
        ArrayQueue::pop(self)
    }

    fn len(&self) -> usize {
        ArrayQueue::len(self)
    }
}

/// The way to the thread.
trait Way: Clone + Send + 'static {
    fn hand_over(&self, work: Work);
}

impl Way for Arc<WorkQueue<ArrayQueue<Work>>> {
    fn hand_over(&self, work: Work) {
        self.push(work).expect("there is room");
    }
}

impl Way for mpsc::Sender<Work> {
    fn hand_over(&self, work: Work) {
        self.try_send(work).expect("there is room");
    }
}

fn answer((number, caller): Work) {
    // A caller does not go.
    let _ = caller.send(number + 1);
}

/// A runtime of one thread, as the exchange's and the wire's are on two cores.
fn on_one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// `callers` hand over as many as asked for in all, each one after the other.
async fn call(way: impl Way, callers: u64, in_all: u64) -> Duration {
    let started = Instant::now();
    let each = in_all.div_ceil(callers);
    let calling: Vec<_> = (0..callers)
        .map(|_| {
            let way = way.clone();
            tokio::spawn(async move {
                for number in 0..each {
                    let (sender, answered) = oneshot::channel();
                    way.hand_over((number, sender));
                    black_box(answered.await.expect("it is answered"));
                }
            })
        })
        .collect();
    for caller in calling {
        caller.await.expect("it calls");
    }
    started.elapsed().mul_f64(in_all as f64 / (each * callers) as f64)
}

fn hand_over(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hand_over");
    group.throughput(Throughput::Elements(1)).sampling_mode(SamplingMode::Flat);
    let wire = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    for callers in [1, 16, 256] {
        let queue = Arc::new(WorkQueue::before(ArrayQueue::<Work>::new(CAPACITY)));
        let taken = queue.clone();
        let taker = thread::spawn(move || {
            on_one_thread().block_on(async {
                while !taken.is_closed() {
                    taken.ready().await;
                    while let Some(work) = taken.pop() {
                        answer(work);
                    }
                }
            });
        });
        group.bench_function(format!("queue/{callers}"), |bencher| {
            bencher.iter_custom(|iterations| wire.block_on(call(queue.clone(), callers, iterations)));
        });
        queue.close();
        taker.join().expect("it takes");

        let (sender, mut receiver) = mpsc::channel::<Work>(CAPACITY);
        let taker = thread::spawn(move || {
            on_one_thread().block_on(async {
                while let Some(work) = receiver.recv().await {
                    answer(work);
                }
            });
        });
        group.bench_function(format!("mpsc/{callers}"), |bencher| {
            bencher.iter_custom(|iterations| wire.block_on(call(sender.clone(), callers, iterations)));
        });
        drop(sender);
        taker.join().expect("it takes");
    }
    group.finish();
}

fn view() -> MarketView {
    let exchange = OneNode::new(1, 10, 0).exchange();
    let market = MarketId(0);
    let (numbers, supply) = exchange.market_numbers(market);
    MarketView {
        market,
        name: exchange.names().market(market).clone(),
        opened_at: Micros(0),
        state: exchange.market_state(market),
        rules: exchange.market_rules(market).clone(),
        numbers,
        supply,
        reference_price: None,
        seq: exchange.seq(),
        at: exchange.now(),
    }
}

/// The time in which each of two threads reads so often.
fn by_two(reads: u64, read: impl Fn() -> u64 + Sync) -> Duration {
    let (ready, read) = (&Barrier::new(3), &read);
    thread::scope(|scope| {
        let readers = [(); 2].map(|()| {
            scope.spawn(move || {
                ready.wait();
                let started = Instant::now();
                for _ in 0..reads {
                    black_box(read());
                }
                started.elapsed()
            })
        });
        ready.wait();
        readers.map(|reader| reader.join().expect("it reads")).into_iter().max().expect("two of them")
    })
}

/// Nobody publishes meanwhile: a commit comes every few hundred microseconds, a read every few.
fn reads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read_by_two");
    group.throughput(Throughput::Elements(1)).sampling_mode(SamplingMode::Flat);
    let price = |view: &MarketView| view.numbers.market_price.0;
    let plain = view();
    group.bench_function("plain", |bencher| {
        bencher.iter_custom(|reads| by_two(reads, || price(black_box(&plain))));
    });
    let swapped = ArcSwap::from_pointee(view());
    group.bench_function("arc_swap_load", |bencher| {
        bencher.iter_custom(|reads| by_two(reads, || price(&swapped.load())));
    });
    group.bench_function("arc_swap_load_full", |bencher| {
        bencher.iter_custom(|reads| by_two(reads, || price(&swapped.load_full())));
    });
    let locked = RwLock::new(view());
    group.bench_function("rw_lock", |bencher| {
        bencher.iter_custom(|reads| by_two(reads, || price(&locked.read().expect("nobody panics"))));
    });
    // How `applied`, `projected` and `saved` are read.
    let (_sender, watched) = watch::channel(0_u64);
    group.bench_function("watch_borrow", |bencher| {
        bencher.iter_custom(|reads| by_two(reads, || *watched.borrow()));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(2));
    targets = hand_over, reads
}
criterion_main!(benches);
