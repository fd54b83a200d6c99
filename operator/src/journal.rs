//! The journal of the engine, which the operator remembers in a ConfigMap.
//!
//! An engine that knows no bid is more likely a wrong address or an empty store than a loss. While the identity of its journal is another
//! one than the remembered one, no node is given up because the engine does not know its bid.

use std::sync::{Arc, PoisonError, RwLock};

/// The place where the operator remembers the journal, and the other one that an administrator accepts.
#[derive(Clone, Debug, Default)]
pub struct JournalOptions {
    /// The namespace of the ConfigMap.
    pub namespace: String,
    /// The name of the ConfigMap.
    pub name: String,
    /// The identity that is accepted in the place of the remembered one.
    pub accepted: Option<String>,
}

/// The comparison of the engine's journal with the remembered one. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(Arc<RwLock<Comparison>>);

/// The result of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// The engine, or the ConfigMap, was not asked yet.
    #[default]
    NotCompared,
    /// The journal is the remembered one.
    Same,
    /// The journal is another one, or the remembered one cannot be read; with a sentence that says so.
    Different(String),
}

impl Journal {
    fn get(&self) -> Comparison {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if the journal is the remembered one.
    pub(crate) fn is_same(&self) -> bool {
        self.get() == Comparison::Same
    }

    /// Returns why the journal is not known to be the remembered one, as a sentence.
    pub(crate) fn difference(&self) -> Option<String> {
        match self.get() {
            Comparison::Different(why) => Some(why),
            Comparison::NotCompared | Comparison::Same => None,
        }
    }

    /// Sets the result. Returns true if it is another one than before.
    pub(crate) fn set(&self, comparison: Comparison) -> bool {
        let mut there = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = *there != comparison;
        *there = comparison;
        is_new
    }
}
