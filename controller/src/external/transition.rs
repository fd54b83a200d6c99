//! The state machine of external resources: the only place that decides what is done to one. Pure and total.

use crate::external::permissions::Permissions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of an object that stands for an external resource.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum State {
    /// Nothing was done yet, or something it depends on is not ready.
    #[default]
    Pending,
    /// A create call was begun. After a crash or a lost answer, whether it arrived is found out by observing.
    Creating,
    /// An update call was begun, likewise.
    Updating,
    /// The resource is at work on a call, or cannot be seen yet.
    Verifying,
    /// The resource is ready, and the completion hook is due.
    Completing,
    /// The resource is as the object says.
    Succeeded,
    /// The old resource is being deleted, so that it can be created anew.
    Recreating,
    /// Something has to change before it can succeed: the reason says what.
    Failed,
    /// The object is being deleted.
    Terminating,
}

/// The state of an external resource, as an observation shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResourceState {
    /// There is none.
    Missing,
    /// It is as the object says.
    Ready,
    /// It differs in a way that an update can change.
    UpdateRequired,
    /// It differs in a way that only another resource can have.
    RecreateRequired,
    /// It is at work on a call.
    InProgress,
    /// It is being deleted.
    Deleting,
    /// The answer did not come, or was an error that passes by itself.
    Unreachable,
    /// The question was refused: asking again gives the same answer.
    Refused,
}

impl ResourceState {
    /// Returns true if there is a resource.
    pub(super) fn exists(self) -> bool {
        matches!(
            self,
            ResourceState::Ready
                | ResourceState::UpdateRequired
                | ResourceState::RecreateRequired
                | ResourceState::InProgress
                | ResourceState::Deleting
        )
    }
}

/// The readiness of the objects that an object depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyState {
    /// All are.
    Met,
    /// One does not exist.
    Missing,
    /// One is not ready in its current generation.
    NotReady,
    /// They depend on each other.
    Cycle,
}

/// The progress of the deletion of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Finalizers of others are waited for, or what still needs the resource.
    Waiting,
    /// The resource is to be deleted.
    Now,
    /// People gave the resource up by an annotation.
    Abandoned,
    /// The time for the deletion is over.
    Expired,
}

/// Everything besides the state that decides about the next step.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// The state of the resource. Nothing is asked while dependencies are not met.
    pub resource: ResourceState,
    /// The permitted calls.
    pub permissions: Permissions,
    /// The completion hook was not called for the spec that is applied.
    pub is_completion_due: bool,
    /// The readiness of the dependencies.
    pub dependencies: DependencyState,
    /// The progress of the deletion of the object; None while nobody has deleted it.
    pub deletion: Option<Deletion>,
    /// We made the resource or may have made it, or people asked to adopt it.
    pub is_ours: bool,
    /// An older object stands for the same resource.
    pub is_duplicate: bool,
    /// The object stands for another resource than the one that is ours.
    pub is_identity_changed: bool,
    /// True in Recreating if we asked for the deletion.
    pub is_deleted_by_us: bool,
    /// True in Failed if there is a reason to try again: retries are on, the generation is a new one, or no call has failed.
    pub may_retry: bool,
    /// The resource was created a moment ago: it may not be seen yet.
    pub is_in_grace: bool,
    /// The resource is at work for longer than it may be.
    pub is_late: bool,
    /// Somebody else keeps changing the resource, and it is not yet time to put it right again.
    pub is_contested: bool,
    /// Unreachable, or in Recreating, for longer than one waits without another attempt.
    pub is_out_of_patience: bool,
}

/// Why the machine enters a state: the `reason` of the status and of its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// An object that this one depends on does not exist.
    DependencyMissing,
    /// An object that this one depends on is not ready.
    DependencyNotReady,
    /// Objects depend on each other.
    DependencyCycle,
    /// The annotation `access-permissions` forbids the next call.
    PermissionMissing,
    /// A resource of this identity exists that we did not make.
    AlreadyExists,
    /// An older object stands for the same resource.
    Duplicate,
    /// The object names another resource than the one that is its own.
    IdentityChanged,
    /// The resource cannot be seen yet.
    NotSeenYet,
    /// The resource is at work on a call.
    InProgress,
    /// The resource is at work for longer than it may be.
    TookTooLong,
    /// Somebody else deletes the resource.
    DeletedOutside,
    /// Somebody else keeps changing the resource.
    Contested,
    /// No answer for longer than one waits.
    Unreachable,
    /// The service refused the question.
    Refused,
    /// The resource is as the object says.
    Available,
    /// The object is being deleted.
    Deleting,
    /// Finalizers of others are waited for, or what still needs the resource.
    WaitingForOthers,
}

