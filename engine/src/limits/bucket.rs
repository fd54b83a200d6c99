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
    /// Takes one out of a bucket of `per_second`; where it is empty, says for how long.
    pub fn take(&self, per_second: u64) -> Result<(), Duration> {
        self.take_at(nanos(), per_second)
    }

    fn take_at(&self, now: u64, per_second: u64) -> Result<(), Duration> {
        const SECOND: u64 = 1_000_000_000;
        let Some(each) = SECOND.checked_div(per_second) else { return Err(Duration::from_secs(1)) };
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        loop {
            let next = full_at.max(now) + each;
            if next > now + SECOND.max(each) {
                return Err(Duration::from_nanos(next - now - SECOND.max(each)));
            }
            match self.full_at.compare_exchange_weak(full_at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
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
        let at_once = (0..20).filter(|_| bucket.take_at(SECOND, 10).is_ok()).count();
        assert_eq!(at_once, 10);
        assert_eq!(bucket.take_at(SECOND, 10), Err(Duration::from_millis(100)));
        assert_eq!(bucket.take_at(SECOND + SECOND / 10, 10), Ok(()));
        assert!(bucket.take_at(SECOND + SECOND / 10, 10).is_err());
    }

    #[test]
    fn threads_that_take_at_once_get_no_more_than_there_is() {
        let bucket = Bucket::default();
        let take = || (0..1000).filter(|_| bucket.take_at(SECOND, 1500).is_ok()).count();
        let taken: usize = std::thread::scope(|scope| {
            let taking = [(); 4].map(|()| scope.spawn(take));
            taking.map(|thread| thread.join().expect("it takes")).iter().sum()
        });
        assert_eq!(taken, 1500);
    }

    #[test]
    fn a_bucket_of_nothing_gives_nothing() {
        assert!(Bucket::default().take_at(SECOND, 0).is_err());
    }
}
