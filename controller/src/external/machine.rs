//! The reconciler of external resources: observes, asks [`transition`] what to do, and does it.

mod calls;
mod observation;
mod report;

use crate::clock;
use crate::conditions::{self, NewCondition};
use crate::external::dependencies::{DependenciesOf, DependencyKinds, DependentKind, KindMap};
use crate::external::object_states::ObjectStates;
use crate::external::status::Origin;
use crate::external::transition::{
    Deletion, DependencyState, Reason, ResourceState, State, Step, transition,
};
use crate::external::{CallError, CallErrorKind, Dependency, External, Managed, Repairs};
use crate::failpoint;
use crate::index::Index;
use crate::object::ObjectName;
use crate::phased::{self, Phased, Plan, Progress};
use crate::reconciler::{Action, Context, DENIED, Error, Reconciler};
use crate::watch::{Watch, Watches};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Resource as _;
use kube::runtime::events::EventType;
pub use observation::ExternalObservation;
use observation::{RECREATING, hash_of};
use report::{enter, set_condition};
use serde_json::{Value, json};
use std::sync::Arc;
use tracing::info;

/// The reconciler of a kind of external resource.
#[derive(Debug)]
pub struct Machine<E: External> {
    external: Arc<E>,
    cluster: String,
    dependency_kinds: KindMap,
    dependents: Vec<Box<dyn DependentKind>>,
    watched: Option<Watched<E::Object>>,
    states: ObjectStates,
}

/// The objects of the controller, and those of each identity.
#[derive(Debug)]
struct Watched<K: Managed> {
    objects: Watch<K>,
    by_identity: Arc<Index<K>>,
}

impl<E: External> Machine<E> {
    /// Returns the reconciler of a kind of external resource. `cluster` is a name that no other cluster has: it is part of
    /// the idempotency keys.
    pub fn new(external: E, cluster: impl Into<String>) -> Machine<E> {
        let (external, cluster) = (Arc::new(external), cluster.into());
        let (dependency_kinds, states) = (KindMap::new(), ObjectStates::default());
        Machine { external, cluster, dependency_kinds, dependents: Vec::new(), watched: None, states }
    }
}

impl<E: External> Machine<E> {
    /// Says which object depends on one that is being deleted, if there is one. Objects that depend on each other do not wait.
    fn dependent_on(
        &self,
        object: &E::Object,
        observation: &ExternalObservation<E::Details>,
    ) -> Option<String> {
        if observation.situation.dependencies == DependencyState::Cycle {
            return None;
        }
        let own = Dependency::on::<E::Object>(ObjectName::of(object));
        let dependent = self.dependents.iter().find_map(|kind| kind.dependent_on(&own))?;
        Some(format!("{dependent} depends on it"))
    }
}

impl<E: External> Reconciler for Machine<E> {
    type Object = E::Object;
    type Error = CallError;

    const NAME: &'static str = E::NAME;

    fn watches(&mut self, on: &mut Watches<'_, E::Object>) {
        let external = Arc::clone(&self.external);
        let objects = on.objects();
        // An object whose identity was changed still has the resource that is its own.
        let by_identity = objects.index(move |object: &E::Object| {
            let own = object.external().and_then(|status| status.identity.clone());
            Some(own.unwrap_or_else(|| external.identity(object)))
        });
        self.watched = Some(Watched { objects, by_identity });
        let external = Arc::clone(&self.external);
        let own = DependenciesOf(Arc::new(move |object: &E::Object| external.dependencies(object)));
        let (found, dependents) = (&mut self.dependency_kinds, &mut self.dependents);
        self.external.kinds(&mut DependencyKinds { found, dependents, on, own });
    }

    async fn reconcile(&self, object: Arc<E::Object>, context: &Context) -> Result<Action, Error<CallError>> {
        phased::run(self, object, context).await
    }

    fn forget(&self, _name: &ObjectName, uid: &str) {
        self.states.remove(E::NAME, uid);
    }

    /// A paused object is reconciled: its condition says that it is paused.
    fn is_pausable(&self) -> bool {
        false
    }
}

