//! The observation that decides about the next step of an object: the object, the cluster, and the resource as it was seen.

use super::Machine;
use crate::clock;
use crate::external::dependencies::{Dependencies, look};
use crate::external::permissions::{InvalidPermissions, Permissions};
use crate::external::transition::{Deletion, DependencyState, Reason, ResourceState, Situation, State};
use crate::external::{CallError, Dependency, External, Managed as _, Observed};
use crate::manager::PAUSED;
use crate::object::ObjectName;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The annotation with the spec that was last applied, after the prefix.
pub(super) const LAST_APPLIED: &str = "last-applied-spec";
/// The annotation with the permissions, after the prefix.
pub(super) const PERMISSIONS: &str = "access-permissions";
/// The annotation that adopts a resource that exists, after the prefix.
pub(super) const ADOPT: &str = "adopt";
/// The annotation that gives a resource up, after the prefix.
pub(super) const ABANDON: &str = "abandon";
/// The finalizer, after the prefix.
pub(super) const FINALIZER: &str = "external";

/// The reason of Recreating while the deletion is ours.
pub(super) const RECREATING: &str = "RecreateRequired";
/// The reason of Failed after a completion hook.
pub(super) const COMPLETION_FAILED: &str = "CompletionFailed";

/// Everything that decides about the next step of an object.
#[derive(Debug)]
pub struct ExternalObservation<D> {
    pub(super) state: State,
    pub(super) reason: String,
    pub(super) is_paused: bool,
    pub(super) has_finalizer: bool,
    /// The metadata that the object needs before the resource is asked for.
    pub(super) metadata: Option<Value>,
    pub(super) situation: Situation,
    pub(super) dependencies: Dependencies,
    /// The older object that stands for the same resource.
    pub(super) duplicate_of: Option<ObjectName>,
    pub(super) invalid_permissions: Option<InvalidPermissions>,
    /// True if a create call was begun before, which may have made the resource.
    pub(super) may_have_created: bool,
    pub(super) details: Option<D>,
    /// The reason why the resource is not deleted yet: something still needs it.
    pub(super) needed_by: Option<String>,
    /// Why the resource was not seen.
    pub(super) error: Option<CallError>,
}

impl<D> ExternalObservation<D> {
    /// Returns true if the decision needs the state of the resource.
    pub(super) fn needs_resource(&self) -> bool {
        let it = &self.situation;
        match it.deletion {
            _ if it.is_identity_changed => false,
            None => it.dependencies == DependencyState::Met && !it.is_duplicate,
            Some(Deletion::Now) => self.state == State::Terminating && it.permissions.delete && it.is_ours,
            Some(Deletion::Waiting | Deletion::Abandoned | Deletion::Expired) => false,
        }
    }
}

impl<E: External> Machine<E> {
    /// Returns what the object and the cluster say, without a look at the resource.
    pub(super) fn observe_cluster(&self, object: &E::Object) -> ExternalObservation<E::Details> {
        let status = object.external().cloned().unwrap_or_default();
        let annotation = |name: &str| self.annotation(object, name);
        let permissions = Permissions::parse(annotation(PERMISSIONS), E::PERMISSIONS);
        let duplicate_of = self.older(object);
        let own = Dependency::on::<E::Object>(ObjectName::of(object));
        let dependencies = look(&own, &self.external.dependencies(object), &self.dependency_kinds);
        let is_wished = annotation(ADOPT) == Some("true");
        let is_new = status.observed_generation != object.meta().generation;
        let call_failed = status.state == State::Failed && !is_machine_reason(&status.reason);
        let mut observation = ExternalObservation {
            state: status.state,
            is_paused: annotation(PAUSED) == Some("true"),
            has_finalizer: object.finalizers().contains(&self.finalizer()),
            metadata: None,
            situation: Situation {
                resource: ResourceState::Unreachable,
                permissions: *permissions.as_ref().unwrap_or(&Permissions::NONE),
                is_completion_due: E::COMPLETES && !self.is_hash_of(status.completed_spec.as_deref(), object),
                dependencies: dependencies.state,
                deletion: self.deletion(object),
                is_ours: status.origin.is_some() || is_wished,
                is_duplicate: duplicate_of.is_some(),
                is_identity_changed: status
                    .identity
                    .as_ref()
                    .is_some_and(|it| *it != self.external.identity(object)),
                is_deleted_by_us: status.reason == RECREATING,
                may_retry: self.external.timing().retries || is_new || !call_failed,
                is_in_grace: false,
                is_late: false,
                is_contested: false,
                is_out_of_patience: false,
            },
            may_have_created: status.origin.is_some(),
            reason: status.reason,
            dependencies,
            duplicate_of,
            invalid_permissions: permissions.err(),
            details: None,
            needed_by: None,
            error: None,
        };
        if observation.situation.deletion.is_none() && observation.needs_resource() {
            observation.metadata = self.missing_metadata(object, &observation);
        }
        observation
    }

