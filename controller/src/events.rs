//! Events that people see in `kubectl describe`. A queue takes them, so that no pass waits for one to be written.

use crate::leader_election::Leadership;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tracing::warn;

/// The time in which an event with the same object, reason and note is written once.
const REPEATED_WITHIN: Duration = Duration::from_secs(120);
/// Events of one object: one a second, and so many at once.
const BURST: u32 = 25;

/// An event and the object that it is about.
struct Queued {
    event: Event,
    regarding: ObjectReference,
}

/// Queues events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventRecorder(UnboundedSender<Queued>);

/// Writes queued events, one after the other.
pub struct EventWriter {
    recorder: Recorder,
    queue: UnboundedReceiver<Queued>,
    leadership: Leadership,
    dry_run: bool,
    filter: Filter,
}

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventWriter").field("dry_run", &self.dry_run).finish_non_exhaustive()
    }
}

/// Returns a recorder and the task that writes what it queues. `reporter` is the `reportingController` of the events.
pub fn recorder(
    client: Client,
    reporter: &str,
    leadership: Leadership,
    dry_run: bool,
) -> (EventRecorder, EventWriter) {
    let reporter = Reporter { controller: reporter.to_owned(), instance: None };
    let recorder = Recorder::new(client, reporter);
    let (sender, queue) = unbounded_channel();
    let writer = EventWriter { recorder, queue, leadership, dry_run, filter: Filter::default() };
    (EventRecorder(sender), writer)
}

impl EventRecorder {
    /// Queues an event about an object. `related` is the object that caused it, if it is another one: events with the
    /// same reason and different related objects are not counted as one.
    pub fn publish<K: Resource<DynamicType = ()>>(
        &self,
        regarding: &K,
        related: Option<ObjectReference>,
        type_: EventType,
        reason: &str,
        note: impl Into<String>,
    ) {
        let (reason, action) = (reason.to_owned(), reason.to_owned());
        let event = Event { type_, reason, note: Some(note.into()), action, secondary: related };
        // The receiver is gone at the end of the process.
        let _ = self.0.send(Queued { event, regarding: regarding.object_ref(&()) });
    }
}

impl EventWriter {
    /// Writes events until it is dropped. An event that cannot be written is logged and lost.
    pub async fn run(mut self) {
        while let Some(Queued { event, regarding }) = self.queue.recv().await {
            if !self.leadership.is_valid() || !self.filter.admit(&event, &regarding, Instant::now()) {
                continue;
            }
            if self.dry_run {
                tracing::info!(reason = event.reason, note = event.note, "withheld by --dry-run: an event");
                continue;
            }
            if let Err(error) = self.recorder.publish(&event, &regarding).await {
                warn!(%error, reason = event.reason, "an event could not be written");
            }
        }
    }
}

/// Drops repeated events, and those of an object that has too many.
#[derive(Debug, Default)]
struct Filter {
    /// The time at which an event was last written, by the UID of its object, its related object, reason and note.
    written: BTreeMap<(String, String, String, String), Instant>,
    /// The tokens of each object by UID, as of a time.
    tokens: BTreeMap<String, (f64, Instant)>,
}

impl Filter {
    fn admit(&mut self, event: &Event, regarding: &ObjectReference, now: Instant) -> bool {
        self.written.retain(|_, at| now.duration_since(*at) < REPEATED_WITHIN);
        self.tokens
            .retain(|_, (tokens, at)| *tokens + now.duration_since(*at).as_secs_f64() < f64::from(BURST));
        let uid = regarding.uid.clone().unwrap_or_default();
        let related = event.secondary.as_ref().and_then(|related| related.uid.clone()).unwrap_or_default();
        let key = (uid.clone(), related, event.reason.clone(), event.note.clone().unwrap_or_default());
        if self.written.contains_key(&key) {
            return false;
        }
        let (tokens, at) = self.tokens.get(&uid).copied().unwrap_or((f64::from(BURST), now));
        let tokens = (tokens + now.duration_since(at).as_secs_f64()).min(f64::from(BURST));
        if tokens < 1.0 {
            return false;
        }
        self.tokens.insert(uid, (tokens - 1.0, now));
        self.written.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(note: &str) -> Event {
        let (reason, action, note) = ("Created".to_owned(), "Created".to_owned(), Some(note.to_owned()));
        Event { type_: EventType::Normal, reason, note, action, secondary: None }
    }

    fn object(uid: &str) -> ObjectReference {
        ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() }
    }

    #[test]
    fn the_same_event_is_written_once_within_two_minutes() {
        let (mut filter, now) = (Filter::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert!(filter.admit(&event("a"), &object("1"), now));
        assert!(!filter.admit(&event("a"), &object("1"), now + 119 * second));
        assert!(filter.admit(&event("b"), &object("1"), now + 119 * second));
        assert!(filter.admit(&event("a"), &object("2"), now + 119 * second));
        assert!(filter.admit(&event("a"), &object("1"), now + 120 * second));
    }

    #[test]
    fn an_object_has_25_events_at_once_and_one_a_second() {
        let (mut filter, now) = (Filter::default(), Instant::now());
        let mut note = 0;
        let mut some = |filter: &mut Filter, now| {
            note += 1;
            filter.admit(&event(&note.to_string()), &object("1"), now)
        };
        assert_eq!((0..30).filter(|_| some(&mut filter, now)).count(), 25);
        assert_eq!((0..30).filter(|_| some(&mut filter, now + Duration::from_secs(3))).count(), 3);
    }
}