/// A step of the machine: one of [`transition`], or what surrounds it.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineStep {
    /// Says that the object is paused.
    Pause,
    /// Writes finalizer and owners.
    WriteMetadata(Value),
    /// Takes the step that the transition says.
    Take(Step),
}

impl<E: External> Phased for Machine<E> {
    type Object = E::Object;
    type Observation = ExternalObservation<E::Details>;
    type Step = MachineStep;
    type Error = CallError;

    async fn observe(
        &self,
        object: &E::Object,
        context: &Context,
    ) -> Result<ExternalObservation<E::Details>, Error<CallError>> {
        let mut observation = self.observe_cluster(object);
        let is_asked =
            !observation.is_paused && observation.metadata.is_none() && observation.needs_resource();
        if is_asked && observation.situation.deletion.is_some() {
            let request = self.request(object, "observe", context);
            match self.call("needed_by", self.external.needed_by(&request), context).await {
                Ok(needed_by) => {
                    observation.needed_by = needed_by.or_else(|| self.dependent_on(object, &observation));
                }
                Err(error) => observation.error = Some(error),
            }
            if observation.needed_by.is_some() || observation.error.is_some() {
                observation.situation.deletion = Some(Deletion::Waiting);
            }
        }
        if is_asked && observation.situation.deletion != Some(Deletion::Waiting) {
            let request = self.request(object, "observe", context);
            match self.call("observe", self.external.observe(&request), context).await {
                Ok((observed, details)) => {
                    observation.situation.resource = self.resource_state(observed, object);
                    observation.details = Some(details);
                }
                Err(error) => {
                    let is_transient = error.kind == CallErrorKind::Transient;
                    observation.situation.resource =
                        if is_transient { ResourceState::Unreachable } else { ResourceState::Refused };
                    observation.error = Some(error);
                }
            }
        }
        self.check_times(object, &mut observation);
        Ok(observation)
    }

    fn plan(&self, observation: &ExternalObservation<E::Details>) -> Plan<MachineStep> {
        if observation.situation.deletion.is_some() && !observation.has_finalizer {
            return Plan::AwaitChange;
        }
        if observation.is_paused {
            return Plan::Do(MachineStep::Pause);
        }
        if let Some(metadata) = &observation.metadata {
            return Plan::Do(MachineStep::WriteMetadata(metadata.clone()));
        }
        Plan::Do(MachineStep::Take(transition(observation.state, &observation.situation)))
    }

    fn records_before(&self, step: &MachineStep) -> bool {
        matches!(step, MachineStep::Take(Step::Create | Step::Update | Step::Recreate | Step::Delete))
    }

    fn note_before(&self, step: &MachineStep, object: &mut E::Object) {
        let hash = hash_of(&object.spec_json());
        let (state, reason) = match step {
            MachineStep::Take(Step::Create) => (State::Creating, "Creating"),
            MachineStep::Take(Step::Update) => (State::Updating, "Updating"),
            MachineStep::Take(Step::Recreate) => (State::Recreating, RECREATING),
            MachineStep::Take(Step::Complete) => (State::Completing, "Completing"),
            MachineStep::Take(Step::Delete) => (State::Terminating, Reason::Deleting.word()),
            MachineStep::Pause
            | MachineStep::WriteMetadata(_)
            | MachineStep::Take(Step::Stay | Step::Enter(..) | Step::RemoveFinalizer) => return,
        };
        let (now, identity) = (MicroTime(clock::now()), self.external.identity(object));
        let is_same_spec =
            self.is_hash_of(object.external().and_then(|status| status.spec_hash.as_deref()), object);
        let status = object.external_mut();
        // A call without an answer that is made again keeps its number, and so its idempotency key.
        let is_same = state == State::Terminating || is_same_spec;
        let is_repetition = status.unanswered == Some(state) && is_same;
        match state {
            // The write before the hook was seen.
            State::Completing => status.unanswered = None,
            // A create without an answer may have its effect after the deletion.
            State::Terminating if status.unanswered == Some(State::Creating) => {}
            State::Terminating => status.unanswered = Some(state),
            State::Pending
            | State::Creating
            | State::Updating
            | State::Verifying
            | State::Succeeded
            | State::Recreating
            | State::Failed => {
                (status.spec_hash, status.called_at, status.unanswered) =
                    (Some(hash), Some(now), Some(state));
            }
        }
        if state == State::Updating && is_same && !is_repetition {
            // The resource was as the spec says before.
            status.repairs = Some(Repairs::one_more(status.repairs.as_ref(), &self.external.timing()));
        }
        if state != State::Completing && !is_repetition {
            status.attempt += 1;
            status.completed_spec = None;
        }
        if state == State::Creating {
            status.origin = Some(Origin::Created);
            status.identity = Some(identity);
        }
        enter(object, state, reason, &format!("{} is being called", state.call()));
    }

