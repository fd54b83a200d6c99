//! Deletion of an object by its UID, so that a later object of the same name stays.

use kube::Resource;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Preconditions};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Deletes an object. An object that is gone is deleted.
pub(crate) async fn delete<K>(api: &Api<K>, object: &K) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let params = only(&object.uid().unwrap_or_default());
    done_or_gone(api.delete(&object.name_any(), &params).await)
}

/// Counts an object as deleted if it is gone, or was replaced by another of its name.
pub(crate) fn done_or_gone<T>(done: kube::Result<T>) -> kube::Result<()> {
    match done {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the parameters that delete only the object with this UID.
pub(crate) fn only(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}
