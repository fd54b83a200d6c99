//! Objects of which only some fields are read or written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// An object of kind `K`, as far as its fields are known. To apply it says nothing about the others.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "")]
pub(crate) struct Sparse<K> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    /// Every field but the metadata.
    #[serde(flatten)]
    pub(crate) fields: Map<String, Value>,
    #[serde(skip)]
    of: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>> Sparse<K> {
    /// Returns an object without fields, as it was at a version.
    pub(crate) fn named(name: &str, uid: Option<String>, resource_version: Option<String>) -> Sparse<K> {
        let metadata =
            ObjectMeta { name: Some(name.to_owned()), uid, resource_version, ..ObjectMeta::default() };
        let (api_version, kind) = (K::api_version(&()).into_owned(), K::kind(&()).into_owned());
        Sparse { api_version, kind, metadata, fields: Map::new(), of: PhantomData }
    }

    /// Returns the object with these fields alone, as it was at its version.
    pub(crate) fn with(&self, fields: Value) -> Sparse<K> {
        let metadata = ObjectMeta {
            name: self.metadata.name.clone(),
            namespace: self.metadata.namespace.clone(),
            uid: self.metadata.uid.clone(),
            resource_version: self.metadata.resource_version.clone(),
            ..ObjectMeta::default()
        };
        let fields = if let Value::Object(fields) = fields { fields } else { Map::new() };
        let (api_version, kind) = (K::api_version(&()).into_owned(), K::kind(&()).into_owned());
        Sparse { api_version, kind, metadata, fields, of: PhantomData }
    }

    /// Returns a field, by a JSON pointer.
    pub(crate) fn get(&self, pointer: &str) -> Option<&Value> {
        let (first, rest) = pointer.trim_start_matches('/').split_once('/').unwrap_or((&pointer[1..], ""));
        let field = self.fields.get(first)?;
        if rest.is_empty() { Some(field) } else { field.pointer(&format!("/{rest}")) }
    }
}

impl<K> Clone for Sparse<K> {
    fn clone(&self) -> Self {
        Sparse {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            metadata: self.metadata.clone(),
            fields: self.fields.clone(),
            of: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Sparse<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {:?}", self.kind, self.metadata.name, self.fields)
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Sparse<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
