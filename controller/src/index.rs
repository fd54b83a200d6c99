//! Indexes of watched objects by what they belong to.

use crate::object::{Object, ObjectName};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Objects of a kind by a key, as in pods by the node that they run on. It is as new as the last event of the watch.
pub struct Index<K> {
    key: Box<Key<K>>,
    links: Mutex<Links>,
}

type Key<K> = dyn Fn(&K) -> Option<String> + Send + Sync;

#[derive(Debug, Default)]
struct Links {
    members: BTreeMap<String, BTreeSet<ObjectName>>,
    keys: BTreeMap<ObjectName, String>,
    /// The keys that a list in progress has brought so far.
    listing: Option<BTreeMap<ObjectName, String>>,
}

impl<K> fmt::Debug for Index<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("links", &self.links).finish_non_exhaustive()
    }
}

impl<K: Object> Index<K> {
    /// Returns an empty index. An object without a key is in no index.
    pub fn new(key: impl Fn(&K) -> Option<String> + Send + Sync + 'static) -> Index<K> {
        Index { key: Box::new(key), links: Mutex::default() }
    }

    /// Takes in an event of the watch.
    pub fn fold(&self, event: &Event<K>) {
        let mut links = self.links();
        match event {
            Event::Apply(object) => links.put(ObjectName::of(object), (self.key)(object)),
            Event::Delete(object) => links.put(ObjectName::of(object), None),
            Event::Init => links.listing = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                let key = (self.key)(object);
                if let (Some(listing), Some(key)) = (&mut links.listing, key) {
                    listing.insert(ObjectName::of(object), key);
                }
            }
            Event::InitDone => links.listed(),
        }
    }

    /// Returns the objects with this key.
    pub fn of(&self, key: &str) -> Vec<ObjectRef<K>> {
        self.links().members.get(key).into_iter().flatten().map(ObjectName::to_ref).collect()
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Links {
    fn put(&mut self, name: ObjectName, key: Option<String>) {
        if self.keys.get(&name) == key.as_ref() {
            return;
        }
        if let Some(old) = self.keys.remove(&name)
            && let Some(members) = self.members.get_mut(&old)
        {
            members.remove(&name);
            if members.is_empty() {
                self.members.remove(&old);
            }
        }
        if let Some(key) = key {
            self.members.entry(key.clone()).or_default().insert(name.clone());
            self.keys.insert(name, key);
        }
    }

    fn listed(&mut self) {
        self.keys = self.listing.take().unwrap_or_default();
        self.members.clear();
        for (name, key) in &self.keys {
            self.members.entry(key.clone()).or_default().insert(name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn pod(name: &str, node: Option<&str>) -> Pod {
        let pod = json!({"metadata": {"namespace": "a", "name": name}, "spec": {"containers": [], "nodeName": node}});
        serde_json::from_value(pod).unwrap()
    }

    fn by_node() -> Index<Pod> {
        Index::new(|pod: &Pod| pod.spec.as_ref()?.node_name.clone())
    }

    fn on(index: &Index<Pod>, node: &str) -> String {
        index.of(node).iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_index_follows_objects_that_come_move_and_go() {
        let index = by_node();
        index.fold(&Event::Apply(pod("p", None)));
        assert_eq!(on(&index, "n"), "");
        index.fold(&Event::Apply(pod("p", Some("n"))));
        index.fold(&Event::Apply(pod("q", Some("n"))));
        assert_eq!(on(&index, "n"), "p q");
        index.fold(&Event::Apply(pod("p", Some("m"))));
        index.fold(&Event::Delete(pod("q", Some("n"))));
        assert_eq!((on(&index, "n").as_str(), on(&index, "m").as_str()), ("", "p"));
    }

    #[test]
    fn an_object_that_a_list_does_not_have_is_gone_when_the_list_is_done() {
        let index = by_node();
        index.fold(&Event::Apply(pod("p", Some("n"))));
        index.fold(&Event::Init);
        index.fold(&Event::InitApply(pod("q", Some("n"))));
        assert_eq!(on(&index, "n"), "p");
        index.fold(&Event::InitDone);
        assert_eq!(on(&index, "n"), "q");
    }
}
