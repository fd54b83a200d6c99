//! Names, references and owners of objects of any kind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::Api;
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::fmt::Debug;

/// A kind of object that the library can watch and write.
pub trait Object:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}

/// Returns the objects of a kind in a namespace, or in all.
pub fn objects<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// The namespace and name of an object; the namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectName {
    /// Returns the name of an object.
    pub fn of<K: Resource>(object: &K) -> ObjectName {
        ObjectName { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }

    /// Returns a reference to an object of this name.
    pub fn to_ref<K: Resource<DynamicType = ()>>(&self) -> ObjectRef<K> {
        let name = ObjectRef::new(&self.name);
        if self.namespace.is_empty() { name } else { name.within(&self.namespace) }
    }
}

impl<K: Resource<DynamicType = ()>> From<&ObjectRef<K>> for ObjectName {
    fn from(reference: &ObjectRef<K>) -> ObjectName {
        ObjectName {
            namespace: reference.namespace.clone().unwrap_or_default(),
            name: reference.name.clone(),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// Returns the reference by which an object is controlled by an object of kind `K`, in whatever version the reference
/// names the kind. An object has one controller at most.
pub fn controller_of<K: Resource<DynamicType = ()>, C: Resource>(child: &C) -> Option<&OwnerReference> {
    let owners = child.meta().owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.find(|owner| owner.kind == K::kind(&()) && group_of(&owner.api_version) == K::group(&()))
}

/// Returns a kind with its group, as in `StatefulSet.apps`: two groups may have a kind of one name.
pub(crate) fn group_kind<K: Resource<DynamicType = ()>>() -> String {
    let (kind, group) = (K::kind(&()), K::group(&()));
    if group.is_empty() { kind.into_owned() } else { format!("{kind}.{group}") }
}

/// Returns the group of an `apiVersion`; empty for the core group.
fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn pod(api_version: &str, kind: &str, controller: bool) -> Pod {
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": "a", "uid": "u", "controller": controller});
        serde_json::from_value(json!({"metadata": {"name": "p", "ownerReferences": [owner]}})).unwrap()
    }

    #[test]
    fn the_controller_of_an_object_is_found_whatever_version_it_names() {
        let uid = |pod: &Pod| controller_of::<StatefulSet, _>(pod).map(|owner| owner.uid.clone());
        assert_eq!(uid(&pod("apps/v1", "StatefulSet", true)).as_deref(), Some("u"));
        assert_eq!(uid(&pod("apps/v1beta1", "StatefulSet", true)).as_deref(), Some("u"));
        assert_eq!(uid(&pod("other.io/v1", "StatefulSet", true)), None, "another group");
        assert_eq!(uid(&pod("apps/v1", "StatefulSet", false)), None, "an owner that is no controller");
        assert!(controller_of::<ReplicaSet, _>(&pod("apps/v1", "StatefulSet", true)).is_none());
    }
}
