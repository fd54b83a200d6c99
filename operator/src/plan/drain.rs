//! Plans the drain of a node: the order of its pods, and how each leaves.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A pod on a node that is drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its place in the order of the drain.
    pub tier: Tier,
    /// Its termination grace period.
    pub grace: SignedDuration,
    /// True if it is terminating.
    pub ending: bool,
}

/// The place of a pod in the order of a drain. Pods of a tier are evicted when all pods of the tiers before it are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Every other pod.
    Ordinary,
    /// A pod of a critical priority class, which other pods may need.
    Critical,
    /// A pod of a daemon set.
    Daemon,
}

/// A way to remove a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Evicts the pod through the Eviction API, which respects disruption budgets.
    Evict(PodView),
    /// Deletes the pod with this grace period: too little time is left for an eviction.
    Delete(PodView, SignedDuration),
}

/// The time before the end of the drain at which all pods are to be gone. A pod is deleted at the end − this − its grace period. A pod
/// that ends late has this time before the node is given back.
const PODS_GONE_BEFORE: SignedDuration = SignedDuration::from_secs(3);

/// Returns the pods to remove at this moment. If the drain has an end, a pod whose grace period would end too late is deleted,
/// whatever its tier.
pub fn plan(pods: &[PodView], end: Option<Timestamp>, now: Timestamp) -> Vec<Removal> {
    let first = pods.iter().map(|pod| pod.tier).min();
    let left = end.map(|end| end.duration_since(now) - PODS_GONE_BEFORE);
    let mut removals = Vec::new();
    for pod in pods.iter().filter(|pod| !pod.ending) {
        match left {
            Some(left) if left <= pod.grace => {
                let grace =
                    left.clamp(SignedDuration::from_secs(1), pod.grace.max(SignedDuration::from_secs(1)));
                removals.push(Removal::Delete(pod.clone(), grace));
            }
            Some(_) | None if Some(pod.tier) == first => removals.push(Removal::Evict(pod.clone())),
            Some(_) | None => {}
        }
    }
    removals
}

/// Returns the time after which the drain is planned again, at the latest: when the next pod runs out of time, or the drain ends.
pub fn requeue_after(pods: &[PodView], end: Option<Timestamp>, now: Timestamp) -> SignedDuration {
    let longest = SignedDuration::from_secs(2);
    let Some(end) = end else { return longest };
    let left = end.duration_since(now);
    let pods = pods.iter().filter(|pod| !pod.ending).map(|pod| left - PODS_GONE_BEFORE - pod.grace);
    let next = pods.filter(|left| left.is_positive()).min().unwrap_or(longest).min(longest);
    next.min(left).max(SignedDuration::from_millis(50))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, tier: Tier, grace: i64) -> PodView {
        PodView {
            namespace: "default".into(),
            name: name.into(),
            uid: name.into(),
            tier,
            grace: SignedDuration::from_secs(grace),
            ending: false,
        }
    }

    #[track_caller]
    fn check(pods: &[PodView], left: Option<i64>, expect: &str) {
        let now = Timestamp::UNIX_EPOCH;
        // The node is given back two seconds before the deadline.
        let end = left.map(|left| now + SignedDuration::from_secs(left - 2));
        let said: Vec<_> = plan(pods, end, now)
            .iter()
            .map(|removal| match removal {
                Removal::Evict(pod) => format!("evict {}", pod.name),
                Removal::Delete(pod, grace) => format!("delete {} in {}s", pod.name, grace.as_secs()),
            })
            .collect();
        assert_eq!(said.join(", "), expect);
    }

    #[test]
    fn tiers_go_one_after_the_other() {
        let mut pods = vec![
            pod("dns", Tier::Critical, 30),
            pod("work", Tier::Ordinary, 30),
            pod("agent", Tier::Daemon, 30),
        ];
        check(&pods, Some(300), "evict work");
        check(&pods, None, "evict work");
        pods[1].ending = true;
        check(&pods, Some(300), "");
        pods.remove(1);
        check(&pods, Some(300), "evict dns");
        pods.remove(0);
        check(&pods, Some(300), "evict agent");
    }

    #[test]
    fn a_pod_that_would_not_end_in_time_is_deleted() {
        let pods = [pod("slow", Tier::Critical, 100), pod("quick", Tier::Ordinary, 5)];
        check(&pods, Some(106), "evict quick");
        check(&pods, Some(105), "delete slow in 100s, evict quick");
        check(&pods, Some(53), "delete slow in 48s, evict quick");
        check(&pods, Some(1), "delete slow in 1s, delete quick in 1s");
    }

    #[test]
    fn it_is_planned_again_when_a_pod_runs_out_of_time_or_the_drain_ends() {
        let now = Timestamp::UNIX_EPOCH;
        let again = |pods: &[PodView], left_ms| {
            let end = now + SignedDuration::from_millis(left_ms);
            requeue_after(pods, Some(end), now).as_millis()
        };
        let mut pods = [pod("work", Tier::Ordinary, 10)];
        assert_eq!((again(&pods, 60_000), again(&pods, 14_000)), (2_000, 1_000));
        assert_eq!(again(&pods, 12_000), 2_000, "it is deleted at this moment");
        pods[0].ending = true;
        assert_eq!((again(&pods, 5_000), again(&pods, 700), again(&pods, -10)), (2_000, 700, 50));
    }
}
