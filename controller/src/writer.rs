//! The only way to write to the cluster: `clippy.toml` forbids kube's own calls.
//!
//! Before each write the [`Writer`] checks that this replica leads. It sends the field manager of its controller and the
//! UID or version that it means, honours `--dry-run`, sends nothing if nothing would change, and remembers what it wrote
//! until the watch delivers it.

use crate::api_error;
use crate::clock;
use crate::conditions::{self, NewCondition};
use crate::leader_election::Leadership;
use crate::metrics;
use crate::object::{Object, ObjectName};
use crate::watch::UNREADABLE;
use crate::write_cache::WriteCache;
use kube::api::{
    DeleteParams, EvictParams, ListParams, ObjectList, PartialObjectMeta, Patch, PatchParams, PostParams,
    Preconditions, PropagationPolicy, Request,
};
use kube::core::PartialObjectMetaExt as _;
use kube::core::error_boundary::InvalidObject;
use kube::{Client, ResourceExt as _};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt;
use std::sync::Arc;
use tracing::{info, warn};

/// The condition of an object that the program cannot read, which is false then and absent otherwise.
const READABLE: &str = "Readable";
/// The field manager of this condition: no status of a controller has it.
const READABLE_MANAGER: &str = "kubebid-readable";

/// Writes objects on behalf of one controller. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    /// The name of the program, as in `kubebid-operator`.
    program: Arc<str>,
    controller: &'static str,
    leadership: Leadership,
    dry_run: bool,
    cache: Arc<WriteCache>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("controller", &self.controller).finish_non_exhaustive()
    }
}

/// Why a write failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// This replica does not lead, or cannot be sure of it. Nothing was sent.
    #[error("this replica does not lead")]
    NotLeader,
    /// The object was written by somebody else meanwhile, or our copy of it is old.
    #[error("the object has changed meanwhile")]
    Conflict,
    /// The API server refused the write, or did not answer: it may have been made.
    #[error("the cluster: {}", api_error::message(.0))]
    Cluster(Box<kube::Error>),
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> WriteError {
        let conflicts = matches!(&error, kube::Error::Api(status) if status.is_conflict());
        if conflicts { WriteError::Conflict } else { WriteError::Cluster(Box::new(error)) }
    }
}

/// The answer to an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The pod will end.
    Accepted,
    /// A disruption budget forbids it at present.
    Refused,
    /// The pod is gone.
    Gone,
}

impl Writer {
    /// Returns a writer for a controller of a program. The program is the field manager of creates and patches; the field
    /// manager of what is applied whole, such as a status, is `kubebid-CONTROLLER`.
    pub fn new(
        client: Client,
        program: &str,
        controller: &'static str,
        leadership: Leadership,
        dry_run: bool,
    ) -> Writer {
        Writer { client, program: program.into(), controller, leadership, dry_run, cache: Arc::default() }
    }

    /// Returns the same writer for another controller of the process, with the same cache.
    pub fn for_controller(&self, controller: &'static str) -> Writer {
        Writer { controller, ..self.clone() }
    }

    /// Returns the client, for reads and for requests to other services through the API server.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns true if `--dry-run` was given: nothing outside the cluster may be changed.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Returns an object as it was last written, if the watch has not delivered that write yet.
    pub fn newest<K: Object>(&self, seen: Arc<K>) -> Arc<K> {
        self.cache.newest(seen)
    }

    /// Forgets what was written to an object that is gone.
    pub fn forget(&self, uid: &str) {
        self.cache.forget(uid);
    }

