//! The kubelet's Node and its lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use super::{Context, NODE_IP};

/// A node keeps its lease with several times the frequency that any plane asks for.
const LEASE_RENEWED: Duration = Duration::from_secs(2);

/// Writes the Node with its status and its first lease.
pub(super) async fn register(context: &Context) -> kube::Result<()> {
    let (name, params) = (&context.node, PatchParams::apply("kubelet").force());
    let labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "testplane.kubebid.io/kubelet": "true",
    });
    let metadata = json!({"name": name, "labels": labels});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
    let nodes = Api::<Node>::all(context.client.clone());
    nodes.patch(name, &params, &Patch::Apply(&node)).await?;

    let now = Timestamp::now();
    let condition = |name: &str, status: &str, reason: &str| json!({"type": name, "status": status, "reason": reason, "lastHeartbeatTime": now, "lastTransitionTime": now});
    let resources = json!({"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110"});
    let status = json!({
        "capacity": resources, "allocatable": resources,
        "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": NODE_IP}],
        "conditions": [
            condition("Ready", "True", "KubeletReady"), condition("MemoryPressure", "False", "Fine"),
            condition("DiskPressure", "False", "Fine"), condition("PIDPressure", "False", "Fine"),
        ],
    });
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status});
    nodes.patch_status(name, &params, &Patch::Apply(&node)).await?;
    renew(context).await
}

async fn renew(context: &Context) -> kube::Result<()> {
    let leases = Api::<Lease>::namespaced(context.client.clone(), "kube-node-lease");
    let now = format!("{:.6}", Timestamp::now());
    let spec = json!({"holderIdentity": context.node, "leaseDurationSeconds": 40, "renewTime": now});
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": context.node}, "spec": spec,
    });
    leases.patch(&context.node, &PatchParams::apply("kubelet").force(), &Patch::Apply(&lease)).await.map(drop)
}

/// Keeps the lease of the node.
pub(super) async fn keep_lease(context: &Context) {
    loop {
        sleep(LEASE_RENEWED).await;
        // While the API server is away the next one counts.
        let _ = renew(context).await;
    }
}
