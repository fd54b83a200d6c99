//! Finds the pods that need room: those that the scheduler finds no node for, and those whose node goes.

use super::resources::{Resources, requests};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The time in which the scheduler looks at every node again. If it has not bound a pod by then, it does not bind it to any node
/// as the nodes are. After a change it looks again at once, or within ten seconds if it has failed before.
pub const SETTLED_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// The pods that may need nodes.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    /// The pods that the scheduler finds no node for.
    pub unschedulable: Vec<Arc<Pod>>,
    /// The pods on nodes that the market takes.
    pub displaced: Vec<Arc<Pod>>,
    /// All pods of the controllers of displaced pods that are terminating.
    pub siblings: Vec<Arc<Pod>>,
}

/// A pod that needs room.
#[derive(Clone, Debug)]
pub struct PendingPod<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The resources that it requests.
    pub wanted: Resources,
    /// The scheduler's message, if it has found no node for the pod for [`SETTLED_AFTER`].
    pub refused: Option<&'a str>,
    /// The scheduler's message, if the pod waits for a volume and not for a node.
    pub missing_volume: Option<&'a str>,
}

impl Demand {
    /// Returns the pods that need room.
    pub fn pods(&self, now: Timestamp) -> Vec<PendingPod<'_>> {
        let unschedulable: Vec<_> =
            self.unschedulable.iter().map(AsRef::as_ref).filter(|pod| !is_nominated(pod)).collect();
        let displaced: Vec<_> = self.displaced.iter().map(AsRef::as_ref).collect();
        let pods = pods_to_place(&unschedulable, &displaced, &self.siblings);
        pods.into_iter().map(|pod| pending(pod, now)).collect()
    }
}

fn pending(pod: &Pod, now: Timestamp) -> PendingPod<'_> {
    let wanted = requests(pod);
    let Some(refusal) = refusal(pod).filter(|_| is_unschedulable(pod)) else {
        return PendingPod { pod, wanted, refused: None, missing_volume: None };
    };
    let message = refusal.message.as_deref().unwrap_or("it gives no reason");
    let since = refusal.last_transition_time.as_ref().map(|time| now.duration_since(time.0));
    PendingPod {
        pod,
        wanted,
        refused: since.is_some_and(|since| since >= SETTLED_AFTER).then_some(message),
        missing_volume: names_volume(message).then_some(message),
    }
}

/// Returns whether the scheduler's message says that a pod waits for a volume whatever nodes there are. These are messages of
/// its plug-in `VolumeBinding`.
fn names_volume(message: &str) -> bool {
    message.contains("unbound immediate PersistentVolumeClaims")
        || message.contains("persistentvolumeclaim \"") && message.contains("not found")
}

/// Returns whether the scheduler makes room for a pod on a node, by preemption.
fn is_nominated(pod: &Pod) -> bool {
    let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
    nominated.is_some_and(|node| !node.is_empty())
}

