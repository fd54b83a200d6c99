//! A token bucket: so many requests a second, and as many at once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Holds the moment at which the bucket is full again, so that a request is one atomic exchange and nobody has
/// to refill anything (GCRA).
#[derive(Debug, Default)]
pub struct Bucket {
    full_at: AtomicU64,
}

impl Bucket {
    /// Takes as many as there are out of a bucket of `per_second`, `most` at most: how many, and for how long there
    /// is not one more.
    pub fn take_some(&self, most: u64, per_second: u64) -> (u64, Duration) {
        self.take_at(nanos(), most, per_second)
    }

    /// Returns whether fewer can be taken at once than from a new bucket of `per_second`.
    pub fn is_used(&self) -> bool {
        self.full_at.load(Ordering::Relaxed) > nanos()
    }

    fn take_at(&self, now: u64, most: u64, per_second: u64) -> (u64, Duration) {
        const SECOND: u64 = 1_000_000_000;
        let Some(each) = SECOND.checked_div(per_second) else { return (0, Duration::from_secs(1)) };
        let latest = now + SECOND.max(each);
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        loop {
            let from = full_at.max(now);
            let room = latest.checked_sub(from);
            let taken = room.map_or(0, |room| room.checked_div(each).unwrap_or(most).min(most));
            let next = from + taken * each;
            match self.full_at.compare_exchange_weak(full_at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return (taken, Duration::from_nanos((next + each).saturating_sub(latest))),
                Err(other) => full_at = other,
            }
        }
    }
}

/// Since the first time that somebody asked.
fn nanos() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_second_s_worth_is_to_be_had_at_once_and_then_as_it_comes() {
        let bucket = Bucket::default();
        let at_once = (0..20).filter(|_| bucket.take_at(SECOND, 1, 10).0 == 1).count();
        assert_eq!(at_once, 10);
        let tenth = Duration::from_millis(100);
        assert_eq!(bucket.take_at(SECOND, 1, 10), (0, tenth));
        assert_eq!(bucket.take_at(SECOND + SECOND / 10, 1, 10), (1, tenth));
        assert_eq!(bucket.take_at(SECOND + SECOND / 10, 1, 10).0, 0);
    }

    #[test]
    fn some_together_are_as_many_as_one_by_one() {
        let bucket = Bucket::default();
        let tenth = Duration::from_millis(100);
        assert_eq!(bucket.take_at(SECOND, 4, 10), (4, Duration::ZERO));
        assert_eq!(bucket.take_at(SECOND, 20, 10), (6, tenth));
        assert_eq!(bucket.take_at(SECOND + SECOND / 4, 20, 10), (2, tenth / 2));
        assert_eq!(Bucket::default().take_at(SECOND, 20, 2_000_000_000), (20, Duration::ZERO));
    }

    #[test]
    fn threads_that_take_at_once_get_no_more_than_there_is() {
        let bucket = Bucket::default();
        let take = || (0..100).map(|_| bucket.take_at(SECOND, 10, 1500).0).sum();
        let taken: u64 = std::thread::scope(|scope| {
            let taking = [(); 4].map(|()| scope.spawn(take));
            taking.map(|thread| thread.join().expect("it takes")).iter().sum()
        });
        assert_eq!(taken, 1500);
    }

    #[test]
    fn a_bucket_of_nothing_gives_nothing() {
        assert_eq!(Bucket::default().take_at(SECOND, 1, 0), (0, Duration::from_secs(1)));
    }
}
