//! The part of an object's status that remembers its external resource.

use crate::external::contention::Repairs;
use crate::external::transition::State;
use crate::object::Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An object that stands for an external resource. Its spec is compared whole; an [`ExternalStatus`] is part of its status.
pub trait Managed: Object {
    /// Returns the state of the resource, if it was ever reconciled.
    fn external(&self) -> Option<&ExternalStatus>;

    /// Returns the state of the resource to be changed.
    fn external_mut(&mut self) -> &mut ExternalStatus;

    /// Returns the spec in JSON.
    fn spec_json(&self) -> Value {
        let mut object = serde_json::to_value(self).unwrap_or_default();
        object.get_mut("spec").map(Value::take).unwrap_or_default()
    }
}

/// The state of an external resource. Flatten it into the status of the object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalStatus {
    /// The state.
    pub state: State,
    /// Why it is in this state, in one word.
    pub reason: String,
    /// The same as a sentence.
    pub message: String,
    /// The time from which it is in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The generation of the object that the state is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The number of calls that were begun to change the resource, repetitions not counted.
    pub attempt: u32,
    /// The time when the last of them was begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub called_at: Option<MicroTime>,
    /// The state of the last of them, if its answer did not come: it may have had an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<State>,
    /// The hash of the spec of the last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,
    /// The hash of the spec for which the completion hook was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_spec: Option<String>,
    /// The way in which the resource came to be ours; absent if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The identity of the resource at its service, from the time when it is ours, or a create call is begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The time from which there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable_since: Option<MicroTime>,
    /// The repairs of what somebody else has changed, each soon after the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repairs: Option<Repairs>,
    /// The note that the last call has left for the next, in JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The conditions Ready and Synced; Paused while it is, and PermissionsValid while they are not.
    pub conditions: Vec<Condition>,
}

/// The way in which a resource came to be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Origin {
    /// A create call was begun: the resource is ours if it exists.
    Created,
    /// It existed, and people asked to adopt it.
    Adopted,
}
