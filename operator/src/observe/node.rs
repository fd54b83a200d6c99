//! Observes Node objects: readiness, taints, and whose machine a node is.

use crate::api::{LABEL_SLOT_UID, TAINT_LEAVING, TAINT_UNREGISTERED};
use crate::plan::slot::NodeView;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

/// Returns a node as the plan needs it. `registered` says whether it has the labels and taints of its BidNode.
pub(crate) fn node_view(node: &Node, registered: bool) -> NodeView {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let has = |key: &str| taints.clone().any(|taint| taint.key == key);
    NodeView {
        ready: is_ready(node),
        registered: registered && !has(TAINT_UNREGISTERED),
        leaving: has(TAINT_LEAVING),
        ending_since: node.metadata.deletion_timestamp.as_ref().map(|time| time.0),
    }
}

fn ready_condition(node: &Node) -> Option<(bool, Option<Timestamp>)> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let condition = conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
    Some((condition.status == "True", condition.last_transition_time.as_ref().map(|time| time.0)))
}

/// Returns the time since which a node is not ready.
pub(crate) fn not_ready_since(node: &Node) -> Option<Timestamp> {
    ready_condition(node).filter(|(ready, _)| !ready).and_then(|(_, since)| since)
}

/// Returns whether a node is ready.
pub(crate) fn is_ready(node: &Node) -> bool {
    ready_condition(node).is_some_and(|(ready, _)| ready)
}

/// Returns whether pods can be bound to a node: it is ready, and it is not cordoned, tainted or deleted.
pub(crate) fn takes_pods(node: &Node) -> bool {
    let view = node_view(node, true);
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
    view.ready && view.registered && !view.leaving && view.ending_since.is_none() && !cordoned
}

/// Returns the key of a taint that keeps pods away and is not of the BidNode: a node has it until a program on it has started.
pub(crate) fn startup_taint(node: &Node, of_bidnode: &[Taint]) -> Option<String> {
    let is_of_bidnode =
        |taint: &Taint| of_bidnode.iter().any(|ours| ours.key == taint.key && ours.effect == taint.effect);
    // The taints of Kubernetes stand for conditions of a node, such as a full disk.
    let is_startup = |taint: &&Taint| {
        taint.effect != "PreferNoSchedule"
            && !taint.key.starts_with("node.kubernetes.io/")
            && !is_of_bidnode(taint)
    };
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().find(is_startup).map(|taint| taint.key.clone())
}

/// Returns whether a node proves that it is the machine of this slot: the operator has labelled it as such, its
/// provider ID ends with the slot's UID or its unit, or it registered with the slot's UID as the value of its
/// taint. That the provisioner reports its name proves nothing.
pub(crate) fn is_machine_of(node: &Node, slot_uid: &str, unit: Option<&str>) -> bool {
    let ends_with = |id: &str, last: &str| id.strip_suffix(last).is_some_and(|scheme| scheme.ends_with('/'));
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    let by_id =
        provider_id.is_some_and(|id| ends_with(id, slot_uid) || unit.is_some_and(|unit| ends_with(id, unit)));
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let by_taint = || {
        taints
            .into_iter()
            .any(|taint| taint.key == TAINT_UNREGISTERED && taint.value.as_deref() == Some(slot_uid))
    };
    let by_label = || node.labels().get(LABEL_SLOT_UID).is_some_and(|uid| uid == slot_uid);
    !slot_uid.is_empty() && (by_id || by_label() || by_taint())
}
