//! Calls that change a resource, and what their answers mean.

use super::Machine;
use super::observation::{ADOPT, COMPLETION_FAILED, LAST_APPLIED, group, hash_of};
use super::report::{enter, not_synced};
use crate::clock;
use crate::external::transition::{Deletion, Reason, Situation, State};
use crate::external::{Answer, CallError, CallErrorKind, DeleteAnswer, External, Managed as _, Request};
use crate::failpoint;
use crate::metrics;
use crate::phased::Progress;
use crate::reconciler::{Context, Error};
use kube::runtime::events::EventType;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::time::{Instant, timeout_at};

/// The most that the keys and values of all annotations of an object may have in the API server.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

impl<E: External> Machine<E> {
    pub(super) fn request<'a>(
        &self,
        object: &'a E::Object,
        purpose: &'static str,
        context: &'a Context,
    ) -> Request<'a, E> {
        let status = object.external();
        let attempt = status.map_or(0, |status| status.attempt);
        let uid = object.uid().unwrap_or_default();
        let payload = status.and_then(|status| serde_json::from_str(status.payload.as_ref()?).ok());
        let idempotency_key = format!("{}-{uid}-{attempt}-{purpose}", self.cluster);
        Request { object, idempotency_key, payload, context }
    }

    /// Makes a call, which must be answered while this replica leads.
    pub(super) async fn call<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, CallError>>,
        context: &Context,
    ) -> Result<T, CallError> {
        let deadline = Instant::now() + self.external.timing().call.min(context.leadership.left());
        let late = || CallError::transient("Timeout", format!("no answer to {name} in time"));
        // A timeout polls its future once more when its time is over: the call would begin without leadership.
        let mut call = pin!(call);
        let call =
            poll_fn(|task| if Instant::now() < deadline { call.as_mut().poll(task) } else { Poll::Pending });
        let answer = timeout_at(deadline, call).await.unwrap_or_else(|_| Err(late()));
        let outcome = match &answer {
            Ok(_) => "ok",
            Err(error) => match error.kind {
                CallErrorKind::Transient => "transient",
                CallErrorKind::Terminal | CallErrorKind::AlreadyExists => "refused",
            },
        };
        metrics::external_call(E::NAME, name, outcome);
        answer
    }

    pub(super) async fn write_metadata(
        &self,
        patch: Value,
        object: &mut E::Object,
        context: &Context,
    ) -> Result<Progress, Error<CallError>> {
        let Some(written) = context.writer.patch(object, patch).await? else {
            return Ok(Progress::Deleted);
        };
        // The spec in hand is still that of its generation.
        let generation = object.meta().generation;
        *object.meta_mut() = written.meta().clone();
        object.meta_mut().generation = generation;
        Ok(Progress::Done)
    }

    /// Notes the answer to a create or an update, and the spec that it was given. `may_have_created`: a create call before
    /// this one may have had its effect.
    pub(super) async fn applied(
        &self,
        what: &'static str,
        answer: Result<Answer<E::Payload>, CallError>,
        may_have_created: bool,
        object: &mut E::Object,
        context: &Context,
    ) -> Result<Progress, Error<CallError>> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.refused(error, may_have_created, object, context).await,
        };
        let status = object.external_mut();
        (status.unanswered, status.unreachable_since) = (None, None);
        if let Some(payload) = &answer.payload {
            object.external_mut().payload = serde_json::to_string(payload).ok();
        }
        let identity = self.external.identity(object);
        context.events.publish(
            object,
            None,
            EventType::Normal,
            what,
            format!("{identity} was {}", what.to_lowercase()),
        );
        self.write_last_applied(Some(object.spec_json()), object, context).await?;
        failpoint::hit("external-annotated");
        if answer.is_in_progress {
            enter(object, State::Verifying, Reason::InProgress.word(), &format!("{identity} is at work"));
            return Ok(self.next(object));
        }
        if E::COMPLETES {
            return self.complete(object, context).await;
        }
        self.succeed(object, context);
        Ok(self.next(object))
    }

    /// Notes that a create, an update or a deletion for a recreate was refused, or that its answer did not come.
    pub(super) async fn refused(
        &self,
        error: CallError,
        may_have_created: bool,
        object: &mut E::Object,
        context: &Context,
    ) -> Result<Progress, Error<CallError>> {
        if error.kind == CallErrorKind::Transient {
            let since = object.external().and_then(|status| status.unreachable_since.as_ref());
            if since.is_some_and(|since| clock::since(since.0) >= self.external.timing().patience) {
                return self.fail(Reason::Unreachable.word(), error.to_string(), error, object, context);
            }
            return Err(not_synced(object, error));
        }
        let status = object.external_mut();
        let is_create = status.unanswered == Some(State::Creating);
        // Nothing is known to be applied.
        (status.unanswered, status.spec_hash) = (None, None);
        let (mut reason, mut message) = (error.reason.clone(), error.to_string());
        if error.kind == CallErrorKind::AlreadyExists {
            if may_have_created || self.annotation(object, LAST_APPLIED).is_some() {
                // It was ours before this call: it had not been seen.
                let message = format!("{} was not seen, and exists", self.external.identity(object));
                enter(object, State::Verifying, Reason::NotSeenYet.word(), &message);
                return Ok(self.next(object));
            }
            reason = Reason::AlreadyExists.word().into();
            message = format!("{message}; {}/{ADOPT}: \"true\" adopts it", group::<E>());
        }
        if is_create && !may_have_created && self.annotation(object, LAST_APPLIED).is_none() {
            let status = object.external_mut();
            (status.origin, status.identity) = (None, None);
        }
        self.write_last_applied(None, object, context).await?;
        self.fail(&reason, message, error, object, context)
    }

    pub(super) async fn complete(
        &self,
        object: &mut E::Object,
        context: &Context,
    ) -> Result<Progress, Error<CallError>> {
        failpoint::hit("external-complete");
        let request = self.request(object, "complete", context);
        let done = self.call("complete", self.external.complete(&request), context).await;
        failpoint::hit("external-completed");
        match done {
            Ok(()) => {
                object.external_mut().completed_spec = Some(hash_of(&object.spec_json()));
                self.succeed(object, context);
                Ok(self.next(object))
            }
            Err(error) => self.fail(COMPLETION_FAILED, error.to_string(), error, object, context),
        }
    }

    pub(super) async fn recreate(
        &self,
        object: &mut E::Object,
        context: &Context,
    ) -> Result<Progress, Error<CallError>> {
        failpoint::hit("external-recreate");
        let request = self.request(object, "recreate", context);
        let answer = self.call("delete", self.external.delete(&request), context).await;
        failpoint::hit("external-recreated");
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.refused(error, false, object, context).await,
        };
        object.external_mut().unanswered = None;
        Ok(if answer == DeleteAnswer::Gone { Progress::Done } else { self.next(object) })
    }

    pub(super) async fn delete(
        &self,
        object: &mut E::Object,
        context: &Context,
    ) -> Result<Progress, Error<CallError>> {
        // Before the call: a create that arrives after it makes the resource again.
        let may_appear = self.create_may_arrive(object);
        failpoint::hit("external-delete");
        let request = self.request(object, "delete", context);
        let answer = self.call("delete", self.external.delete(&request), context).await;
        failpoint::hit("external-deleted");
        let identity = self.external.identity(object);
        match answer {
            Ok(DeleteAnswer::Gone) if may_appear => {
                let message =
                    format!("{identity} is deleted, and may be made by a create call without an answer");
                enter(object, State::Terminating, Reason::Deleting.word(), &message);
                Ok(self.next(object))
            }
            Ok(DeleteAnswer::Gone) => {
                self.release_object(
                    "Deleted",
                    EventType::Normal,
                    format!("{identity} is deleted"),
                    object,
                    context,
                )
                .await
            }
            Ok(DeleteAnswer::Accepted) => {
                object.external_mut().unanswered = None;
                enter(
                    object,
                    State::Terminating,
                    Reason::Deleting.word(),
                    &format!("{identity} is being deleted"),
                );
                Ok(self.next(object))
            }
            Err(error) => {
                let status = object.external_mut();
                if error.kind != CallErrorKind::Transient && status.unanswered == Some(State::Terminating) {
                    status.unanswered = None;
                }
                enter(object, State::Terminating, &error.reason, &error.message);
                Err(not_synced(object, error))
            }
        }
    }

    pub(super) async fn remove_finalizer(
        &self,
        it: &Situation,
        object: &E::Object,
        context: &Context,
    ) -> Result<Progress, Error<CallError>> {
        let identity = self.external.identity(object);
        let (reason, type_, note) = match it.deletion {
            Some(Deletion::Abandoned) => {
                ("Abandoned", EventType::Warning, format!("{identity} is left as it is"))
            }
            Some(Deletion::Expired) => (
                "DeletionExpired",
                EventType::Warning,
                format!("{identity} could not be deleted, and is left"),
            ),
            None | Some(Deletion::Waiting | Deletion::Now) if !it.is_ours || it.is_duplicate => {
                ("Left", EventType::Normal, format!("{identity} was not made for this object, and is left"))
            }
            None | Some(Deletion::Waiting | Deletion::Now) if !it.permissions.delete => {
                ("Left", EventType::Normal, format!("{identity} may not be deleted, and is left"))
            }
            None | Some(Deletion::Waiting | Deletion::Now) => {
                ("Deleted", EventType::Normal, format!("{identity} is deleted"))
            }
        };
        self.release_object(reason, type_, note, object, context).await
    }

    pub(super) async fn release_object(
        &self,
        reason: &str,
        type_: EventType,
        note: String,
        object: &E::Object,
        context: &Context,
    ) -> Result<Progress, Error<CallError>> {
        context.writer.remove_finalizer(object, &self.finalizer()).await?;
        context.events.publish(object, None, type_, reason, note);
        Ok(Progress::Deleted)
    }

    /// Writes or removes the annotation with the spec that was last applied. A spec for which the annotations have no room is known by
    /// its hash in the status.
    pub(super) async fn write_last_applied(
        &self,
        spec: Option<Value>,
        object: &mut E::Object,
        context: &Context,
    ) -> Result<(), Error<CallError>> {
        // The hashes of an earlier version of the program go with its annotation.
        let is_completed =
            self.is_hash_of(object.external().and_then(|it| it.completed_spec.as_deref()), object);
        if is_completed && let Some(spec) = &spec {
            object.external_mut().completed_spec = Some(hash_of(spec));
        }
        let name = format!("{}/{LAST_APPLIED}", group::<E>());
        let others = object.annotations().iter().filter(|(key, _)| **key != name);
        let taken: usize = others.map(|(key, value)| key.len() + value.len()).sum();
        let text = spec.map(|spec| spec.to_string());
        let has_room = |text: &String| taken + name.len() + text.len() <= ANNOTATIONS_BYTES_MAX;
        if let Some(text) = text.as_ref().filter(|text| !has_room(text)) {
            let message = format!(
                "the spec has {} bytes, for which annotation {name} has no room: a later version of the program applies it once more",
                text.len()
            );
            context.events.publish(object, None, EventType::Normal, "LastAppliedNotKept", message);
        }
        let patch = json!({"metadata": {"annotations": {&name: text.filter(has_room)}}});
        self.write_metadata(patch, object, context).await.map(|_| ())
    }
}
