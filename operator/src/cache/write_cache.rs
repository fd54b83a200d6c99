//! Read-your-writes cache: our last write to each object, until the watch delivers it.

use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The objects of a kind as they were last written, by UID.
#[derive(Debug)]
pub(crate) struct WriteCache<K>(Mutex<BTreeMap<String, Arc<K>>>);

impl<K> Default for WriteCache<K> {
    fn default() -> Self {
        WriteCache(Mutex::default())
    }
}

impl<K: ResourceExt> WriteCache<K> {
    /// Adds an object as it was written.
    pub(crate) fn put(&self, object: K) {
        if let Some(uid) = object.uid() {
            self.map().insert(uid, Arc::new(object));
        }
    }

    /// Returns the object as it was observed, or as it was written since.
    pub(crate) fn newest(&self, observed: Arc<K>) -> Arc<K> {
        let uid = observed.uid().unwrap_or_default();
        let mut written = self.map();
        match written.get(&uid) {
            Some(ours) if version(ours.as_ref()) > version(observed.as_ref()) => Arc::clone(ours),
            Some(_) => {
                written.remove(&uid);
                observed
            }
            None => observed,
        }
    }

    /// Removes an object that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.map().remove(uid);
    }

    fn map(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<K>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the resource version as a number: versions of one object are ordered.
fn version<K: ResourceExt>(object: &K) -> Option<u64> {
    object.resource_version()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    fn node(version: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": version}}))
            .unwrap()
    }

    #[test]
    fn a_write_counts_until_a_later_version_is_observed() {
        let written = WriteCache::default();
        let newest = |seen: &str| written.newest(Arc::new(node(seen))).resource_version().unwrap();
        assert_eq!(newest("9"), "9");
        written.put(node("10"));
        assert_eq!((newest("9"), newest("9")), ("10".into(), "10".into()));
        assert_eq!((newest("11"), newest("9")), ("11".into(), "9".into()));
    }
}