    /// Compares the times of the status with the clock.
    pub(super) fn check_times(&self, object: &E::Object, observation: &mut ExternalObservation<E::Details>) {
        let (timing, status) = (self.external.timing(), object.external().cloned().unwrap_or_default());
        let has_passed = |since: Option<Timestamp>, limit| since.is_some_and(|it| clock::since(it) >= limit);
        let called_at = status.called_at.map(|time| time.0);
        let it = &mut observation.situation;
        it.is_in_grace = (called_at.is_some() && !has_passed(called_at, timing.creation_grace))
            || (it.deletion.is_some() && self.create_may_arrive(object));
        let is_at_work = status.state == State::Verifying
            && has_passed(status.since.map(|time| time.0), timing.progress_limit);
        it.is_late = is_at_work || status.reason == Reason::TookTooLong.word();
        let is_as_applied = self.is_hash_of(status.spec_hash.as_deref(), object);
        it.is_contested = is_as_applied && status.repairs.is_some_and(|repairs| repairs.is_waiting(&timing));
        it.is_out_of_patience = if it.resource == ResourceState::Unreachable {
            has_passed(status.unreachable_since.map(|time| time.0), timing.patience)
        } else {
            // A deletion whose answer did not come may not have arrived.
            status.unanswered == Some(State::Recreating) || has_passed(called_at, timing.patience)
        };
    }

    /// Returns true if a create call without an answer may still make the resource. Before the finalizer goes, it has the time
    /// of a call to arrive.
    pub(super) fn create_may_arrive(&self, object: &E::Object) -> bool {
        let timing = self.external.timing();
        let unanswered = object.external().filter(|status| status.unanswered == Some(State::Creating));
        let called_at = unanswered.and_then(|status| status.called_at.as_ref());
        called_at.is_some_and(|time| clock::since(time.0) < timing.creation_grace + timing.call)
    }

