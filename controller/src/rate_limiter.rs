//! Decides when an object may be reconciled: at once, unless it was reconciled a moment ago or is in backoff.
//!
//! The limiter stands in front of the work queue of kube, which has neither rate limit nor backoff. A pass that comes too
//! early is deferred, and asked for again when its time has come; so an object that changes all the time is still
//! reconciled once per interval.

use crate::object::ObjectName;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The wait after the first failure, ± 20 %, and the longest wait. A server that names a time to wait is given it.
pub type BackoffRange = RangeInclusive<Duration>;

/// The pacing and backoff of the objects of one controller.
#[derive(Debug)]
pub struct RateLimiter {
    min_interval: Duration,
    backoff: BackoffRange,
    entries: Mutex<BTreeMap<ObjectName, Entry>>,
}

/// An object that was reconciled.
#[derive(Debug, Default)]
struct Entry {
    uid: String,
    last_pass: Option<Instant>,
    failures: u32,
    conflicts: u32,
    backoff: Option<Backoff>,
}

/// The time of the next attempt at an object that failed.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    until: Instant,
    /// The wish of people when the object failed, as a hash. Another wish ends the backoff.
    wish: u64,
}

/// An object as the limiter sees it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The name of the object.
    pub name: &'a ObjectName,
    /// Its UID. An object that replaced another of its name starts anew.
    pub uid: &'a str,
    /// A hash of what people want of it: generation, deletion, and the annotations that they set.
    pub wish: u64,
    /// True if the object is never held back, for example because it has a deadline.
    pub is_urgent: bool,
}

/// The reason why a pass was deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The last pass failed.
    Backoff,
    /// The last pass was less than the minimum interval ago.
    Interval,
}

impl Reason {
    /// Returns the value of the label `why` of the metrics.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Backoff => "backoff",
            Reason::Interval => "interval",
        }
    }
}

/// A pass that comes too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deferred {
    /// The time until the pass may be made.
    pub left: Duration,
    /// The reason.
    pub reason: Reason,
}

impl RateLimiter {
    /// Returns a limiter that lets an object be reconciled once per `min_interval`, and again after a failure in a time
    /// that doubles within `backoff`.
    pub fn new(min_interval: Duration, backoff: BackoffRange) -> RateLimiter {
        RateLimiter { min_interval, backoff, entries: Mutex::default() }
    }

    /// Admits a pass and notes its time, or says how long it has to wait.
    ///
    /// # Errors
    /// [`Deferred`] if the object is in backoff and people still want the same of it, or if the last pass was less than
    /// the minimum interval ago. An urgent object is always admitted.
    pub fn admit(&self, subject: Subject<'_>, now: Instant) -> Result<(), Deferred> {
        let mut entries = self.entries();
        let entry = entry_of(&mut entries, subject);
        if !subject.is_urgent {
            let backoff = entry.backoff.filter(|backoff| backoff.wish == subject.wish);
            let backoff = backoff.map(|backoff| (backoff.until, Reason::Backoff));
            let interval = entry.last_pass.map(|last| (last + self.min_interval, Reason::Interval));
            if let Some((until, reason)) = backoff.into_iter().chain(interval).find(|(until, _)| *until > now)
            {
                return Err(Deferred { left: until - now, reason });
            }
        }
        entry.last_pass = Some(now);
        Ok(())
    }

    /// Notes that a pass succeeded: the next failure is the first again.
    pub fn succeeded(&self, subject: Subject<'_>) {
        let mut entries = self.entries();
        let entry = entry_of(&mut entries, subject);
        (entry.failures, entry.conflicts, entry.backoff) = (0, 0, None);
    }

    /// Notes that a pass met a conflict. Returns how many did since one succeeded.
    pub fn conflicted(&self, subject: Subject<'_>) -> u32 {
        let mut entries = self.entries();
        let entry = entry_of(&mut entries, subject);
        entry.conflicts = entry.conflicts.saturating_add(1);
        entry.conflicts
    }

    /// Notes that a pass failed. Returns the time until the next attempt, `retry_after` at least, and how many passes
    /// have failed in a row.
    pub fn failed(
        &self,
        subject: Subject<'_>,
        retry_after: Option<Duration>,
        now: Instant,
    ) -> (Duration, u32) {
        let mut entries = self.entries();
        let entry = entry_of(&mut entries, subject);
        entry.failures = entry.failures.saturating_add(1);
        let doubled = self.backoff.start().saturating_mul(1 << (entry.failures - 1).min(24));
        let wait = doubled.mul_f64(0.8 + 0.4 * fastrand::f64()).min(*self.backoff.end());
        let wait = wait.max(retry_after.unwrap_or_default());
        entry.backoff = Some(Backoff { until: now + wait, wish: subject.wish });
        (wait, entry.failures)
    }

