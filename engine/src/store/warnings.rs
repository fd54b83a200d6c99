//! Collects the server's warnings while a statement runs.
//!
//! If a commit waits for a standby of the database and the wait is cancelled (`pg_cancel_backend`), it is
//! answered as any other commit, after a warning that the standby may not have it. sqlx only logs
//! warnings. So this module listens to the log while the statement runs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::instrument::WithSubscriber;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, dispatcher};

/// The target to which sqlx logs the server's notices.
const TARGET: &str = "sqlx::postgres::notice";

/// Listens to the warnings of one connection.
pub(super) struct Warnings {
    listener: Dispatch,
    last: LastWarning,
}

type LastWarning = Arc<Mutex<Option<String>>>;

impl Warnings {
    pub(super) fn new() -> Warnings {
        let last = LastWarning::default();
        let log = dispatcher::get_default(Clone::clone);
        let listener =
            Listener { log, level: LevelFilter::current().max(LevelFilter::WARN), last: last.clone() };
        Warnings { listener: Dispatch::new(listener), last }
    }

    /// Runs a statement of the connection. Returns its output, and the last warning if there was one.
    pub(super) async fn of<T>(&self, statement: impl Future<Output = T>) -> (T, Option<String>) {
        let take_last = || self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        take_last();
        let output = statement.with_subscriber(self.listener.clone()).await;
        (output, take_last())
    }
}

impl fmt::Debug for Warnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Warnings")
    }
}

/// Passes everything on to the log.
struct Listener {
    log: Dispatch,
    level: LevelFilter,
    last: LastWarning,
}

fn is_warning(metadata: &Metadata<'_>) -> bool {
    metadata.target() == TARGET && *metadata.level() == Level::WARN
}

impl Subscriber for Listener {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_warning(metadata) { Interest::always() } else { self.log.register_callsite(metadata) }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_warning(metadata) || self.log.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.log.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.log.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.log.record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        if is_warning(event.metadata()) {
            let mut text = Text(String::new());
            event.record(&mut text);
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.0);
        }
        if self.log.enabled(event.metadata()) {
            self.log.event(event);
        }
    }

    fn enter(&self, span: &Id) {
        self.log.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.log.exit(span);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.log.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.log.try_close(id)
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