    pub(super) fn annotation<'a>(&self, object: &'a E::Object, name: &str) -> Option<&'a str> {
        object.annotations().get(&format!("{}/{name}", group::<E>())).map(String::as_str)
    }

    pub(super) fn finalizer(&self) -> String {
        format!("{}/{FINALIZER}", group::<E>())
    }

    /// Returns how far the deletion of an object is.
    pub(super) fn deletion(&self, object: &E::Object) -> Option<Deletion> {
        let timing = self.external.timing();
        let since = object.meta().deletion_timestamp.as_ref()?;
        let has_others = object.finalizers().iter().any(|name| *name != self.finalizer());
        let progress = if self.annotation(object, ABANDON) == Some("true") {
            Deletion::Abandoned
        } else if timing.deletion_limit.is_some_and(|limit| clock::since(since.0) >= limit) {
            Deletion::Expired
        } else if has_others && clock::since(since.0) < timing.finalizer_wait {
            Deletion::Waiting
        } else {
            Deletion::Now
        };
        Some(progress)
    }

    /// Returns the older object that stands for the same resource.
    pub(super) fn older(&self, object: &E::Object) -> Option<ObjectName> {
        let watched = self.watched.as_ref()?;
        // One that has made the resource is older than any other.
        let has_made = |it: &E::Object| it.external().is_some_and(|status| status.origin.is_some());
        let age = |it: &E::Object| (!has_made(it), it.creation_timestamp(), it.uid());
        let others = watched.by_identity.of(&self.external.identity(object));
        let others = others.iter().filter_map(|other| watched.objects.get(other));
        let mut older = others.filter(|other| other.uid() != object.uid() && age(other) < age(object));
        older.next().map(|other| ObjectName::of(other.as_ref()))
    }

    /// Returns finalizer and owners, if the object lacks one.
    pub(super) fn missing_metadata(
        &self,
        object: &E::Object,
        observation: &ExternalObservation<E::Details>,
    ) -> Option<Value> {
        let mut owners = object.owner_references().to_vec();
        for owner in &observation.dependencies.owners {
            if !owners.iter().any(|there| there.uid == owner.uid) {
                owners.push(owner.clone());
            }
        }
        if observation.has_finalizer && owners.len() == object.owner_references().len() {
            return None;
        }
        let mut finalizers = object.finalizers().to_vec();
        if !observation.has_finalizer {
            finalizers.push(self.finalizer());
        }
        let version = object.resource_version();
        Some(json!({"resourceVersion": version, "finalizers": finalizers, "ownerReferences": owners}))
    }

    pub(super) fn resource_state(&self, observed: Observed, object: &E::Object) -> ResourceState {
        match observed {
            Observed::Missing => ResourceState::Missing,
            Observed::RecreateRequired => ResourceState::RecreateRequired,
            Observed::UpdateRequired => ResourceState::UpdateRequired,
            Observed::InProgress => ResourceState::InProgress,
            Observed::Deleting => ResourceState::Deleting,
            Observed::Ready if !E::READS_BACK && !self.is_applied(object) => ResourceState::UpdateRequired,
            Observed::Ready => ResourceState::Ready,
        }
    }

    /// Returns true if the spec is the one that was last applied. An answer that was lost has left no annotation, but the
    /// hash of its spec.
    pub(super) fn is_applied(&self, object: &E::Object) -> bool {
        let status = object.external();
        let is_last_call = self.is_hash_of(status.and_then(|status| status.spec_hash.as_deref()), object);
        let is_unanswered = status.is_some_and(|status| status.unanswered.is_some());
        match self.annotation(object, LAST_APPLIED) {
            // A later call may have had its effect.
            Some(_) if is_unanswered && !is_last_call => false,
            Some(_) => self.applied_spec(object).is_some(),
            None => is_last_call,
        }
    }

    /// Returns the spec that was last applied, as it was written, if it says the same as the present one: a field that a later
    /// version of the program has added counts as its default.
    fn applied_spec(&self, object: &E::Object) -> Option<Value> {
        let applied: Value = serde_json::from_str(self.annotation(object, LAST_APPLIED)?).ok()?;
        let spec = object.spec_json();
        if applied == spec {
            return Some(applied);
        }
        let mut earlier = serde_json::to_value(object).ok()?;
        earlier["spec"] = applied.clone();
        let earlier: E::Object = serde_json::from_value(earlier).ok()?;
        (earlier.spec_json() == spec).then_some(applied)
    }

    /// Returns true if a hash in the status is that of the present spec, also if an earlier version of the program wrote it.
    pub(super) fn is_hash_of(&self, hash: Option<&str>, object: &E::Object) -> bool {
        hash.is_some_and(|hash| {
            hash == hash_of(&object.spec_json())
                || self.applied_spec(object).is_some_and(|applied| hash == hash_of(&applied))
        })
    }
}

/// Returns the prefix of annotations and finalizer.
pub(super) fn group<E: External>() -> String {
    E::Object::group(&()).into_owned()
}

/// Returns the hash of a spec, as the status keeps it.
pub(super) fn hash_of(spec: &Value) -> String {
    // Maps of JSON are sorted.
    let digest = Sha256::digest(spec.to_string());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns true if a reason of Failed is the machine's own: no call has failed.
fn is_machine_reason(reason: &str) -> bool {
    let reasons = [
        Reason::PermissionMissing,
        Reason::AlreadyExists,
        Reason::Duplicate,
        Reason::IdentityChanged,
        Reason::TookTooLong,
        Reason::Contested,
        Reason::Unreachable,
    ];
    reasons.iter().any(|it| it.word() == reason)
}