    /// Ends the backoff of an object, which may be reconciled at once. Its failures still count.
    pub fn end_backoff(&self, name: &ObjectName) {
        if let Some(entry) = self.entries().get_mut(name) {
            (entry.backoff, entry.last_pass) = (None, None);
        }
    }

    /// Ends the backoff of all objects.
    pub fn end_backoffs(&self) {
        self.entries().values_mut().for_each(|entry| entry.backoff = None);
    }

    /// Forgets an object that is gone. Returns its UID if it was ever reconciled.
    pub fn forget(&self, name: &ObjectName) -> Option<String> {
        self.entries().remove(name).map(|entry| entry.uid)
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ObjectName, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entry_of<'a>(entries: &'a mut BTreeMap<ObjectName, Entry>, subject: Subject<'_>) -> &'a mut Entry {
    if entries.get(subject.name).is_none_or(|entry| entry.uid != subject.uid) {
        let entry = Entry { uid: subject.uid.to_owned(), ..Entry::default() };
        entries.insert(subject.name.clone(), entry);
    }
    entries.get_mut(subject.name).expect("it was inserted")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn limiter(min_interval: Duration) -> RateLimiter {
        RateLimiter::new(min_interval, 5 * MS..=Duration::from_secs(300))
    }

    fn name() -> ObjectName {
        ObjectName { namespace: "a".to_owned(), name: "b".to_owned() }
    }

    fn subject(name: &ObjectName, wish: u64) -> Subject<'_> {
        Subject { name, uid: "u", wish, is_urgent: false }
    }

    #[test]
    fn an_object_that_changes_all_the_time_is_reconciled_once_per_interval() {
        let (limiter, name, start) = (limiter(250 * MS), name(), Instant::now());
        let passes =
            (0..100).filter(|tick| limiter.admit(subject(&name, 0), start + 100 * MS * *tick).is_ok());
        // Every 100 ms for ten seconds: at 0, 300, 600 ms and so on.
        assert_eq!(passes.count(), 34);
        let early = limiter.admit(subject(&name, 0), start + 9_950 * MS);
        assert_eq!(early, Err(Deferred { left: 200 * MS, reason: Reason::Interval }));
    }

    #[test]
    fn an_event_does_not_overtake_a_backoff_but_another_wish_does() {
        let (limiter, name, now) = (limiter(Duration::ZERO), name(), Instant::now());
        assert!(limiter.admit(subject(&name, 1), now).is_ok());
        let (wait, failures) = limiter.failed(subject(&name, 1), Some(Duration::from_secs(7)), now);
        assert_eq!((wait, failures), (Duration::from_secs(7), 1));
        let deferred = limiter.admit(subject(&name, 1), now + 2 * MS).unwrap_err();
        assert_eq!(deferred, Deferred { left: wait - 2 * MS, reason: Reason::Backoff });
        assert!(limiter.admit(Subject { is_urgent: true, ..subject(&name, 1) }, now).is_ok());
        assert!(limiter.admit(subject(&name, 2), now + 2 * MS).is_ok(), "a new generation");
        assert!(limiter.admit(Subject { uid: "v", ..subject(&name, 1) }, now).is_ok(), "another object");
    }

    #[test]
    fn an_urgent_wake_ends_a_backoff_and_the_failures_still_count() {
        let (limiter, name, now) = (limiter(Duration::from_secs(1)), name(), Instant::now());
        for _ in 0..3 {
            limiter.failed(subject(&name, 1), None, now);
        }
        limiter.end_backoff(&name);
        assert!(limiter.admit(subject(&name, 1), now).is_ok());
        assert_eq!(limiter.failed(subject(&name, 1), None, now).1, 4);
        limiter.succeeded(subject(&name, 1));
        assert_eq!(limiter.failed(subject(&name, 1), None, now).1, 1);
    }

    #[test]
    fn the_backoff_doubles_within_its_range() {
        let (limiter, name, now) = (limiter(Duration::ZERO), name(), Instant::now());
        for failures in 0..40 {
            let (wait, _) = limiter.failed(subject(&name, 1), None, now);
            let (middle, most) = ((5 * MS).saturating_mul(1 << failures.min(24)), Duration::from_secs(300));
            let range = middle.mul_f64(0.799).min(most)..=middle.mul_f64(1.201).min(most);
            assert!(range.contains(&wait), "{failures}: {wait:?}");
        }
        assert_eq!(limiter.forget(&name).as_deref(), Some("u"));
        assert_eq!(limiter.forget(&name), None);
    }
}
