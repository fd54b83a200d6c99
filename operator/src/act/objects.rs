//! Writes to objects of the cluster: status, release, node patches, finalizers, deletion.

use crate::api::{BidNode, BidNodeStatus, BidSlot, FINALIZER, ReleaseReason};
use crate::context::Context;
use crate::deletion;
use crate::error::Error;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

/// The field manager of all writes but those of status.
const FIELD_MANAGER: &str = "kubebid-operator";

/// Returns the parameters of a create.
pub(super) fn create_params() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// Returns the API of the BidNodes of a BidNode's namespace.
pub(super) fn bidnodes(bidnode: &BidNode, context: &Context) -> Api<BidNode> {
    Api::namespaced(context.client.clone(), &bidnode.namespace().unwrap_or_default())
}

/// Returns the API of the slots of a namespace.
pub(super) fn slots(namespace: Option<String>, context: &Context) -> Api<BidSlot> {
    Api::namespaced(context.client.clone(), &namespace.unwrap_or_default())
}

/// Writes the status of a BidNode, unless it was changed meanwhile.
pub(super) async fn write_bidnode_status(
    bidnode: &BidNode,
    status: &BidNodeStatus,
    context: &Context,
) -> Result<(), Error> {
    context.check_leadership()?;
    let patch = json!({
        "apiVersion": "kubebid.io/v1",
        "kind": "BidNode",
        "metadata": {"name": bidnode.name_any(), "resourceVersion": bidnode.resource_version()},
        "status": status,
    });
    let params = PatchParams::apply("kubebid-bidnodes").force();
    let api = bidnodes(bidnode, context);
    context.bidnodes.put(api.patch_status(&bidnode.name_any(), &params, &Patch::Apply(patch)).await?);
    Ok(())
}

/// Writes the status of a slot, unless it was changed meanwhile. Returns the slot as it was written.
pub(crate) async fn write_slot_status(slot: &BidSlot, context: &Context) -> Result<BidSlot, Error> {
    context.check_leadership()?;
    let api = slots(slot.namespace(), context);
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

/// Records that a slot is to be given up.
pub(super) async fn release(slot: &BidSlot, reason: ReleaseReason, context: &Context) -> Result<(), Error> {
    context.check_leadership()?;
    let api = slots(slot.namespace(), context);
    let patch = json!({"metadata": {"uid": slot.uid()}, "spec": {"release": reason}});
    unless_gone(api.patch(&slot.name_any(), &patch_params(), &Patch::Merge(patch)).await)
}

/// Patches a node. One that is gone is patched.
pub(super) async fn patch_node(
    node: &Node,
    patch: &serde_json::Value,
    context: &Context,
) -> Result<(), Error> {
    context.check_leadership()?;
    let api: Api<Node> = Api::all(context.client.clone());
    let written = api.patch(&node.name_any(), &patch_params(), &Patch::Merge(patch)).await;
    unless_gone(written.map(|node| context.nodes.put(node)))
}

/// Deletes an object. One that is gone, or was replaced by another of its name, is deleted.
pub(super) async fn remove<K>(api: &Api<K>, object: &K, context: &Context) -> Result<(), Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    context.check_leadership()?;
    Ok(deletion::delete(api, object).await?)
}

/// Counts the write of an object that is gone as done.
fn unless_gone<T>(done: kube::Result<T>) -> Result<(), Error> {
    match done {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Adds the operator's finalizer to a BidNode.
pub(crate) async fn add_finalizer(bidnode: &BidNode, context: &Context) -> Result<(), Error> {
    let mut finalizers = bidnode.finalizers().to_vec();
    finalizers.push(FINALIZER.to_owned());
    let patch =
        json!({"metadata": {"resourceVersion": bidnode.resource_version(), "finalizers": finalizers}});
    bidnodes(bidnode, context).patch(&bidnode.name_any(), &patch_params(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Removes the operator's finalizer, and no other.
pub(super) async fn remove_finalizer<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let left: Vec<_> = object.finalizers().iter().filter(|name| *name != FINALIZER).collect();
    if left.len() == object.finalizers().len() {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": object.uid(), "finalizers": left}});
    unless_gone(api.patch(&object.name_any(), &patch_params(), &Patch::Merge(patch)).await)
}
