//! Reasons why a leading engine is not ready: the tables stand still, or the store refuses writes.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time after which rows that wait, while none is written, mean that the tables stand still.
const STANDS_STILL: Duration = Duration::from_secs(10);
/// The time for which a refusal of the store counts. Without another command the store is not asked
/// again.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// The state of the projector and the journal's writer. They report it, and `/readyz` reads it. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health(Arc<Mutex<Reports>>);

#[derive(Debug, Default)]
struct Reports {
    /// The time at which the rows that are to be written began to wait. None while all is written.
    rows_wait_since: Option<Instant>,
    /// Why the last attempt to write rows failed.
    tables: Option<String>,
    /// Why the projector has ended.
    ended: Option<String>,
    /// Why the journal's writer waits for the store.
    unanswered: Option<String>,
    /// The time and the reason of the last refusal of the store.
    refused: Option<(Instant, String)>,
}

impl Health {
    /// Returns why requests should go elsewhere, or None if all is well.
    pub(crate) fn trouble(&self) -> Option<String> {
        let reports = self.reports();
        let because = |why: &Option<String>| why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        if reports.ended.is_some() {
            return Some(format!("the readable tables are not written any more{}", because(&reports.ended)));
        }
        if let Some(since) = reports.rows_wait_since
            && since.elapsed() >= STANDS_STILL
        {
            let seconds = since.elapsed().as_secs();
            return Some(format!(
                "the readable tables have stood still for {seconds} s{}",
                because(&reports.tables)
            ));
        }
        if reports.unanswered.is_some() {
            return Some(format!("the store does not answer{}", because(&reports.unanswered)));
        }
        let refused = reports.refused.as_ref().filter(|(at, _)| at.elapsed() < REFUSED_FOR);
        refused.map(|(_, why)| why.clone())
    }

    /// Notes that rows wait to be written from now on, unless others wait already.
    pub(crate) fn rows_wait(&self) {
        self.reports().rows_wait_since.get_or_insert_with(Instant::now);
    }

    /// Notes that rows were written. `more` says if others wait.
    pub(crate) fn rows_written(&self, more: bool) {
        let mut reports = self.reports();
        reports.rows_wait_since = more.then(Instant::now);
        reports.tables = None;
    }

    pub(crate) fn rows_failed(&self, why: String) {
        self.reports().tables = Some(why);
    }

    pub(crate) fn projector_ended(&self, why: String) {
        self.reports().ended = Some(why);
    }

    /// Notes that the journal's writer repeatedly asks for the result of a batch.
    pub(crate) fn unanswered(&self, why: String) {
        self.reports().unanswered = Some(why);
    }

    pub(crate) fn answered(&self) {
        let mut reports = self.reports();
        (reports.unanswered, reports.refused) = (None, None);
    }

    pub(crate) fn refused(&self, why: String) {
        let mut reports = self.reports();
        (reports.unanswered, reports.refused) = (None, Some((Instant::now(), why)));
    }

    fn reports(&self) -> MutexGuard<'_, Reports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns an error with all its causes in one line, so that the log has the store's own words.
pub(crate) fn in_full(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        // The text of some errors ends with their cause.
        if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_have_nothing_to_write_do_not_stand_still() {
        let health = Health::default();
        assert_eq!(health.trouble(), None);
        health.rows_wait();
        health.rows_failed("no space left".to_owned());
        assert_eq!(health.trouble(), None, "not yet");
        health.reports().rows_wait_since = Instant::now().checked_sub(STANDS_STILL);
        let trouble = health.trouble().unwrap();
        assert!(trouble.contains("stood still") && trouble.ends_with(": no space left"), "{trouble}");
        health.rows_written(false);
        assert_eq!(health.trouble(), None);
    }

    #[test]
    fn a_projector_that_has_ended_is_reported_with_its_reason() {
        let health = Health::default();
        health.projector_ended("an amount is too large".to_owned());
        let trouble = health.trouble().unwrap();
        assert_eq!(trouble, "the readable tables are not written any more: an amount is too large");
    }

    #[test]
    fn a_store_that_takes_a_batch_again_is_healthy() {
        let health = Health::default();
        health.unanswered("connection refused".to_owned());
        assert_eq!(health.trouble().unwrap(), "the store does not answer: connection refused");
        health.refused("the store refuses: disk full".to_owned());
        assert_eq!(health.trouble().unwrap(), "the store refuses: disk full");
        health.answered();
        assert_eq!(health.trouble(), None);
    }
}
