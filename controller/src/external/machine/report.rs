//! State, reason, conditions and events: the report to people.

use super::Machine;
use super::observation::{ABANDON, ADOPT, ExternalObservation, PERMISSIONS, group};
use crate::clock;
use crate::conditions::{self, NewCondition};
use crate::external::transition::{Reason, ResourceState, State};
use crate::external::{CallError, CallErrorKind, External, Managed};
use crate::object::Object;
use crate::phased::Progress;
use crate::reconciler::{Context, Error};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::runtime::events::EventType;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

impl State {
    /// Returns the call of a state in which one is made.
    pub(super) fn call(self) -> &'static str {
        match self {
            State::Creating => "create",
            State::Updating => "update",
            State::Recreating | State::Terminating => "delete",
            State::Completing => "the completion hook",
            State::Pending | State::Verifying | State::Succeeded | State::Failed => "nothing",
        }
    }
}

impl<E: External> Machine<E> {
    /// Keeps the state, and says what was seen.
    pub(super) fn stay(
        &self,
        observation: ExternalObservation<E::Details>,
        object: &mut E::Object,
    ) -> Result<Progress, Error<CallError>> {
        let state = observation.state;
        if let Some(details) = observation.details {
            self.external.describe(details, object);
        }
        if let Some(error) = observation.error {
            return Err(not_synced(object, error));
        }
        let (reason, message) = match object.external() {
            Some(status) => (status.reason.clone(), status.message.clone()),
            None => (observation.reason, String::new()),
        };
        enter(object, state, &reason, &message);
        Ok(self.next(object))
    }

    /// Enters the state that the transition says. What is said twice is one event.
    pub(super) async fn enter(
        &self,
        state: State,
        reason: Reason,
        observation: ExternalObservation<E::Details>,
        object: &mut E::Object,
        context: &Context,
    ) -> Result<Progress, Error<CallError>> {
        let message = self.message(reason, &observation, object);
        let refusal = observation.error.as_ref().filter(|_| reason == Reason::Refused);
        let word = refusal.map_or(reason.word().into(), |error| error.reason.clone());
        let has_changed = (observation.state, observation.reason.as_str()) != (state, &*word);
        if let Some(details) = observation.details {
            self.external.describe(details, object);
        }
        if state == State::Succeeded && self.is_applied(object) {
            self.write_last_applied(Some(object.spec_json()), object, context).await?;
        }
        enter(object, state, &word, &message);
        if state == State::Succeeded {
            let status = object.external_mut();
            (status.unanswered, status.unreachable_since) = (None, None);
        }
        let is_failure = state == State::Failed || reason == Reason::IdentityChanged;
        if has_changed && (is_failure || matches!(state, State::Succeeded | State::Recreating)) {
            let type_ = if is_failure { EventType::Warning } else { EventType::Normal };
            let name = if state == State::Succeeded { "Succeeded" } else { &*word };
            context.events.publish(object, None, type_, name, message);
        }
        match observation.error {
            Some(error) if self.external.timing().retries || error.kind == CallErrorKind::Transient => {
                Err(not_synced(object, error))
            }
            Some(_) => Ok(Progress::AwaitChange),
            None if state == State::Terminating && reason == Reason::Deleting => Ok(Progress::Done),
            None => Ok(self.next(object)),
        }
    }

    /// Returns the reason as a sentence.
    pub(super) fn message(
        &self,
        reason: Reason,
        observation: &ExternalObservation<E::Details>,
        object: &E::Object,
    ) -> String {
        let (identity, prefix) = (self.external.identity(object), group::<E>());
        let error = observation.error.as_ref().map(ToString::to_string).unwrap_or_default();
        match reason {
            Reason::DependencyMissing | Reason::DependencyNotReady | Reason::DependencyCycle => {
                observation.dependencies.message.clone()
            }
            Reason::PermissionMissing => match &observation.invalid_permissions {
                Some(invalid) => format!("{prefix}/{PERMISSIONS}: {invalid}"),
                None => {
                    let call = if observation.situation.resource == ResourceState::Missing {
                        "create"
                    } else if observation.situation.resource == ResourceState::RecreateRequired {
                        "delete and create"
                    } else {
                        "update"
                    };
                    let recreates = observation.situation.resource == ResourceState::RecreateRequired;
                    let why = recreates.then(|| self.external.why_recreate(object)).flatten();
                    let why = why.map(|why| format!("{why}: ")).unwrap_or_default();
                    format!("{why}{identity} needs {call}, which {prefix}/{PERMISSIONS} does not allow")
                }
            },
            Reason::AlreadyExists => {
                format!(
                    "{identity} exists and was not made for this object; {prefix}/{ADOPT}: \"true\" adopts it"
                )
            }
            Reason::Duplicate => {
                let other = observation.duplicate_of.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("{other} is older and stands for {identity}")
            }
            Reason::IdentityChanged => {
                let own = object.external().and_then(|status| status.identity.as_deref()).unwrap_or_default();
                format!(
                    "it stands for {own}, and names {identity} now: nothing is done to either. Set that back, or delete the object \
                     with {prefix}/{ABANDON}: \"true\", which leaves {own} as it is"
                )
            }
            Reason::NotSeenYet => format!("{identity} was created and cannot be seen yet"),
            Reason::InProgress => format!("{identity} is at work"),
            Reason::TookTooLong => {
                format!("{identity} is at work for longer than {:?}", self.external.timing().progress_limit)
            }
            Reason::DeletedOutside => format!("{identity} is being deleted by somebody else"),
            Reason::Contested => {
                let repairs = object.external().and_then(|status| status.repairs.as_ref());
                let count = repairs.map_or(0, |repairs| repairs.count);
                let wait = repairs.map(|repairs| repairs.wait(&self.external.timing())).unwrap_or_default();
                format!(
                    "somebody else keeps changing {identity}: it was put right {count} times, and is put right again {wait:?} \
                     after the last time"
                )
            }
            Reason::Unreachable | Reason::Refused => error,
            Reason::Available => format!("{identity} is as it should be"),
            Reason::Deleting => format!("{identity} is to be deleted"),
            Reason::WaitingForOthers => match &observation.needed_by {
                Some(needed_by) => needed_by.clone(),
                None if observation.error.is_some() => error,
                None => "other finalizers are waited for".to_owned(),
            },
        }
    }