    /// Creates an object. Returns None if there is one of its name, whoever made it.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn create<K: Object>(&self, object: &K) -> Result<Option<K>, WriteError> {
        self.check("create", object)?;
        let params = PostParams { field_manager: Some(self.program.to_string()), dry_run: self.dry_run };
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = request_for(object).create(&params, body).map_err(kube::Error::BuildRequest)?;
        match self.client.request::<K>(request).await {
            Ok(created) => Ok(Some(self.written(created))),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes some fields of an object by a merge patch. Returns None if the object is gone; another object of its name
    /// is not changed. A patch that would change nothing is not sent. The patch fails with [`WriteError::Conflict`] on
    /// an object that has changed meanwhile if it names a `resourceVersion`.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn patch<K: Object>(&self, object: &K, patch: Value) -> Result<Option<K>, WriteError> {
        if changes_nothing(object, &patch)? {
            return Ok(Some(object.clone()));
        }
        self.check("patch", object)?;
        let mut patch = patch;
        metadata_of(&mut patch).insert("uid".to_owned(), json!(object.uid()));
        let patch = Patch::Merge(patch);
        let request = request_for(object).patch(&object.name_any(), &self.patch_params(), &patch);
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self.client.request::<K>(request).await {
            Ok(patched) => Ok(Some(self.written(patched))),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Applies a whole object on the server (server-side apply). Fields that this controller applied before and that are
    /// absent now are removed; those of others stay.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn apply<K: Object>(&self, object: &K) -> Result<K, WriteError> {
        self.check("apply", object)?;
        let params = self.apply_params();
        let request = request_for(object).patch(&object.name_any(), &params, &Patch::Apply(object));
        let request = request.map_err(kube::Error::BuildRequest)?;
        Ok(self.written(self.client.request::<K>(request).await?))
    }

    /// Writes the whole status of an object. Returns the object with it. Nothing is sent if the status is as it was.
    ///
    /// The status is applied on the server, which needs the conversion webhook of the kind if a client has written the object
    /// in another version. While that does not answer, the status is replaced as a whole: conditions of others are lost.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] if the object has changed meanwhile, and the others of [`WriteError`].
    pub async fn status<K: Object>(&self, object: &K, status: &impl Serialize) -> Result<K, WriteError> {
        let mut status = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
        let mut there = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
        // The program reads the object, so the condition that it cannot goes.
        take_readable(&mut status);
        let was_unreadable = there.get_mut("status").is_some_and(take_readable);
        if there.get("status") == Some(&status) && !was_unreadable {
            return Ok(object.clone());
        }
        self.check("status", object)?;
        let version = if was_unreadable {
            self.apply_readable(object, json!({})).await?.resource_version()
        } else {
            object.resource_version()
        };
        let applied = Patch::Apply(json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": {"name": object.name_any(), "resourceVersion": version},
            "status": status,
        }));
        match self.patch_status(object, &self.apply_params(), &applied).await {
            Err(error) if needs_conversion(&error) => {
                let steps = json!([
                    {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
                    {"op": "add", "path": "/status", "value": status},
                ]);
                let replaced =
                    Patch::Json::<()>(serde_json::from_value(steps).map_err(kube::Error::SerdeError)?);
                Ok(self.patch_status(object, &self.patch_params(), &replaced).await?)
            }
            answer => Ok(answer?),
        }
    }

    /// Sets the condition `Readable` of an object that the program cannot read to false, if the object is of a kind with
    /// conditions. An object that does not take it has the event only.
    pub(crate) async fn mark_unreadable<K: Object>(&self, object: &InvalidObject) {
        // The conditions of Kubernetes' own kinds are not ours to write.
        if !K::group(&()).contains('.') || K::group(&()).ends_with(".k8s.io") {
            return;
        }
        let mut list = Vec::new();
        let message = format!("this version of the program cannot read the object: {}", object.error);
        let condition = NewCondition::new(READABLE, false, UNREADABLE, message);
        conditions::set(&mut list, condition, object.metadata.generation, clock::now());
        let mut metadata = object.metadata.clone().into_request_partial::<K>();
        // Whoever has changed the object in the meantime has not changed that.
        metadata.metadata.resource_version = None;
        if self.check("status", &metadata).is_ok()
            && let Err(error) = self.apply_readable(&metadata, json!({"conditions": list})).await
        {
            let name = ObjectName::of(&metadata);
            warn!(kind = %K::kind(&()), object = %name, error = api_error::message(&error), "no condition Readable");
        }
    }