impl State {
    /// Returns the name of the state.
    pub fn word(self) -> &'static str {
        match self {
            State::Pending => "Pending",
            State::Creating => "Creating",
            State::Updating => "Updating",
            State::Verifying => "Verifying",
            State::Completing => "Completing",
            State::Succeeded => "Succeeded",
            State::Recreating => "Recreating",
            State::Failed => "Failed",
            State::Terminating => "Terminating",
        }
    }
}

impl Reason {
    /// Returns the reason as it is written into the status.
    pub fn word(self) -> &'static str {
        match self {
            Reason::DependencyMissing => "DependencyMissing",
            Reason::DependencyNotReady => "DependencyNotReady",
            Reason::DependencyCycle => "DependencyCycle",
            Reason::PermissionMissing => "PermissionMissing",
            Reason::AlreadyExists => "AlreadyExists",
            Reason::Duplicate => "Duplicate",
            Reason::IdentityChanged => "IdentityChanged",
            Reason::NotSeenYet => "NotSeenYet",
            Reason::InProgress => "InProgress",
            Reason::TookTooLong => "TookTooLong",
            Reason::DeletedOutside => "DeletedOutside",
            Reason::Contested => "Contested",
            Reason::Unreachable => "Unreachable",
            Reason::Refused => "Refused",
            Reason::Available => "Available",
            Reason::Deleting => "Deleting",
            Reason::WaitingForOthers => "WaitingForOthers",
        }
    }
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: the state stays.
    Stay,
    /// The state changes, and no call is made.
    Enter(State, Reason),
    /// The state Creating is written, then the resource is created.
    Create,
    /// The state Updating is written, then the resource is updated.
    Update,
    /// The state Recreating is written, then the resource is deleted, to be created anew.
    Recreate,
    /// The completion hook is called.
    Complete,
    /// The resource is deleted.
    Delete,
    /// The object may go: the resource is gone, not ours, left on purpose, or given up.
    RemoveFinalizer,
}

/// Decides about the next step.
pub fn transition(state: State, it: &Situation) -> Step {
    if let Some(progress) = it.deletion {
        return deletion(state, progress, it);
    }
    if it.is_identity_changed {
        return Step::Enter(State::Failed, Reason::IdentityChanged);
    }
    match it.dependencies {
        DependencyState::Met => {}
        DependencyState::Missing => return Step::Enter(State::Pending, Reason::DependencyMissing),
        DependencyState::NotReady => return Step::Enter(State::Pending, Reason::DependencyNotReady),
        DependencyState::Cycle => return Step::Enter(State::Pending, Reason::DependencyCycle),
    }
    if it.is_duplicate {
        return Step::Enter(State::Failed, Reason::Duplicate);
    }
    if it.resource.exists() && !it.is_ours {
        return Step::Enter(State::Failed, Reason::AlreadyExists);
    }
    match state {
        State::Recreating => recreation(it),
        State::Failed if !it.may_retry => failure(it),
        State::Pending
        | State::Creating
        | State::Updating
        | State::Verifying
        | State::Completing
        | State::Succeeded
        | State::Failed
        | State::Terminating => progress(state, it),
    }
}

