//! Labels, annotations, taints and finalizers that the operator uses.

/// The group of everything here.
pub const GROUP: &str = "kubebid.io";

/// On bids: the UID of the cluster's `kube-system` namespace.
pub const LABEL_CLUSTER: &str = "kubebid.io/cluster";
/// On bids: the namespace of the BidNode.
pub const LABEL_NAMESPACE: &str = "kubebid.io/namespace";
/// On bids, slots and nodes: the name of the BidNode.
pub const LABEL_BIDNODE: &str = "kubebid.io/bidnode";
/// On bids and slots: the UID of the BidNode.
pub const LABEL_UID: &str = "kubebid.io/uid";
/// On bids and nodes: the name of the slot.
pub const LABEL_SLOT: &str = "kubebid.io/slot";
/// On bids and nodes: the UID of the slot.
pub const LABEL_SLOT_UID: &str = "kubebid.io/slot-uid";

/// On a BidNode and its slots: there is something at the engine to be ended first.
pub const FINALIZER: &str = "kubebid.io/bids";

/// A node that the operator has not labelled yet; its kubelet registers with it.
pub const TAINT_UNREGISTERED: &str = "kubebid.io/unregistered";
/// A node that is going to be given up.
pub const TAINT_LEAVING: &str = "kubebid.io/leaving";

/// On a BidNode: for how long a node beyond `minNodes` may stay empty, as in `10m`.
pub const ANNOTATION_EMPTY_AFTER: &str = "kubebid.io/release-empty-after";
/// On a BidNode: for how long a node may be not ready before it is replaced, as in `5m`.
pub const ANNOTATION_UNHEALTHY_AFTER: &str = "kubebid.io/replace-not-ready-after";
/// On a BidNode that is being deleted: `"true"` lets it go although the engine cannot say that its bids are gone.
pub const ANNOTATION_ABANDON: &str = "kubebid.io/abandon";
/// On a node: which BidNode of which namespace it belongs to.
pub const ANNOTATION_NAMESPACE: &str = "kubebid.io/namespace";

/// On nodes, of Kubernetes: where they are.
pub const LABEL_REGION: &str = "topology.kubernetes.io/region";
