//! The reconciler of external resources: observes, asks [`transition`] what to do, and does it.

mod calls;
mod report;
mod scene;

use crate::clock;
use crate::conditions::{self, NewCondition};
use crate::external::dependencies::{DependenciesOf, DependencyKinds, KindMap};
use crate::external::status::Origin;
use crate::external::transition::{Deletion, Seen, State, Step, transition};
use crate::external::{CallError, CallErrorKind, External, Managed};
use crate::failpoint;
use crate::index::Index;
use crate::object::ObjectName;
use crate::phased::{self, Phased, Plan, Progress};
use crate::reconciler::{Action, Context, Error, Reconciler};
use crate::watch::{Watch, Watches};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::events::EventType;
use report::{enter, set_condition};
pub use scene::Scene;
use scene::{RECREATING, hash_of};
use serde_json::{Value, json};
use std::sync::Arc;
use tracing::info;

/// The reconciler of a kind of external resource.
#[derive(Debug)]
pub struct Machine<E: External> {
    external: Arc<E>,
    cluster: String,
    dependency_kinds: KindMap,
    watched: Option<Watched<E::Object>>,
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
        Machine { external, cluster, dependency_kinds: KindMap::new(), watched: None }
    }
}

impl<E: External> Reconciler for Machine<E> {
    type Object = E::Object;
    type Error = CallError;

    const NAME: &'static str = E::NAME;

    fn watches(&mut self, on: &mut Watches<'_, E::Object>) {
        let external = Arc::clone(&self.external);
        let objects = on.objects();
        let by_identity = objects.index(move |object| Some(external.identity(object)));
        self.watched = Some(Watched { objects, by_identity });
        let external = Arc::clone(&self.external);
        let own = DependenciesOf(Arc::new(move |object: &E::Object| external.dependencies(object)));
        let found = &mut self.dependency_kinds;
        self.external.kinds(&mut DependencyKinds { found, on, own });
    }

    async fn reconcile(&self, object: Arc<E::Object>, context: &Context) -> Result<Action, Error<CallError>> {
        phased::run(self, object, context).await
    }

    /// A paused object is reconciled: its condition says that it is paused.
    fn is_pausable(&self) -> bool {
        false
    }
}

/// A step of the machine: one of [`transition`], or what surrounds it.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// Says that the object is paused.
    Pause,
    /// Writes finalizer and owners.
    WriteMetadata(Value),
    /// Takes the step that the transition says.
    Take(Step),
}

impl<E: External> Phased for Machine<E> {
    type Object = E::Object;
    type Observation = Scene<E::Details>;
    type Step = Move;
    type Error = CallError;

    async fn observe(
        &self,
        object: &E::Object,
        context: &Context,
    ) -> Result<Scene<E::Details>, Error<CallError>> {
        let mut scene = self.look_inside(object);
        if !scene.is_paused && scene.metadata.is_none() && scene.asks() {
            let request = self.request(object, "observe", context);
            match self.call("observe", self.external.observe(&request), context).await {
                Ok((observed, details)) => {
                    scene.situation.seen = self.seen(observed, object);
                    scene.details = Some(details);
                }
                Err(error) => {
                    let is_transient = error.kind == CallErrorKind::Transient;
                    scene.situation.seen = if is_transient { Seen::Unreachable } else { Seen::Refused };
                    scene.error = Some(error);
                }
            }
        }
        self.watch_clock(object, &mut scene);
        Ok(scene)
    }

    fn plan(&self, scene: &Scene<E::Details>) -> Plan<Move> {
        if scene.situation.deletion != Deletion::No && !scene.has_finalizer {
            return Plan::AwaitChange;
        }
        if scene.is_paused {
            return Plan::Do(Move::Pause);
        }
        if let Some(metadata) = &scene.metadata {
            return Plan::Do(Move::WriteMetadata(metadata.clone()));
        }
        Plan::Do(Move::Take(transition(scene.state, &scene.situation)))
    }

