//! Observes pods.

use crate::plan::drain::{PodView, Tier};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt as _;

/// The annotation of Kubernetes that marks a mirror pod.
const ANNOTATION_MIRROR: &str = "kubernetes.io/config.mirror";
/// The priority of the class `system-cluster-critical`.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Returns a pod as the drain needs it. Returns `None` for a mirror pod: the kubelet runs it from a file, and it goes with
/// its node.
pub(crate) fn pod_view(pod: &Pod) -> Option<PodView> {
    if pod.annotations().contains_key(ANNOTATION_MIRROR) {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    let is_daemon_set =
        |owner: &OwnerReference| owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/");
    let tier = if pod.owner_references().iter().any(is_daemon_set) {
        Tier::Daemon
    } else if spec.priority.is_some_and(|priority| priority >= CRITICAL_PRIORITY) {
        Tier::Critical
    } else {
        Tier::Ordinary
    };
    Some(PodView {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        tier,
        grace: SignedDuration::from_secs(spec.termination_grace_period_seconds.unwrap_or(30)),
        ending: pod.metadata.deletion_timestamp.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn tier(metadata: Value, priority: i32) -> Option<Tier> {
        let pod = json!({"metadata": metadata, "spec": {"containers": [], "priority": priority}});
        pod_view(&serde_json::from_value(pod).unwrap()).map(|pod| pod.tier)
    }

    #[test]
    fn a_drain_leaves_mirror_pods_alone_and_takes_daemons_last() {
        assert_eq!(tier(json!({"name": "work"}), 0), Some(Tier::Ordinary));
        assert_eq!(tier(json!({"name": "dns"}), CRITICAL_PRIORITY), Some(Tier::Critical));
        let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]);
        assert_eq!(tier(json!({"name": "agent", "ownerReferences": owner}), 0), Some(Tier::Daemon));
        let theirs = json!([{"apiVersion": "example.com/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]);
        assert_eq!(tier(json!({"name": "w", "ownerReferences": theirs}), 0), Some(Tier::Ordinary));
        let mirror = json!({"kubernetes.io/config.mirror": "hash"});
        assert_eq!(tier(json!({"name": "proxy", "annotations": mirror}), 0), None);
    }
}
