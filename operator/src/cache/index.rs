//! Index of a store: objects by a key that is computed from them.

use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The objects of a kind by a key, for example the pods by their node, as of the last event of their watch.
#[derive(Debug)]
pub(crate) struct Index<K> {
    key: fn(&K) -> Option<String>,
    links: Mutex<Links>,
}

/// The namespace and the name of an object.
type Name = (String, String);

#[derive(Debug, Default)]
struct Links {
    members: BTreeMap<String, BTreeSet<Name>>,
    keys: BTreeMap<Name, String>,
    /// The objects of the list that is in progress.
    listing: Option<BTreeMap<Name, String>>,
}

impl<K: Resource<DynamicType = ()>> Index<K> {
    /// Creates an index of objects by this key. An object without a key is not in it.
    pub(crate) fn new(key: fn(&K) -> Option<String>) -> Self {
        Index { key, links: Mutex::default() }
    }

    /// Applies an event of the watch.
    pub(crate) fn apply(&self, event: &Event<K>) {
        let mut links = self.links();
        match event {
            Event::Apply(object) => links.put(name(object), (self.key)(object)),
            Event::Delete(object) => links.put(name(object), None),
            Event::Init => links.listing = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                let key = (self.key)(object);
                if let (Some(listing), Some(key)) = (&mut links.listing, key) {
                    listing.insert(name(object), key);
                }
            }
            Event::InitDone => links.listed(),
        }
    }

    /// Returns the objects with this key.
    pub(crate) fn get(&self, key: &str) -> Vec<ObjectRef<K>> {
        let links = self.links();
        let refer = |(namespace, name): &Name| ObjectRef::new(name).within(namespace);
        links.members.get(key).into_iter().flatten().map(refer).collect()
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name<K: Resource>(object: &K) -> Name {
    (object.namespace().unwrap_or_default(), object.name_any())
}

impl Links {
    fn put(&mut self, name: Name, key: Option<String>) {
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

    fn on(index: &Index<Pod>, node: &str) -> String {
        index.get(node).iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn it_follows_objects_that_are_created_changed_and_deleted() {
        let index = Index::<Pod>::new(|pod| pod.spec.as_ref()?.node_name.clone());
        index.apply(&Event::Apply(pod("p", None)));
        assert_eq!(on(&index, "n"), "");
        index.apply(&Event::Apply(pod("p", Some("n"))));
        index.apply(&Event::Apply(pod("q", Some("n"))));
        assert_eq!(on(&index, "n"), "p q");
        index.apply(&Event::Apply(pod("p", Some("m"))));
        index.apply(&Event::Delete(pod("q", Some("n"))));
        assert_eq!((on(&index, "n").as_str(), on(&index, "m").as_str()), ("", "p"));
    }

    #[test]
    fn an_object_that_a_list_does_not_have_is_gone_when_the_list_is_done() {
        let index = Index::<Pod>::new(|pod| pod.spec.as_ref()?.node_name.clone());
        index.apply(&Event::Apply(pod("p", Some("n"))));
        index.apply(&Event::Init);
        index.apply(&Event::InitApply(pod("q", Some("n"))));
        assert_eq!(on(&index, "n"), "p");
        index.apply(&Event::InitDone);
        assert_eq!(on(&index, "n"), "q");
    }
}
