//! Plans the drain of a node: the order of its pods, and how each leaves.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A pod that has to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub tier: Tier,
    /// The time that it may take to end.
    pub grace: SignedDuration,
    /// It is ending.
    pub ending: bool,
}

/// Who goes first: a tier only begins to go when the one before is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    Ordinary,
    /// Of a critical priority class: what others rest on.
    Critical,
    /// Of a daemon set.
    Daemon,
}

/// What to do with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Through the Eviction API, which asks its disruption budgets.
    Evict(PodView),
    /// There is no time left to ask: with this grace.
    Delete(PodView, SignedDuration),
}

/// Kept back of the deadline, so that the node can be given back in time.
const MARGIN: SignedDuration = SignedDuration::from_secs(5);

/// Returns what to do now. With a deadline, who would not end in time any more is deleted, whatever its tier.
pub fn plan(pods: &[PodView], deadline: Option<Timestamp>, now: Timestamp) -> Vec<Act> {
    let first = pods.iter().map(|pod| pod.tier).min();
    let left = deadline.map(|deadline| deadline.duration_since(now) - MARGIN);
    let mut acts = Vec::new();
    for pod in pods.iter().filter(|pod| !pod.ending) {
        match left {
            Some(left) if left <= pod.grace => {
                let grace =
                    left.clamp(SignedDuration::from_secs(1), pod.grace.max(SignedDuration::from_secs(1)));
                acts.push(Act::Delete(pod.clone(), grace));
            }
            Some(_) | None if Some(pod.tier) == first => acts.push(Act::Evict(pod.clone())),
            Some(_) | None => {}
        }
    }
    acts
}

/// Returns when to look again at the latest: when the next pod runs out of time.
pub fn next_look(pods: &[PodView], deadline: Option<Timestamp>, now: Timestamp) -> SignedDuration {
    let soon = SignedDuration::from_secs(2);
    let Some(deadline) = deadline else { return soon };
    pods.iter()
        .filter(|pod| !pod.ending)
        .map(|pod| deadline.duration_since(now) - MARGIN - pod.grace)
        .min()
        .unwrap_or(soon)
        .clamp(SignedDuration::from_millis(200), soon)
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
        let deadline = left.map(|left| now + SignedDuration::from_secs(left));
        let said: Vec<_> = plan(pods, deadline, now)
            .iter()
            .map(|act| match act {
                Act::Evict(pod) => format!("evict {}", pod.name),
                Act::Delete(pod, grace) => format!("delete {} in {}s", pod.name, grace.as_secs()),
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
    fn who_would_not_end_in_time_is_deleted() {
        let pods = [pod("slow", Tier::Critical, 100), pod("quick", Tier::Ordinary, 5)];
        check(&pods, Some(106), "evict quick");
        check(&pods, Some(105), "delete slow in 100s, evict quick");
        check(&pods, Some(53), "delete slow in 48s, evict quick");
        check(&pods, Some(1), "delete slow in 1s, delete quick in 1s");
    }
}
