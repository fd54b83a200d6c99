//! Work that does not depend on other work, on some threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Computes `one` for 0 to `count`, without `count`, and returns the results in that order, whatever the threads.
pub(crate) fn in_parallel<T: Send>(
    threads: NonZeroUsize,
    count: usize,
    one: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut results = Vec::new();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= count {
                return results;
            }
            results.push((n, one(n)));
        }
    };
    let mut results: Vec<(usize, T)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.get()).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a run does not panic")).collect()
    });
    results.sort_by_key(|(n, _)| *n);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_work() {
        let threads = NonZeroUsize::new(3).expect("not 0");
        assert_eq!(in_parallel(threads, 50, |n| n * n), (0..50).map(|n| n * n).collect::<Vec<usize>>());
    }
}
