//! Writes a slot's status, node and end to the cluster.

use super::Error;
use super::context::Context;
use crate::api::{BidSlot, FINALIZER, ReleaseReason};
use crate::deletion;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

/// Whose the fields are that the operator writes to objects of others.
const FIELD_MANAGER: &str = "kubebid-operator";

pub(super) fn posted() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

pub(super) fn patched() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// Writes the status of a slot, unless somebody else has written meanwhile; returns it as it is then.
pub(super) async fn write_status(slot: &BidSlot, context: &Context) -> Result<BidSlot, Error> {
    context.leads()?;
    let api: Api<BidSlot> = Api::namespaced(context.client.clone(), &slot.namespace().unwrap_or_default());
    let patch = json!({
        "apiVersion": "kubebid.io/v1",
        "kind": "BidSlot",
        "metadata": {"name": slot.name_any(), "resourceVersion": slot.resource_version()},
        "status": slot.status,
    });
    let params = PatchParams::apply("kubebid-slots").force();
    let slot = api.patch_status(&slot.name_any(), &params, &Patch::Apply(patch)).await?;
    context.slots.put(slot.clone());
    Ok(slot)
}

/// Writes down that a slot is to be given up.
pub(super) async fn release(slot: &BidSlot, why: ReleaseReason, context: &Context) -> Result<(), Error> {
    context.leads()?;
    let api: Api<BidSlot> = Api::namespaced(context.client.clone(), &slot.namespace().unwrap_or_default());
    let patch = json!({"metadata": {"uid": slot.uid()}, "spec": {"release": why}});
    unless_gone(api.patch(&slot.name_any(), &patched(), &Patch::Merge(patch)).await)
}

pub(super) async fn patch_node(
    node: &Node,
    patch: &serde_json::Value,
    context: &Context,
) -> Result<(), Error> {
    context.leads()?;
    let api: Api<Node> = Api::all(context.client.clone());
    let patched = api.patch(&node.name_any(), &patched(), &Patch::Merge(patch)).await;
    unless_gone(patched.map(|node| context.nodes.put(node)))
}

/// Deletes an object of a namespace or of none. One that is gone, or made place for another of its name, is deleted.
pub(super) async fn remove<K>(api: &Api<K>, object: &K, context: &Context) -> Result<(), Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    context.leads()?;
    Ok(deletion::delete(api, object).await?)
}

/// Counts an object that is gone as done.
fn unless_gone<T>(done: kube::Result<T>) -> Result<(), Error> {
    match done {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Takes our finalizer away, and no other.
pub(super) async fn drop_finalizer<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let left: Vec<_> = object.finalizers().iter().filter(|name| *name != FINALIZER).collect();
    if left.len() == object.finalizers().len() {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": object.uid(), "finalizers": left}});
    unless_gone(api.patch(&object.name_any(), &patched(), &Patch::Merge(patch)).await)
}
