//! A token bucket (GCRA) in one atomic word.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The rate at which a bucket fills. The bucket holds `count` at most, and an empty one is full after
/// `span`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The size of the bucket.
    pub count: u64,
    /// The time in which an empty bucket becomes full.
    pub span: Duration,
}

impl Rate {
    /// Returns a rate per second.
    pub const fn per_second(count: u64) -> Rate {
        Rate { count, span: Duration::from_secs(1) }
    }

    /// Returns a rate per day.
    pub const fn per_day(count: u64) -> Rate {
        Rate { count, span: Duration::from_secs(86_400) }
    }

    fn span(self) -> u64 {
        u64::try_from(self.span.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the nanoseconds after which there is one more. None if there never is one; 0 if there
    /// always is.
    fn each(self) -> Option<u64> {
        self.span().checked_div(self.count)
    }
}

/// A bucket of tokens. It stores the moment at which it is full again (GCRA), so that a request is one
/// atomic exchange and no task has to refill it.
#[derive(Debug, Default)]
pub struct Bucket {
    full_at: AtomicU64,
}

impl Bucket {
    /// Takes as many as there are, `most` at most. Returns the number taken, and the time until there
    /// is one more.
    pub fn take_some(&self, most: u64, rate: Rate) -> (u64, Duration) {
        self.take_at(nanos(), most, rate)
    }

    /// Returns true if fewer can be taken at once than from a new bucket.
    pub fn is_used(&self) -> bool {
        self.full_at.load(Ordering::Relaxed) > nanos()
    }

    fn take_at(&self, now: u64, most: u64, rate: Rate) -> (u64, Duration) {
        let Some(each) = rate.each() else { return (0, rate.span) };
        let latest = now + rate.span().max(each);
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

    /// Takes `cost` if the bucket has at least one, on credit if it has fewer than `cost`. A request
    /// that costs more than the bucket holds is therefore possible.
    ///
    /// # Errors
    /// The time until the bucket has one.
    pub fn take(&self, cost: u64, rate: Rate) -> Result<(), Duration> {
        self.take_on_credit_at(nanos(), cost, rate)
    }

    fn take_on_credit_at(&self, now: u64, cost: u64, rate: Rate) -> Result<(), Duration> {
        match self.wait_at(now, rate) {
            Duration::ZERO => {
                self.charge_at(now, cost, rate);
                Ok(())
            }
            wait => Err(wait),
        }
    }

    /// Returns the time until the bucket has one; zero if it has one now.
    pub fn wait(&self, rate: Rate) -> Duration {
        self.wait_at(nanos(), rate)
    }

    fn wait_at(&self, now: u64, rate: Rate) -> Duration {
        let Some(each) = rate.each() else { return rate.span };
        let latest = now + rate.span().max(each);
        let from = self.full_at.load(Ordering::Relaxed).max(now);
        Duration::from_nanos((from + each).saturating_sub(latest))
    }

    /// Makes the bucket full.
    pub fn fill(&self) {
        self.full_at.store(0, Ordering::Relaxed);
    }

    /// Takes `cost`, on credit if the bucket has less. The credit is at most what the bucket holds.
    pub fn charge(&self, cost: u64, rate: Rate) {
        self.charge_at(nanos(), cost, rate);
    }

    fn charge_at(&self, now: u64, cost: u64, rate: Rate) {
        let Some(each) = rate.each() else { return };
        let most = now + 2 * rate.span().max(each);
        let next = |full_at: u64| {
            let charged = full_at.max(now).saturating_add(cost.saturating_mul(each));
            Some(charged.min(most).max(full_at))
        };
        let _ = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

/// Returns the nanoseconds since the first call.
fn nanos() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const TEN: Rate = Rate::per_second(10);

    #[test]
    fn a_second_s_worth_can_be_taken_at_once_and_the_rest_as_it_comes_back() {
        let bucket = Bucket::default();
        let at_once = (0..20).filter(|_| bucket.take_at(SECOND, 1, TEN).0 == 1).count();
        assert_eq!(at_once, 10);
        let tenth = Duration::from_millis(100);
        assert_eq!(bucket.take_at(SECOND, 1, TEN), (0, tenth));
        assert_eq!(bucket.take_at(SECOND + SECOND / 10, 1, TEN), (1, tenth));
        assert_eq!(bucket.take_at(SECOND + SECOND / 10, 1, TEN).0, 0);
    }

    #[test]
    fn taking_some_together_gives_as_many_as_one_by_one() {
        let bucket = Bucket::default();
        let tenth = Duration::from_millis(100);
        assert_eq!(bucket.take_at(SECOND, 4, TEN), (4, Duration::ZERO));
        assert_eq!(bucket.take_at(SECOND, 20, TEN), (6, tenth));
        assert_eq!(bucket.take_at(SECOND + SECOND / 4, 20, TEN), (2, tenth / 2));
        assert_eq!(
            Bucket::default().take_at(SECOND, 20, Rate::per_second(2_000_000_000)),
            (20, Duration::ZERO)
        );
    }

    #[test]
    fn threads_that_take_at_once_get_no_more_than_there_is() {
        let bucket = Bucket::default();
        let take = || (0..100).map(|_| bucket.take_at(SECOND, 10, Rate::per_second(1500)).0).sum();
        let taken: u64 = std::thread::scope(|scope| {
            let taking = [(); 4].map(|()| scope.spawn(take));
            taking.map(|thread| thread.join().expect("it takes")).iter().sum()
        });
        assert_eq!(taken, 1500);
    }

    #[test]
    fn a_bucket_of_nothing_gives_nothing() {
        let none = Rate::per_second(0);
        assert_eq!(Bucket::default().take_at(SECOND, 1, none), (0, Duration::from_secs(1)));
        assert_eq!(Bucket::default().take_on_credit_at(SECOND, 1, none), Err(Duration::from_secs(1)));
    }

    #[test]
    fn a_cost_above_the_bucket_is_taken_on_credit_of_one_bucket_at_most() {
        let bucket = Bucket::default();
        assert_eq!(bucket.take_on_credit_at(SECOND, 9, TEN), Ok(()));
        assert_eq!(bucket.take_on_credit_at(SECOND, 6, TEN), Ok(()), "there is one");
        assert_eq!(bucket.take_on_credit_at(SECOND, 1, TEN), Err(Duration::from_millis(600)));
        bucket.charge_at(SECOND, 1_000, TEN);
        assert_eq!(bucket.take_on_credit_at(SECOND, 1, TEN), Err(Duration::from_millis(1_100)));
        assert_eq!(bucket.take_on_credit_at(SECOND + 11 * SECOND / 10, 1, TEN), Ok(()));
    }

    #[test]
    fn a_bucket_of_a_day_holds_a_day_s_worth() {
        let (bucket, day) = (Bucket::default(), Rate::per_day(1_000));
        assert_eq!(bucket.take_at(SECOND, 2_000, day).0, 1_000);
        assert_eq!(bucket.take_at(SECOND + 86_400 * SECOND / 2, 2_000, day).0, 500);
    }
}
