//! Names of the labels, annotations, taints and finalizers that the operator uses.

/// The API group of the custom resources.
pub const GROUP: &str = "kubebid.io";

/// The label of bids with the UID of the cluster's `kube-system` namespace.
pub const LABEL_CLUSTER: &str = "kubebid.io/cluster";
/// The label of bids with the namespace of the BidNode.
pub const LABEL_NAMESPACE: &str = "kubebid.io/namespace";
/// The label of bids, slots and nodes with the name of the BidNode.
pub const LABEL_BIDNODE: &str = "kubebid.io/bidnode";
/// The label of bids, slots and nodes with the UID of the BidNode.
pub const LABEL_UID: &str = "kubebid.io/uid";
/// The label of bids and nodes with the name of the slot.
pub const LABEL_SLOT: &str = "kubebid.io/slot";
/// The label of bids and nodes with the UID of the slot.
pub const LABEL_SLOT_UID: &str = "kubebid.io/slot-uid";

/// The finalizer of BidNodes and slots: they may have bids at the engine that must be ended first.
pub const FINALIZER: &str = "kubebid.io/bids";

/// The taint of a node that the operator has not labelled yet. Its kubelet registers it with this taint.
pub const TAINT_UNREGISTERED: &str = "kubebid.io/unregistered";
/// The taint of a node that is given up.
pub const TAINT_LEAVING: &str = "kubebid.io/leaving";

/// The annotation of a BidNode with the time for which a node beyond `minNodes` may stay empty, as in `10m`.
pub const ANNOTATION_EMPTY_AFTER: &str = "kubebid.io/release-empty-after";
/// The annotation of a BidNode with the time for which a node may be not ready before it is replaced, as in `5m`.
pub const ANNOTATION_UNHEALTHY_AFTER: &str = "kubebid.io/replace-not-ready-after";
/// The annotation of a BidNode with the longest time for the pods of a node that is given up without a notice to leave, as in
/// `15m`.
pub const ANNOTATION_DRAIN_WITHIN: &str = "kubebid.io/drain-within";
/// The annotation of a BidNode that lets it be deleted, if it is `"true"`, although the engine does not say that its bids
/// are gone.
pub const ANNOTATION_ABANDON: &str = "kubebid.io/abandon";
/// The annotations of nodes and pods that keep a node from being given up by the operator's own decision, if they are `"true"`.
pub const ANNOTATIONS_DO_NOT_DISRUPT: [&str; 2] =
    ["kubebid.io/do-not-disrupt", "karpenter.sh/do-not-disrupt"];
/// The annotation of a node with the namespace of its BidNode.
pub const ANNOTATION_NAMESPACE: &str = "kubebid.io/namespace";

/// The label of Kubernetes with the region of a node.
pub const LABEL_REGION: &str = "topology.kubernetes.io/region";

/// The labels with the name of a node's pool: the first that a node has a value of counts.
pub const POOL_LABELS: [&str; 6] = [
    "nodepool.banzaicloud.io/name",
    "node.banzaicloud.io/nodepool",
    LABEL_BIDNODE,
    "cloud.google.com/gke-nodepool",
    "agentpool",
    "agent",
];
/// The annotation of a node with the keys of the labels that came from a NodePoolLabelSet, as a sorted JSON list.
pub const ANNOTATION_MANAGED_LABELS: &str = "nodepool.banzaicloud.io/managed-labels";
/// The end of the name of the annotation beside it, with the values that were there before, as a JSON object.
pub const PREVIOUS_SUFFIX: &str = "-previous";
