//! External resources: things outside the cluster with create, read, update and delete, each with an object that stands
//! for it.
//!
//! [`External`] describes a kind of resource. [`Machine`] makes a [`crate::Reconciler`] of it: what it does in which state
//! is decided by [`transition::transition`] alone. The state is in the status before a call that changes something, so that
//! a crash during the call is followed by a question and not by a second resource.

mod contention;
pub mod dependencies;
pub mod machine;
mod object_states;
pub mod permissions;
mod status;
pub mod transition;

pub use contention::Repairs;
pub use dependencies::{Dependency, DependencyKinds};
pub use machine::Machine;
pub use status::{ExternalStatus, Managed};

use crate::reconciler::{Context, ReconcilerError};
use permissions::Permissions;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

/// A kind of external resource.
pub trait External: Send + Sync + 'static {
    /// The kind of object that stands for a resource.
    type Object: Managed;
    /// The note that one call leaves for the next, as in the number of an operation. It is kept in the status.
    type Payload: Serialize + DeserializeOwned + Send + Sync;
    /// The details of an observation that people see, besides [`Observed`]; `()` for none.
    type Details: Send;

    /// The name of the controller, as in `buckets`.
    const NAME: &'static str;
    /// True if [`External::observe`] compares the resource with the spec. If not, the spec is compared with the annotation
    /// `GROUP/last-applied-spec`.
    const READS_BACK: bool = true;
    /// True if [`External::complete`] is called after each create and update.
    const COMPLETES: bool = false;
    /// The permissions without the annotation `GROUP/access-permissions`.
    const PERMISSIONS: Permissions = Permissions::ALL;

    /// Returns the name of the resource at its service, from the object alone: a repeated call finds the same resource. Make
    /// the fields that it comes from immutable in the definition. If it changes all the same, the object is Failed
    /// (`IdentityChanged`) until it is what it was, and no call is made: neither resource is touched.
    fn identity(&self, object: &Self::Object) -> String;

    /// Names the objects that must be ready before the resource is asked for.
    fn dependencies(&self, _object: &Self::Object) -> Vec<Dependency> {
        Vec::new()
    }

    /// Names the kinds of these objects.
    fn kinds(&self, _kinds: &mut DependencyKinds<'_, '_, Self::Object>) {}

    /// Looks at the resource.
    fn observe(
        &self,
        request: &Request<'_, Self>,
    ) -> impl Future<Output = Result<(Observed, Self::Details), CallError>> + Send;

    /// Creates the resource.
    fn create(
        &self,
        request: &Request<'_, Self>,
    ) -> impl Future<Output = Result<Answer<Self::Payload>, CallError>> + Send;

    /// Says why another resource is needed, where an observation says so.
    fn why_recreate(&self, _object: &Self::Object) -> Option<String> {
        None
    }

    /// Makes the resource as the object says.
    fn update(
        &self,
        request: &Request<'_, Self>,
    ) -> impl Future<Output = Result<Answer<Self::Payload>, CallError>> + Send;

    /// Deletes the resource.
    fn delete(
        &self,
        request: &Request<'_, Self>,
    ) -> impl Future<Output = Result<DeleteAnswer, CallError>> + Send;

    /// Does what follows a create or an update, such as writing a Secret. It is safe to repeat.
    fn complete(&self, _request: &Request<'_, Self>) -> impl Future<Output = Result<(), CallError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Says what still needs the resource of an object that is being deleted. The deletion waits until nothing does, without
    /// a limit.
    fn needed_by(
        &self,
        _request: &Request<'_, Self>,
    ) -> impl Future<Output = Result<Option<String>, CallError>> + Send {
        std::future::ready(Ok(None))
    }

    /// Writes the details of an observation into the status of the object.
    fn describe(&self, _details: Self::Details, _object: &mut Self::Object) {}

    /// Returns the times of the resource.
    fn timing(&self) -> Timing {
        Timing::default()
    }
}

/// A call about an object.
#[derive(Debug)]
pub struct Request<'a, E: External + ?Sized> {
    /// The object.
    pub object: &'a E::Object,
    /// The key by which a service knows a repeated call, from cluster, object, attempt and purpose.
    pub idempotency_key: String,
    /// The note that the call before has left.
    pub payload: Option<E::Payload>,
    /// The tools of the pass.
    pub context: &'a Context,
}

