//! Read-your-writes cache: our last write to each object, until the watch delivers it.

use crate::object::Object;
use kube::ResourceExt as _;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The time for which a write is remembered that no watch delivers: the process does not watch the kind.
const MEMORY: Duration = Duration::from_secs(600);

/// Objects of any kind as they were last written, by UID.
#[derive(Debug, Default)]
pub struct WriteCache(Mutex<Writes>);

#[derive(Debug, Default)]
struct Writes {
    objects: BTreeMap<String, (Arc<dyn Any + Send + Sync>, Instant)>,
    /// The time at which writes that are too old were last forgotten.
    swept: Option<Instant>,
}

impl Writes {
    /// Forgets writes that are too old, from time to time.
    fn sweep(&mut self) {
        let now = Instant::now();
        if now.duration_since(*self.swept.get_or_insert(now)) >= MEMORY {
            self.swept = Some(now);
            self.objects.retain(|_, (_, written)| now.duration_since(*written) < MEMORY);
        }
    }
}

impl WriteCache {
    /// Remembers an object as the API server answered a write.
    pub fn put<K: Object>(&self, object: K) {
        let Some(uid) = object.uid() else { return };
        let (mut writes, now) = (self.writes(), Instant::now());
        writes.objects.insert(uid, (Arc::new(object), now));
        writes.sweep();
    }

    /// Returns the object as it was written, if the watch has not delivered that write yet; as it was seen otherwise.
    pub fn newest<K: Object>(&self, seen: Arc<K>) -> Arc<K> {
        let uid = seen.uid().unwrap_or_default();
        let mut writes = self.writes();
        writes.sweep();
        let written =
            writes.objects.get(&uid).and_then(|(object, _)| Arc::clone(object).downcast::<K>().ok());
        let Some(written) = written else { return seen };
        if version(written.as_ref()) > version(seen.as_ref()) {
            return written;
        }
        writes.objects.remove(&uid);
        seen
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, uid: &str) {
        self.writes().objects.remove(uid);
    }

    fn writes(&self) -> MutexGuard<'_, Writes> {
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

    #[tokio::test(start_paused = true)]
    async fn a_write_that_no_watch_delivers_is_forgotten_after_a_while() {
        let cache = WriteCache::default();
        let put = |uid: usize| {
            cache.put::<Node>(serde_json::from_value(json!({"metadata": {"uid": uid.to_string()}})).unwrap());
        };
        (0..3).for_each(put);
        tokio::time::advance(MEMORY / 2).await;
        put(3);
        assert_eq!(cache.writes().objects.len(), 4);
        tokio::time::advance(MEMORY / 2).await;
        // Also by a process that writes nothing more.
        cache.newest(Arc::new(node("1")));
        assert_eq!(cache.writes().objects.keys().collect::<Vec<_>>(), ["3"]);
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