    /// Applies a status that has the condition `Readable`, or does not have it. Returns the metadata of the object.
    async fn apply_readable<K: Object>(
        &self,
        object: &K,
        status: Value,
    ) -> Result<PartialObjectMeta<K>, kube::Error> {
        let mut metadata = json!({"name": object.name_any(), "uid": object.uid()});
        if let Some(version) = object.resource_version() {
            metadata["resourceVersion"] = json!(version);
        }
        let applied = Patch::Apply(json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": metadata, "status": status,
        }));
        let params = PatchParams::apply(READABLE_MANAGER).force();
        let params = if self.dry_run { params.dry_run() } else { params };
        let request = request_for(object).patch_subresource("status", &object.name_any(), &params, &applied);
        self.client.request(request.map_err(kube::Error::BuildRequest)?).await
    }

    async fn patch_status<K: Object, P: Serialize + fmt::Debug>(
        &self,
        object: &K,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        let request = request_for(object).patch_subresource("status", &object.name_any(), params, patch);
        let written = self.client.request::<K>(request.map_err(kube::Error::BuildRequest)?).await?;
        Ok(self.written(written))
    }

    /// Deletes this object. An object that is gone, or was replaced by another of its name, counts as deleted.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn delete<K: Object>(&self, object: &K) -> Result<(), WriteError> {
        let uid = object.uid().unwrap_or_default();
        self.delete_by::<K>(&ObjectName::of(object), &uid, None).await.map(|_| ())
    }

    /// Deletes this object and leaves its dependents, such as the pods of a StatefulSet. An object that is gone, or was
    /// replaced by another of its name, counts as deleted.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn delete_orphaning<K: Object>(&self, object: &K) -> Result<(), WriteError> {
        let policy = Some(PropagationPolicy::Orphan);
        let params = DeleteParams { propagation_policy: policy, ..only(&object.uid().unwrap_or_default()) };
        self.delete_with::<K>(&ObjectName::of(object), params).await.map(|_| ())
    }

    /// Deletes the object with this name and UID, with a grace period of so many seconds. Returns false if it was gone.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn delete_by<K: Object>(
        &self,
        name: &ObjectName,
        uid: &str,
        grace_seconds: Option<u32>,
    ) -> Result<bool, WriteError> {
        let params = DeleteParams { grace_period_seconds: grace_seconds, ..only(uid) };
        self.delete_with::<K>(name, params).await
    }

    /// Deletes an object. Returns false if it was gone, or is not the one that the parameters mean.
    async fn delete_with<K: Object>(
        &self,
        name: &ObjectName,
        params: DeleteParams,
    ) -> Result<bool, WriteError> {
        self.check_name("delete", &K::kind(&()), name)?;
        let params = DeleteParams { dry_run: self.dry_run, ..params };
        let request = Request::new(path::<K>(&name.namespace)).delete(&name.name, &params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self.client.request_text(request).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks a pod to leave its node, if its disruption budgets allow it.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn evict(&self, pod: &ObjectName, uid: &str) -> Result<Eviction, WriteError> {
        use k8s_openapi::api::core::v1::Pod;
        self.check_name("evict", "Pod", pod)?;
        let options = DeleteParams { dry_run: self.dry_run, ..only(uid) };
        let params = EvictParams { delete_options: Some(options), ..EvictParams::default() };
        let request = Request::new(path::<Pod>(&pod.namespace)).evict(&pod.name, &params);
        match self.client.request_text(request.map_err(kube::Error::BuildRequest)?).await {
            Ok(_) => Ok(Eviction::Accepted),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                Ok(Eviction::Gone)
            }
            // A disruption budget says not yet, or several of them cannot agree.
            Err(kube::Error::Api(status)) if status.code == 429 || status.code >= 500 => {
                Ok(Eviction::Refused)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Adds a finalizer, unless the object has it. Returns the object with it; None if the object is gone.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] if the object has changed meanwhile, and the others of [`WriteError`].
    pub async fn add_finalizer<K: Object>(
        &self,
        object: &K,
        finalizer: &str,
    ) -> Result<Option<K>, WriteError> {
        let mut finalizers = object.finalizers().to_vec();
        if finalizers.iter().any(|name| name == finalizer) {
            return Ok(Some(object.clone()));
        }
        finalizers.push(finalizer.to_owned());
        let metadata = json!({"resourceVersion": object.resource_version(), "finalizers": finalizers});
        self.patch(object, json!({"metadata": metadata})).await
    }

    /// Removes a finalizer and no other, also if others were added meanwhile. The object may be gone after that.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] if finalizers before this one were removed meanwhile, and the others of [`WriteError`].
    pub async fn remove_finalizer<K: Object>(&self, object: &K, finalizer: &str) -> Result<(), WriteError> {
        let Some(place) = object.finalizers().iter().position(|name| name == finalizer) else {
            return Ok(());
        };
        self.check("patch", object)?;
        let path = format!("/metadata/finalizers/{place}");
        let steps = json!([
            {"op": "test", "path": "/metadata/uid", "value": object.uid()},
            {"op": "test", "path": path, "value": finalizer},
            {"op": "remove", "path": path},
        ]);
        let patch = Patch::Json::<()>(serde_json::from_value(steps).map_err(kube::Error::SerdeError)?);
        let request = request_for(object).patch(&object.name_any(), &self.patch_params(), &patch);
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self.client.request::<K>(request).await {
            Ok(patched) => {
                self.written(patched);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            // The answer to a test of the patch that failed. An admission policy denies a patch with the same code.
            Err(kube::Error::Api(status)) if status.is_invalid() => {
                let there = self.metadata::<K>(&ObjectName::of(object)).await?;
                let is_as_meant = there.is_some_and(|there| {
                    there.uid() == object.uid()
                        && there.finalizers().get(place).is_some_and(|it| it == finalizer)
                });
                let error = kube::Error::Api(status);
                Err(if is_as_meant { WriteError::Cluster(Box::new(error)) } else { WriteError::Conflict })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the metadata of an object, as the API server has it; None if it is gone. A controller may list its objects, and
    /// need not be permitted to get one.
    async fn metadata<K: Object>(
        &self,
        name: &ObjectName,
    ) -> Result<Option<PartialObjectMeta<K>>, kube::Error> {
        let params = ListParams::default().fields(&format!("metadata.name={}", name.name));
        let request = Request::new(path::<K>(&name.namespace)).list_metadata(&params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let listed: ObjectList<PartialObjectMeta<K>> = self.client.request(request).await?;
        Ok(listed.items.into_iter().next())
    }

    fn written<K: Object>(&self, object: K) -> K {
        if !self.dry_run {
            self.cache.put(object.clone());
        }
        object
    }

    /// Returns the field managers of what is applied, and of creates and patches.
    pub(crate) fn field_managers(&self) -> (String, &str) {
        (format!("kubebid-{}", self.controller), &self.program)
    }

    fn patch_params(&self) -> PatchParams {
        let field_manager = Some(self.program.to_string());
        PatchParams { field_manager, dry_run: self.dry_run, ..PatchParams::default() }
    }

    fn apply_params(&self) -> PatchParams {
        let params = PatchParams::apply(&self.field_managers().0).force();
        if self.dry_run { params.dry_run() } else { params }
    }

    fn check<K: Object>(&self, verb: &str, object: &K) -> Result<(), WriteError> {
        self.check_name(verb, &K::kind(&()), &ObjectName::of(object))
    }

    fn check_name(&self, verb: &str, kind: &str, name: &ObjectName) -> Result<(), WriteError> {
        if !self.leadership.is_valid() {
            return Err(WriteError::NotLeader);
        }
        if self.dry_run {
            info!(verb, kind, %name, "withheld by --dry-run");
            metrics::withheld(self.controller);
        }
        Ok(())
    }
}

/// Takes the condition `Readable` out of a status. Returns true if the status had it.
fn take_readable(status: &mut Value) -> bool {
    let Some(list) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return false };
    let before = list.len();
    list.retain(|condition| condition["type"] != READABLE);
    let had = list.len() < before;
    let is_empty = list.is_empty();
    // A status without conditions does not have the list.
    if had
        && is_empty
        && let Some(status) = status.as_object_mut()
    {
        status.remove("conditions");
    }
    had
}

/// Returns whether a write failed because a conversion webhook did not answer.
fn needs_conversion(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 500 && status.message.contains("conversion webhook"))
}

fn path<K: Object>(namespace: &str) -> String {
    K::url_path(&(), Some(namespace).filter(|namespace| !namespace.is_empty()))
}

fn request_for<K: Object>(object: &K) -> Request {
    Request::new(path::<K>(&object.namespace().unwrap_or_default()))
}

/// Returns parameters that delete the object with this UID alone.
fn only(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

fn metadata_of(patch: &mut Value) -> &mut Map<String, Value> {
    let patch = patch.as_object_mut().expect("a merge patch is an object");
    let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
    metadata.as_object_mut().expect("metadata is an object")
}

/// Returns true if an object is after a merge patch as it is before. A `resourceVersion` in the patch does not count.
fn changes_nothing<K: Object>(object: &K, patch: &Value) -> Result<bool, WriteError> {
    let object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
    let mut patch = patch.clone();
    metadata_of(&mut patch).remove("resourceVersion");
    Ok(is_merged(&object, &patch))
}

/// Returns true if a value is as a merge patch (RFC 7396) would make it.
fn is_merged(value: &Value, patch: &Value) -> bool {
    let Value::Object(fields) = patch else { return value == patch || is_empty_list(value, patch) };
    fields.iter().all(|(key, patch)| match (value.get(key), patch) {
        (None | Some(Value::Null), Value::Null) => true,
        (Some(_), Value::Null) => false,
        // An absent map and an absent list are as good as empty ones: the API server drops both.
        (None | Some(Value::Null), Value::Object(fields)) => fields.values().all(Value::is_null),
        (None | Some(Value::Null), Value::Array(items)) => items.is_empty(),
        (Some(value), patch) => is_merged(value, patch),
        (None, _) => false,
    })
}

fn is_empty_list(value: &Value, patch: &Value) -> bool {
    value.is_null() && patch.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;

    #[test]
    fn a_patch_that_changes_nothing_is_recognized() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "resourceVersion": "7", "labels": {"a": "1"}, "finalizers": ["f"]},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        }))
        .unwrap();
        let nothing = |patch: Value| changes_nothing(&node, &patch).unwrap();
        assert!(nothing(json!({"metadata": {"labels": {"a": "1", "b": null}, "resourceVersion": "6"}})));
        assert!(nothing(json!({"metadata": {"finalizers": ["f"], "annotations": {}}})));
        assert!(nothing(json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})));
        assert!(!nothing(json!({"metadata": {"labels": {"a": "2"}}})));
        assert!(!nothing(json!({"metadata": {"labels": {"a": null}}})));
        assert!(!nothing(json!({"metadata": {"finalizers": []}})));
        assert!(!nothing(json!({"spec": {"taints": []}})));
    }
}