/// The state of a resource, as its service says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// There is none.
    Missing,
    /// It differs in a way that only another resource can have.
    RecreateRequired,
    /// It differs in a way that an update can change.
    UpdateRequired,
    /// It is at work on a call.
    InProgress,
    /// It is ready.
    Ready,
    /// It is being deleted.
    Deleting,
}

/// The answer to a create or an update.
#[derive(Clone, Debug)]
pub struct Answer<P> {
    /// The resource is still at work on it.
    pub is_in_progress: bool,
    /// The note for the next call.
    pub payload: Option<P>,
}

impl<P> Answer<P> {
    /// Returns the answer of a call that is done.
    pub fn done() -> Answer<P> {
        Answer { is_in_progress: false, payload: None }
    }

    /// Returns the answer of a call that the resource is still at work on.
    pub fn in_progress(payload: Option<P>) -> Answer<P> {
        Answer { is_in_progress: true, payload }
    }
}

/// The answer to a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteAnswer {
    /// The resource is gone, or never was.
    Gone,
    /// It will be gone.
    Accepted,
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// The way to go on after it.
    pub kind: CallErrorKind,
    /// The reason in one word, as in `QuotaExceeded`.
    pub reason: Cow<'static, str>,
    /// The reason as a sentence.
    pub message: String,
    /// The shortest time until the next attempt, if the service named one.
    pub retry_after: Option<Duration>,
}

/// The way to go on after a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallErrorKind {
    /// Nobody knows whether it had an effect, or it passes by itself: observe, then try again.
    Transient,
    /// The service refuses it.
    Terminal,
    /// A resource of this identity exists already, and another call than this one made it.
    AlreadyExists,
}

impl CallError {
    /// Returns an error that passes by itself, or a call whose answer did not come.
    pub fn transient(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> CallError {
        let reason = reason.into();
        CallError { kind: CallErrorKind::Transient, reason, message: message.into(), retry_after: None }
    }

    /// Returns the refusal of a create call, because another call made the resource.
    pub fn already_exists(message: impl Into<String>) -> CallError {
        let (kind, reason) = (CallErrorKind::AlreadyExists, Cow::Borrowed("AlreadyExists"));
        CallError { kind, reason, message: message.into(), retry_after: None }
    }

    /// Returns an error that stays.
    pub fn terminal(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> CallError {
        let reason = reason.into();
        CallError { kind: CallErrorKind::Terminal, reason, message: message.into(), retry_after: None }
    }
}

impl ReconcilerError for CallError {
    fn reason(&self) -> &'static str {
        match self.kind {
            CallErrorKind::Transient => "unreachable",
            CallErrorKind::Terminal | CallErrorKind::AlreadyExists => "refused",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

/// The times of a kind of external resource.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The time between two looks at a resource that is at work.
    pub poll: Duration,
    /// The time after which a resource that is as it should be is compared again; None for never.
    pub resync: Option<Duration>,
    /// True if a call that was refused is repeated, after a backoff.
    pub retries: bool,
    /// The time after a create in which a resource may not be seen yet.
    pub creation_grace: Duration,
    /// The longest time that a resource may be at work on a call.
    pub progress_limit: Duration,
    /// The time for which a resource that is not seen counts as it was, and for which a deletion is waited for. A resource
    /// that somebody else keeps changing is put right again after this time, then after twice and four times as long.
    pub patience: Duration,
    /// The time for which finalizers of others are waited for.
    pub finalizer_wait: Duration,
    /// The time after which an object goes although its resource is not deleted; None for never.
    pub deletion_limit: Option<Duration>,
    /// The longest time of a call.
    pub call: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            poll: Duration::from_secs(30),
            resync: Some(Duration::from_secs(600)),
            retries: true,
            creation_grace: Duration::from_secs(10),
            progress_limit: Duration::from_secs(3600),
            patience: Duration::from_secs(120),
            finalizer_wait: Duration::from_secs(600),
            deletion_limit: None,
            call: Duration::from_secs(30),
        }
    }
}