/// Decides for an object that is on its way to Succeeded, or there.
fn progress(state: State, it: &Situation) -> Step {
    match it.resource {
        ResourceState::Missing if it.is_in_grace && matches!(state, State::Creating | State::Verifying) => {
            Step::Enter(State::Verifying, Reason::NotSeenYet)
        }
        ResourceState::Missing => create(it),
        ResourceState::Ready if it.is_completion_due => Step::Complete,
        ResourceState::Ready if state == State::Succeeded => Step::Stay,
        ResourceState::Ready => Step::Enter(State::Succeeded, Reason::Available),
        ResourceState::UpdateRequired if it.permissions.update && it.is_contested => {
            Step::Enter(State::Failed, Reason::Contested)
        }
        ResourceState::UpdateRequired if it.permissions.update => Step::Update,
        ResourceState::RecreateRequired if it.permissions.create && it.permissions.delete => Step::Recreate,
        ResourceState::UpdateRequired | ResourceState::RecreateRequired => forbidden(),
        ResourceState::InProgress if it.is_late => Step::Enter(State::Failed, Reason::TookTooLong),
        ResourceState::InProgress => Step::Enter(State::Verifying, Reason::InProgress),
        ResourceState::Deleting => Step::Enter(State::Recreating, Reason::DeletedOutside),
        ResourceState::Unreachable if it.is_out_of_patience && state != State::Failed => {
            Step::Enter(State::Failed, Reason::Unreachable)
        }
        ResourceState::Unreachable => Step::Stay,
        ResourceState::Refused if state == State::Failed => Step::Stay,
        ResourceState::Refused => Step::Enter(State::Failed, Reason::Refused),
    }
}

/// Decides for an object whose resource is being deleted, to be created anew.
fn recreation(it: &Situation) -> Step {
    match it.resource {
        ResourceState::Missing => create(it),
        // It is wanted again as it is, and its deletion did not happen.
        ResourceState::Ready if it.is_out_of_patience => progress(State::Pending, it),
        // Somebody else's deletion did not happen.
        ResourceState::Ready | ResourceState::UpdateRequired | ResourceState::RecreateRequired
            if !it.is_deleted_by_us =>
        {
            progress(State::Pending, it)
        }
        ResourceState::UpdateRequired | ResourceState::RecreateRequired
            if it.is_out_of_patience && it.permissions.create && it.permissions.delete =>
        {
            Step::Recreate
        }
        ResourceState::Refused => Step::Enter(State::Failed, Reason::Refused),
        ResourceState::Ready
        | ResourceState::UpdateRequired
        | ResourceState::RecreateRequired
        | ResourceState::InProgress
        | ResourceState::Deleting
        | ResourceState::Unreachable => Step::Stay,
    }
}

/// Decides for an object that has failed and is not tried again: what needs no call still happens.
fn failure(it: &Situation) -> Step {
    match it.resource {
        ResourceState::Ready if !it.is_completion_due => Step::Enter(State::Succeeded, Reason::Available),
        ResourceState::InProgress if !it.is_late => Step::Enter(State::Verifying, Reason::InProgress),
        ResourceState::Deleting => Step::Enter(State::Recreating, Reason::DeletedOutside),
        ResourceState::Missing
        | ResourceState::Ready
        | ResourceState::UpdateRequired
        | ResourceState::RecreateRequired
        | ResourceState::InProgress
        | ResourceState::Unreachable
        | ResourceState::Refused => Step::Stay,
    }
}

/// Decides for an object that is being deleted. An error never lets it go.
fn deletion(state: State, deletion: Deletion, it: &Situation) -> Step {
    let is_left = !it.permissions.delete || !it.is_ours || it.is_duplicate;
    match (deletion, it.resource) {
        (Deletion::Abandoned | Deletion::Expired, _) => Step::RemoveFinalizer,
        (Deletion::Waiting | Deletion::Now, _) if is_left => Step::RemoveFinalizer,
        (Deletion::Waiting | Deletion::Now, _) if it.is_identity_changed => {
            Step::Enter(State::Terminating, Reason::IdentityChanged)
        }
        (Deletion::Waiting, _) => Step::Enter(State::Terminating, Reason::WaitingForOthers),
        (Deletion::Now, _) if state != State::Terminating => {
            Step::Enter(State::Terminating, Reason::Deleting)
        }
        // It may appear yet.
        (Deletion::Now, ResourceState::Missing) if it.is_in_grace => Step::Stay,
        (Deletion::Now, ResourceState::Missing) => Step::RemoveFinalizer,
        (Deletion::Now, ResourceState::Deleting) => Step::Stay,
        (
            Deletion::Now,
            ResourceState::Ready
            | ResourceState::UpdateRequired
            | ResourceState::RecreateRequired
            | ResourceState::InProgress
            | ResourceState::Unreachable
            | ResourceState::Refused,
        ) => Step::Delete,
    }
}

fn create(it: &Situation) -> Step {
    if it.permissions.create { Step::Create } else { forbidden() }
}

fn forbidden() -> Step {
    Step::Enter(State::Failed, Reason::PermissionMissing)
}

#[cfg(test)]
mod tests;
