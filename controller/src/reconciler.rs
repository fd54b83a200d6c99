//! The trait [`Reconciler`]: a controller of one kind of object.

use crate::api_error;
use crate::events::EventRecorder;
use crate::leader_election::Leadership;
use crate::object::{Object, ObjectName};
use crate::watch::Watches;
use crate::writer::{WriteError, Writer};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A controller of one kind of object. The library calls [`Reconciler::reconcile`] when the object or something that it
/// watches has changed, never twice at once for one object.
pub trait Reconciler: Send + Sync + 'static {
    /// The kind of object.
    type Object: Object;
    /// Errors of its own, besides those of the cluster.
    type Error: ReconcilerError;

    /// The name of the controller in metrics and in the field manager `kubebid-NAME`, as in `bidnodes`.
    const NAME: &'static str;

    /// Says what else wakes an object, besides a change of its own.
    fn watches(&mut self, _on: &mut Watches<'_, Self::Object>) {}

    /// Compares an object with the world, and writes what is different. Errors lead to another pass after a backoff.
    fn reconcile(
        &self,
        object: Arc<Self::Object>,
        context: &Context,
    ) -> impl Future<Output = Result<Action, Error<Self::Error>>> + Send;

    /// Returns true if no backoff and no interval holds the object back, because something waits for it with a deadline.
    fn is_urgent(&self, _object: &Self::Object) -> bool {
        false
    }

    /// Returns true if the annotation `GROUP/paused: "true"` keeps an object from being reconciled.
    fn is_pausable(&self) -> bool {
        true
    }

    /// Forgets an object that is gone.
    fn forget(&self, _name: &ObjectName, _uid: &str) {}
}

/// The tools of a pass.
#[derive(Clone, Debug)]
pub struct Context {
    /// The only way to write to the cluster.
    pub writer: Writer,
    /// The events that people see.
    pub events: EventRecorder,
    /// The right to act outside the cluster: ask before each call.
    pub leadership: Leadership,
}

/// The time of the next pass after one that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until something changes.
    AwaitChange,
    /// Another pass after this time, or when something changes.
    RequeueAfter(Duration),
}

/// An error of a reconciler's own.
pub trait ReconcilerError: std::error::Error + Send + Sync + 'static {
    /// Returns the value of the label `result` of the metrics.
    fn reason(&self) -> &'static str;

    /// Returns the shortest time until the next attempt, if the cause named one.
    fn retry_after(&self) -> Option<Duration> {
        None
    }
}

impl ReconcilerError for std::convert::Infallible {
    fn reason(&self) -> &'static str {
        match *self {}
    }
}

/// Why a pass failed. It is repeated.
#[derive(Debug)]
pub enum Error<E> {
    /// The object was written by somebody else meanwhile, or our copy of it is old. It is no failure unless it goes on.
    Conflict,
    /// The API server refused a request, or did not answer.
    Cluster(Box<kube::Error>),
    /// This replica does not lead, or cannot be sure of it.
    NotLeader,
    /// A bug: the pass panicked.
    Panicked(String),
    /// An error of the reconciler's own.
    Own(E),
}

/// The reason of the event, and of a condition, of an object of which the API server denies a write.
pub const DENIED: &str = "Denied";

impl<E> Error<E> {
    /// Returns the message with which the API server denies a request, if it does: the object is not valid, a role does not
    /// permit the request, or an admission policy denies it.
    pub fn denial(&self) -> Option<String> {
        match self {
            Error::Cluster(error) if api_error::is_denied(error) => Some(api_error::message(error)),
            Error::Conflict | Error::Cluster(_) | Error::NotLeader | Error::Panicked(_) | Error::Own(_) => {
                None
            }
        }
    }
}

impl<E: ReconcilerError> Error<E> {
    /// Returns the value of the label `result` of the metrics.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Error::Conflict => "conflict",
            Error::Cluster(error) if api_error::is_denied(error) => "denied",
            Error::Cluster(_) => "cluster",
            Error::NotLeader => "not_leader",
            Error::Panicked(_) => "panicked",
            Error::Own(error) => error.reason(),
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Own(error) => error.retry_after(),
            Error::Cluster(error) => {
                let kube::Error::Api(status) = error.as_ref() else { return None };
                let seconds = status.details.as_ref().map(|details| details.retry_after_seconds)?;
                (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
            }
            Error::Conflict | Error::NotLeader | Error::Panicked(_) => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Conflict => f.write_str("the object has changed meanwhile"),
            Error::Cluster(error) => write!(f, "the cluster: {error}"),
            Error::NotLeader => f.write_str("this replica does not lead"),
            Error::Panicked(text) => write!(f, "a bug of ours: {text}"),
            Error::Own(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Error<E> {}

impl<E> From<WriteError> for Error<E> {
    fn from(error: WriteError) -> Error<E> {
        match error {
            WriteError::NotLeader => Error::NotLeader,
            WriteError::Conflict => Error::Conflict,
            WriteError::Cluster(error) => Error::Cluster(error),
        }
    }
}

impl<E> From<kube::Error> for Error<E> {
    fn from(error: kube::Error) -> Error<E> {
        WriteError::from(error).into()
    }
}
