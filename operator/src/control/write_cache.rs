//! Read-your-writes cache: our last write to each object, until the watch delivers it.

use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Objects as they were last written, by UID.
#[derive(Debug)]
pub(super) struct WriteCache<K>(Mutex<BTreeMap<String, Arc<K>>>);

impl<K> Default for WriteCache<K> {
    fn default() -> Self {
        WriteCache(Mutex::default())
    }
}

impl<K: ResourceExt> WriteCache<K> {
    pub(super) fn put(&self, object: K) {
        if let Some(uid) = object.uid() {
            self.map().insert(uid, Arc::new(object));
        }
    }

    /// The object as it was seen, or as it was written since.
    pub(super) fn newest(&self, seen: Arc<K>) -> Arc<K> {
        let uid = seen.uid().unwrap_or_default();
        let mut written = self.map();
        match written.get(&uid) {
            Some(ours) if version(ours.as_ref()) > version(seen.as_ref()) => Arc::clone(ours),
            Some(_) => {
                written.remove(&uid);
                seen
            }
            None => seen,
        }
    }

    /// Lets go of an object that is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.map().remove(uid);
    }

    fn map(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<K>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Versions of one object are in the order of their numbers.
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
    fn what_was_written_counts_until_something_later_is_seen() {
        let written = WriteCache::default();
        let newest = |seen: &str| written.newest(Arc::new(node(seen))).resource_version().unwrap();
        assert_eq!(newest("9"), "9");
        written.put(node("10"));
        assert_eq!((newest("9"), newest("9")), ("10".into(), "10".into()));
        assert_eq!((newest("11"), newest("9")), ("11".into(), "9".into()));
    }
}
