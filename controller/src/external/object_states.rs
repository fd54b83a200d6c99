//! The number of objects in each state, as a metric.

use crate::external::transition::State;
use crate::metrics;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The states of the objects of a controller, by UID.
#[derive(Debug, Default)]
pub(super) struct ObjectStates(Mutex<HashMap<String, State>>);

impl ObjectStates {
    pub(super) fn set(&self, controller: &'static str, uid: &str, state: State) {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned(), state);
        if before != Some(state) {
            metrics::external_objects(controller, state.word(), 1.0);
            self.left(controller, before);
        }
    }

    pub(super) fn remove(&self, controller: &'static str, uid: &str) {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        self.left(controller, before);
    }

    fn left(&self, controller: &'static str, state: Option<State>) {
        if let Some(state) = state {
            metrics::external_objects(controller, state.word(), -1.0);
        }
    }
}
