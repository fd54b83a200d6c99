//! Conditions in the status of an object, as the Kubernetes API conventions describe them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The longest message of a condition that the API server takes, in bytes.
const MESSAGE_MAX: usize = 32_768;

/// A condition without the time of its last transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    /// The type, as in `Ready`.
    pub type_: &'static str,
    /// True, false, or None for `Unknown`.
    pub status: Option<bool>,
    /// The reason in one word, as in `Available`.
    pub reason: String,
    /// The reason as a sentence.
    pub message: String,
}

impl NewCondition {
    /// Returns a condition that is true or false.
    pub fn new(
        type_: &'static str,
        status: bool,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        NewCondition { type_, status: Some(status), reason: reason.into(), message: message.into() }
    }
}

/// Sets a condition in a list and leaves the others alone. The time of the last transition changes with the status only.
pub fn set(list: &mut Vec<Condition>, new: NewCondition, generation: Option<i64>, now: Timestamp) {
    let status = new.status.map_or("Unknown", |is| if is { "True" } else { "False" });
    let mut message = new.message;
    message.truncate(message.floor_char_boundary(MESSAGE_MAX));
    let mut condition = Condition {
        type_: new.type_.to_owned(),
        status: status.to_owned(),
        reason: new.reason,
        message,
        observed_generation: generation,
        last_transition_time: Time(now),
    };
    match list.iter_mut().find(|condition| condition.type_ == new.type_) {
        Some(there) => {
            if there.status == condition.status {
                condition.last_transition_time = there.last_transition_time.clone();
            }
            *there = condition;
        }
        None => list.push(condition),
    }
}

/// Removes a condition from a list.
pub fn remove(list: &mut Vec<Condition>, type_: &str) {
    list.retain(|condition| condition.type_ != type_);
}

/// Returns true if a condition of this type is true.
pub fn is_true(list: &[Condition], type_: &str) -> bool {
    list.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_changes_its_time_with_its_status_only() {
        let mut list = Vec::new();
        let at = |second| Timestamp::from_second(second).unwrap();
        let ready = |is, reason: &str| NewCondition::new("Ready", is, reason, "a sentence");
        set(&mut list, NewCondition::new("Other", true, "Theirs", ""), None, at(1));
        set(&mut list, ready(false, "Creating"), Some(1), at(2));
        set(&mut list, ready(false, "Degraded"), Some(2), at(3));
        assert_eq!((list[1].last_transition_time.0, &list[1].reason[..]), (at(2), "Degraded"));
        assert_eq!(list[1].observed_generation, Some(2));
        set(&mut list, ready(true, "Available"), Some(2), at(4));
        assert_eq!((list[1].last_transition_time.0, list.len()), (at(4), 2));
        assert!(is_true(&list, "Ready") && is_true(&list, "Other") && !is_true(&list, "None"));
    }
}