/// Returns the pods that need room: unschedulable pods, and pods whose node goes. A pod that is terminating counts until its
/// successor is unschedulable or has a node. A pod without a controller has no successor. `siblings` are all pods of
/// the controllers of the terminating pods.
fn pods_to_place<'a>(
    unschedulable: &[&'a Pod],
    displaced: &[&'a Pod],
    siblings: &[impl AsRef<Pod>],
) -> Vec<&'a Pod> {
    let mut ending: BTreeMap<&str, Vec<&'a Pod>> = BTreeMap::new();
    let mut moves = Vec::new();
    for pod in displaced {
        match controller(pod) {
            // Without any grace left the pod is as good as gone, and its times do not say when it was evicted.
            Some(_) if is_ending(pod) && pod.metadata.deletion_grace_period_seconds == Some(0) => {}
            Some(controller) if is_ending(pod) => ending.entry(controller).or_default().push(pod),
            Some(_) => moves.push(*pod),
            None => {}
        }
    }
    for (controller, mut pods) in ending {
        let mut successors: Vec<_> = siblings
            .iter()
            .map(AsRef::as_ref)
            .filter(|pod| self::controller(pod) == Some(controller) && is_provided_for(pod))
            .map(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
            .collect();
        pods.sort_by_key(|pod| evicted_at(pod));
        successors.sort_unstable();
        for created in successors {
            // A pod that is older than the first eviction is no successor.
            if pods.first().is_some_and(|pod| created.is_none_or(|created| Some(created) >= evicted_at(pod)))
            {
                pods.remove(0);
            }
        }
        moves.extend(pods);
    }
    unschedulable.iter().copied().chain(moves).collect()
}

fn is_ending(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Returns whether a pod has a node, or is counted because it is unschedulable.
fn is_provided_for(pod: &Pod) -> bool {
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    !is_ending(pod) && (bound || is_unschedulable(pod))
}

/// Returns the latest time at which the pod can have been evicted: its grace may have been cut since. The API server's
/// times are in whole seconds.
fn evicted_at(pod: &Pod) -> Option<Timestamp> {
    let ends = pod.metadata.deletion_timestamp.as_ref()?.0;
    let whole = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let grace = pod.metadata.deletion_grace_period_seconds.max(whole).unwrap_or_default();
    Some(ends - SignedDuration::from_secs(grace.saturating_add(1)))
}

/// Returns the UID of the controller of a pod.
pub fn controller(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// Returns whether the scheduler finds no node for a pod.
pub fn is_unschedulable(pod: &Pod) -> bool {
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    !bound && !is_ending(pod) && refusal(pod).is_some()
}

/// Returns the condition with which the scheduler says that it finds no node for a pod.
fn refusal(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn asks(gpus: u32) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": gpus.to_string()}}}],
               "tolerations": [{"key": "gpu", "operator": "Exists"}]})
    }

    fn with(mut spec: Value, key: &str, value: Value) -> Value {
        spec[key] = value;
        spec
    }

    #[test]
    fn a_pod_whose_node_goes_counts_once_with_its_successor() {
        let of = |controller: &str, ending: bool| {
            let mut pod = pod(asks(8));
            let owner =
                json!({"apiVersion": "v1", "kind": "C", "name": "c", "uid": controller, "controller": true});
            pod.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
            pod.metadata.deletion_timestamp =
                ending.then(|| serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
            pod
        };
        let unschedulable = |mut pod: Pod| {
            let condition = json!({"conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
            pod.status = Some(serde_json::from_value(condition).unwrap());
            pod
        };
        let count = |asking: &[Pod], going: &[Pod]| {
            let siblings: Vec<_> = asking.iter().cloned().map(unschedulable).map(Arc::new).collect();
            pods_to_place(&asking.iter().collect::<Vec<_>>(), &going.iter().collect::<Vec<_>>(), &siblings)
                .len()
        };
        assert_eq!(count(&[], &[of("a", false)]), 1);
        assert_eq!(count(&[], &[of("a", true)]), 1);
        assert_eq!(count(&[of("a", false)], &[of("a", true)]), 1);
        assert_eq!(count(&[of("a", false)], &[of("a", true), of("a", true)]), 2);
        assert_eq!(count(&[of("b", false)], &[of("a", true)]), 2);
        assert_eq!(count(&[], &[pod(asks(8))]), 0, "no controller replaces it");
    }

    #[test]
    fn a_pod_that_is_ending_does_not_count_once_its_successor_has_a_node() {
        let of = |created: i64, evicted: Option<i64>, node: Option<&str>| {
            let time = |second: i64| Time(Timestamp::from_second(second).unwrap());
            let mut pod = pod(with(asks(8), "nodeName", json!(node)));
            let owner = json!({"apiVersion": "v1", "kind": "C", "name": "c", "uid": "a", "controller": true});
            pod.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
            pod.metadata.creation_timestamp = Some(time(created));
            pod.metadata.deletion_timestamp = evicted.map(|second| time(second + 30));
            pod.metadata.deletion_grace_period_seconds = evicted.map(|_| 30);
            Arc::new(pod)
        };
        let count = |going: &[Arc<Pod>], siblings: &[Arc<Pod>]| {
            pods_to_place(&[], &going.iter().map(AsRef::as_ref).collect::<Vec<_>>(), siblings).len()
        };
        let ending = of(0, Some(100), Some("old"));
        assert_eq!(count(std::slice::from_ref(&ending), &[]), 1, "its successor is not there yet");
        assert_eq!(
            count(std::slice::from_ref(&ending), &[of(100, None, None)]),
            1,
            "not seen by the scheduler"
        );
        assert_eq!(count(std::slice::from_ref(&ending), &[of(100, None, Some("new"))]), 0);
        assert_eq!(
            count(std::slice::from_ref(&ending), &[of(50, None, Some("new"))]),
            1,
            "a sibling, no more"
        );
        let mut cut = Pod::clone(&ending);
        cut.metadata.deletion_grace_period_seconds = Some(0);
        assert_eq!(count(&[Arc::new(cut)], &[]), 0, "as good as gone");
        let two = [ending, of(0, Some(200), Some("old"))];
        assert_eq!(count(&two, &[of(101, None, Some("new"))]), 1);
        assert_eq!(count(&two, &[of(101, None, Some("new")), of(201, None, Some("new"))]), 0);
        assert_eq!(count(&two, &[of(201, None, Some("new")), of(202, None, Some("new"))]), 0);
    }

    #[test]
    fn the_scheduler_says_what_a_pod_waits_for() {
        let refused = |message: &str, nominated: Option<&str>| {
            let mut pod = pod(asks(1));
            let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": message, "lastTransitionTime": "1970-01-01T00:00:00Z"});
            pod.status =
                serde_json::from_value(json!({"conditions": [condition], "nominatedNodeName": nominated}))
                    .unwrap();
            Demand { unschedulable: vec![Arc::new(pod)], ..Demand::default() }
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        let full = refused("0/1 nodes are available: 1 Insufficient cpu.", None);
        assert_eq!(full.pods(at(29))[0].refused, None);
        assert!(full.pods(at(30))[0].refused.is_some() && full.pods(at(30))[0].missing_volume.is_none());
        for message in [
            "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            "0/1 nodes are available: persistentvolumeclaim \"data\" not found.",
        ] {
            assert!(refused(message, None).pods(at(0))[0].missing_volume.is_some(), "{message}");
        }
        assert!(
            refused("0/1 nodes are available", Some("gpu-0")).pods(at(99)).is_empty(),
            "it has room by preemption"
        );
    }
}
