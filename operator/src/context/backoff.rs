//! Backoff of objects whose reconcile failed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The backoffs, by the key of the object.
#[derive(Debug, Default)]
pub(crate) struct Backoffs(Mutex<BTreeMap<String, Failures>>);

/// The failures of an object in a row.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    /// The end of the backoff, and what people wanted of the object when it began, as a hash.
    backoff: Option<(Instant, u64)>,
}

impl Backoffs {
    /// Counts a failure, and returns the number of failures in a row.
    pub(crate) fn failed(&self, key: &str) -> u32 {
        let mut failures = self.map();
        let failures = failures.entry(key.to_owned()).or_default();
        failures.count = failures.count.saturating_add(1);
        failures.count
    }

    /// Forgets the failures of an object.
    pub(crate) fn succeeded(&self, key: &str) {
        self.map().remove(key);
    }

    /// Begins the backoff of an object that has failed. Only another desired state of the object, or [`Backoffs::end`], ends
    /// it early: the status write of a failed reconcile would otherwise wake the object at once.
    pub(crate) fn begin(&self, key: &str, desired: u64, wait: Duration) {
        if let Some(failures) = self.map().get_mut(key) {
            failures.backoff = Some((Instant::now() + wait, desired));
        }
    }

    /// Returns the rest of the backoff of an object with this desired state.
    pub(crate) fn left(&self, key: &str, desired: u64) -> Option<Duration> {
        let failures = self.map();
        let (until, then) = failures.get(key)?.backoff?;
        let left = until.saturating_duration_since(Instant::now());
        (desired == then && !left.is_zero()).then_some(left)
    }

    /// Ends the backoff of an object. The number of its failures stays.
    pub(crate) fn end(&self, key: &str) {
        if let Some(failures) = self.map().get_mut(key) {
            failures.backoff = None;
        }
    }

    /// Ends all backoffs.
    pub(crate) fn end_all(&self) {
        self.map().values_mut().for_each(|failures| failures.backoff = None);
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<String, Failures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_backoff_ends_early_for_another_desired_state_and_is_longer_after_each_failure() {
        let backoffs = Backoffs::default();
        let second = Duration::from_secs(1);
        assert_eq!(backoffs.failed("a"), 1);
        backoffs.begin("a", 7, second);
        assert_eq!((backoffs.left("a", 7), backoffs.left("a", 8)), (Some(second), None));
        backoffs.end("a");
        assert_eq!((backoffs.left("a", 7), backoffs.failed("a")), (None, 2));
        backoffs.begin("a", 7, second);
        tokio::time::advance(second).await;
        assert_eq!(backoffs.left("a", 7), None);
        backoffs.succeeded("a");
        assert_eq!(backoffs.failed("a"), 1);
    }
}