    async fn act(
        &self,
        step: &MachineStep,
        observation: ExternalObservation<E::Details>,
        object: &mut E::Object,
        context: &Context,
    ) -> Result<Progress, Error<CallError>> {
        let step = match step {
            MachineStep::Pause => {
                let paused =
                    NewCondition::new("Paused", true, "Annotation", "no call is made while it is paused");
                set_condition(object, paused);
                return Ok(Progress::AwaitChange);
            }
            MachineStep::WriteMetadata(metadata) => {
                return self.write_metadata(json!({"metadata": metadata}), object, context).await;
            }
            MachineStep::Take(step) => *step,
        };
        conditions::remove(&mut object.external_mut().conditions, "Paused");
        match &observation.invalid_permissions {
            Some(invalid) => {
                let invalid = NewCondition::new("PermissionsValid", false, "Invalid", invalid.to_string());
                set_condition(object, invalid);
            }
            None => conditions::remove(&mut object.external_mut().conditions, "PermissionsValid"),
        }
        if context.writer.is_dry_run() && !matches!(step, Step::Stay | Step::Enter(..)) {
            info!(object = %ObjectName::of(object), ?step, "withheld by --dry-run");
            return Ok(Progress::RetryAfter(self.external.timing().poll));
        }
        let is_adopted = observation.situation.resource.exists() && observation.situation.is_ours;
        let identity = self.external.identity(object);
        let status = object.external_mut();
        if is_adopted && status.origin.is_none() {
            status.origin = Some(Origin::Adopted);
        }
        if status.origin.is_some() {
            status.identity.get_or_insert(identity);
        }
        // A call that is not answered, although the resource is seen, is unreachable too.
        if observation.situation.resource != ResourceState::Unreachable && status.unanswered.is_none() {
            status.unreachable_since = None;
        }
        match step {
            Step::Stay => self.stay(observation, object),
            Step::Enter(state, reason) => self.enter(state, reason, observation, object, context).await,
            Step::Create => {
                if observation.state == State::Succeeded && self.is_applied(object) {
                    let note = format!("{} was deleted outside the cluster", self.external.identity(object));
                    context.events.publish(object, None, EventType::Warning, "ExternalDeleted", note);
                }
                failpoint::hit("external-create");
                let request = self.request(object, "create", context);
                let answer = self.call("create", self.external.create(&request), context).await;
                failpoint::hit("external-created");
                self.applied("Created", answer, observation.may_have_created, object, context).await
            }
            Step::Update => {
                failpoint::hit("external-update");
                let request = self.request(object, "update", context);
                let answer = self.call("update", self.external.update(&request), context).await;
                failpoint::hit("external-updated");
                self.applied("Updated", answer, false, object, context).await
            }
            Step::Complete => self.complete(object, context).await,
            Step::Recreate => self.recreate(object, context).await,
            Step::Delete => self.delete(object, context).await,
            Step::RemoveFinalizer => self.remove_finalizer(&observation.situation, object, context).await,
        }
    }

    fn describe(&self, object: &mut E::Object, error: Option<&Error<CallError>>) {
        if let Some(denial) = error.and_then(Error::denial) {
            set_condition(object, NewCondition::new("Synced", false, DENIED, denial));
        }
        let state = object.external().map(|status| status.state).unwrap_or_default();
        self.states.set(E::NAME, object.meta().uid.as_deref().unwrap_or_default(), state);
    }
}
