//! Indexes of the cluster's objects by what they belong to.

use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Objects of a kind by a key, as in pods by the node that they are on; true as of the last event of their watch.
#[derive(Debug)]
pub struct Index<K> {
    key: fn(&K) -> Option<String>,
    links: Mutex<Links>,
}

/// Namespace and name.
type Name = (String, String);

#[derive(Debug, Default)]
struct Links {
    members: BTreeMap<String, BTreeSet<Name>>,
    keys: BTreeMap<Name, String>,
    /// What a list in progress has told so far.
    listing: Option<BTreeMap<Name, String>>,
}

impl<K: Resource<DynamicType = ()>> Index<K> {
    pub fn new(key: fn(&K) -> Option<String>) -> Self {
        Index { key, links: Mutex::default() }
    }

    /// Takes in what the watch tells.
    pub fn fold(&self, event: &Event<K>) {
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

    /// The objects of this key.
    pub fn of(&self, key: &str) -> Vec<ObjectRef<K>> {
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
        index.of(node).iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn it_follows_what_comes_moves_and_goes() {
        let index = Index::<Pod>::new(|pod| pod.spec.as_ref()?.node_name.clone());
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
    fn what_a_list_does_not_have_is_gone_when_the_list_is_done() {
        let index = Index::<Pod>::new(|pod| pod.spec.as_ref()?.node_name.clone());
        index.fold(&Event::Apply(pod("p", Some("n"))));
        index.fold(&Event::Init);
        index.fold(&Event::InitApply(pod("q", Some("n"))));
        assert_eq!(on(&index, "n"), "p");
        index.fold(&Event::InitDone);
        assert_eq!(on(&index, "n"), "q");
    }
}
