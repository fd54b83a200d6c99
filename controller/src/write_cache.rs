//! Read-your-writes cache: our last write to each object, until the watch delivers it.

use crate::object::Object;
use kube::ResourceExt as _;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Objects of any kind as they were last written, by UID.
#[derive(Debug, Default)]
pub struct WriteCache(Mutex<BTreeMap<String, Arc<dyn Any + Send + Sync>>>);

impl WriteCache {
    /// Remembers an object as the API server answered a write.
    pub fn put<K: Object>(&self, object: K) {
        if let Some(uid) = object.uid() {
            self.objects().insert(uid, Arc::new(object));
        }
    }

    /// Returns the object as it was written, if the watch has not delivered that write yet; as it was seen otherwise.
    pub fn newest<K: Object>(&self, seen: Arc<K>) -> Arc<K> {
        let uid = seen.uid().unwrap_or_default();
        let mut objects = self.objects();
        let Some(written) = objects.get(&uid).and_then(|object| Arc::clone(object).downcast::<K>().ok())
        else {
            return seen;
        };
        if version(written.as_ref()) > version(seen.as_ref()) {
            return written;
        }
        objects.remove(&uid);
        seen
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, uid: &str) {
        self.objects().remove(uid);
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Arc<dyn Any + Send + Sync>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the version of an object. Versions of one object are in the order of their numbers.
fn version<K: Object>(object: &K) -> Option<u64> {
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
    fn a_written_object_counts_until_something_later_is_seen() {
        let cache = WriteCache::default();
        let newest = |seen: &str| cache.newest(Arc::new(node(seen))).resource_version().unwrap();
        assert_eq!(newest("9"), "9");
        cache.put(node("10"));
        assert_eq!((newest("9"), newest("9")), ("10".into(), "10".into()));
        assert_eq!((newest("11"), newest("9")), ("11".into(), "9".into()));
    }
}