    pub(super) fn succeed(&self, object: &mut E::Object, context: &Context) {
        let message = format!("{} is as it should be", self.external.identity(object));
        enter(object, State::Succeeded, Reason::Available.word(), &message);
        context.events.publish(object, None, EventType::Normal, "Succeeded", message);
    }

    pub(super) fn fail(
        &self,
        reason: &str,
        message: String,
        error: CallError,
        object: &mut E::Object,
        context: &Context,
    ) -> Result<Progress, Error<CallError>> {
        enter(object, State::Failed, reason, &message);
        context.events.publish(object, None, EventType::Warning, reason, message);
        if self.external.timing().retries || error.kind == CallErrorKind::Transient {
            return Err(Error::Own(error));
        }
        Ok(Progress::AwaitChange)
    }

    /// Returns when the object is looked at again, if nothing changes before.
    pub(super) fn next(&self, object: &E::Object) -> Progress {
        let timing = self.external.timing();
        let status = object.external().cloned().unwrap_or_default();
        let resync = || match timing.resync {
            Some(time) => Progress::RetryAfter(spread(time, object)),
            None => Progress::AwaitChange,
        };
        match status.state {
            State::Pending => Progress::AwaitChange,
            State::Creating
            | State::Updating
            | State::Verifying
            | State::Completing
            | State::Recreating
            | State::Terminating => Progress::RetryAfter(timing.poll),
            State::Succeeded => resync(),
            State::Failed => {
                let is_awaited = [Reason::TookTooLong, Reason::Duplicate, Reason::Contested];
                if is_awaited.iter().any(|reason| status.reason == reason.word()) {
                    Progress::RetryAfter(timing.poll)
                } else {
                    resync()
                }
            }
        }
    }
}

/// Enters a state, or says more about it, with the conditions that follow from it.
pub(super) fn enter<K: Managed>(object: &mut K, state: State, reason: &str, message: &str) {
    let now = clock::now();
    let generation = object.meta().generation;
    let status = object.external_mut();
    if status.state != state || status.since.is_none() {
        status.since = Some(Time(now));
    }
    status.state = state;
    (status.reason, status.message) = (reason.to_owned(), message.to_owned());
    status.observed_generation = generation;
    let is_ready = state == State::Succeeded;
    for type_ in ["Ready", "Synced"] {
        let condition = NewCondition::new(type_, is_ready, reason, message);
        conditions::set(&mut status.conditions, condition, generation, now);
    }
}

/// Says that the resource does not answer. The state stays, and Ready with it.
pub(super) fn not_synced<K: Managed>(object: &mut K, error: CallError) -> Error<CallError> {
    let status = object.external_mut();
    if error.kind == CallErrorKind::Transient && status.unreachable_since.is_none() {
        status.unreachable_since = Some(MicroTime(clock::now()));
    }
    let (reason, message) = (error.reason.clone(), error.message.clone());
    set_condition(object, NewCondition::new("Synced", false, reason, message));
    Error::Own(error)
}

pub(super) fn set_condition<K: Managed>(object: &mut K, condition: NewCondition) {
    let generation = object.meta().generation;
    conditions::set(&mut object.external_mut().conditions, condition, generation, clock::now());
}

/// Returns a time that differs by up to a tenth between objects, and is always the same for one.
pub(super) fn spread<K: Object>(time: Duration, object: &K) -> Duration {
    let mut hasher = DefaultHasher::new();
    object.meta().uid.hash(&mut hasher);
    let part = u32::try_from(hasher.finish() % 1000).unwrap_or_default();
    time.mul_f64(0.9) + time.mul_f64(0.2) * part / 1000
}