    fn records_before(&self, step: &Move) -> bool {
        matches!(step, Move::Take(Step::Create | Step::Update | Step::Recreate | Step::Delete))
    }

    fn note_before(&self, step: &Move, object: &mut E::Object) {
        let hash = hash_of(&object.spec_json());
        let (state, reason) = match step {
            Move::Take(Step::Create) => (State::Creating, "Creating"),
            Move::Take(Step::Update) => (State::Updating, "Updating"),
            Move::Take(Step::Recreate) => (State::Recreating, RECREATING),
            Move::Take(Step::Complete) => (State::Completing, "Completing"),
            Move::Pause
            | Move::WriteMetadata(_)
            | Move::Take(Step::Stay | Step::Enter(..) | Step::Delete | Step::RemoveFinalizer) => return,
        };
        let now = Time(clock::now());
        let status = object.external_mut();
        // A call without an answer that is made again keeps its number, and so its idempotency key.
        let is_repetition = status.unanswered == Some(state) && status.spec_hash.as_ref() == Some(&hash);
        if state != State::Completing && !is_repetition {
            status.attempt += 1;
            status.completed_spec = None;
        }
        if state != State::Completing {
            (status.spec_hash, status.called_at, status.unanswered) = (Some(hash), Some(now), Some(state));
        }
        if state == State::Creating {
            status.origin = Some(Origin::Created);
        }
        enter(object, state, reason, &format!("{} is being called", state.call()));
    }

    async fn act(
        &self,
        step: &Move,
        scene: Scene<E::Details>,
        object: &mut E::Object,
        context: &Context,
    ) -> Result<Progress, Error<CallError>> {
        let step = match step {
            Move::Pause => {
                let paused =
                    NewCondition::new("Paused", true, "Annotation", "no call is made while it is paused");
                set_condition(object, paused);
                return Ok(Progress::AwaitChange);
            }
            Move::WriteMetadata(metadata) => {
                return self.write_metadata(json!({"metadata": metadata}), object, context).await;
            }
            Move::Take(step) => *step,
        };
        conditions::remove(&mut object.external_mut().conditions, "Paused");
        if context.writer.is_dry_run() && !matches!(step, Step::Stay | Step::Enter(..)) {
            info!(object = %ObjectName::of(object), ?step, "withheld by --dry-run");
            return Ok(Progress::RetryAfter(self.external.timing().poll));
        }
        let is_adopted = scene.situation.seen.exists() && scene.situation.is_ours;
        let status = object.external_mut();
        if is_adopted && status.origin.is_none() {
            status.origin = Some(Origin::Adopted);
        }
        if scene.situation.seen != Seen::Unreachable {
            status.unreachable_since = None;
        }
        match step {
            Step::Stay => self.stay(scene, object),
            Step::Enter(state, reason) => self.enter(state, reason, scene, object, context).await,
            Step::Create => {
                if scene.state == State::Succeeded {
                    let note = format!("{} was deleted outside the cluster", self.external.identity(object));
                    context.events.publish(object, None, EventType::Warning, "ExternalDeleted", note);
                }
                failpoint::hit("external-create");
                let request = self.request(object, "create", context);
                let answer = self.call("create", self.external.create(&request), context).await;
                failpoint::hit("external-created");
                self.applied("Created", answer, object, context).await
            }
            Step::Update => {
                failpoint::hit("external-update");
                let request = self.request(object, "update", context);
                let answer = self.call("update", self.external.update(&request), context).await;
                failpoint::hit("external-updated");
                self.applied("Updated", answer, object, context).await
            }
            Step::Complete => self.complete(object, context).await,
            Step::Recreate => self.recreate(object, context).await,
            Step::Delete => self.delete(object, context).await,
            Step::RemoveFinalizer => self.remove_finalizer(&scene.situation, object, context).await,
        }
    }
}
