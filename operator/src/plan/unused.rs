//! Plans whether pods still bring nodes after nodes came that no pod used.
//!
//! A pod that a node does not help brings no other ([`super::packing`]). Pods that are made and deleted again and again would bring one
//! node after the other all the same.

use crate::api::{BidNodeStatus, UnusedNodes};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The number of unused nodes in a row after which pods bring no other.
pub const UNUSED_NODES_MAX: u32 = 3;
/// The time after the last unused node after which pods bring one more, to find out whether it is used.
pub const UNUSED_PAUSE: SignedDuration = SignedDuration::from_hours(1);

/// Returns the unused nodes that a status names, if it is of this generation: another specification begins anew.
pub fn of_status(status: Option<&BidNodeStatus>, generation: Option<i64>) -> Option<UnusedNodes> {
    status.filter(|status| status.observed_generation == generation)?.unused_nodes.clone()
}

/// Returns the unused nodes after so many more were given up.
pub fn after(before: Option<UnusedNodes>, more: usize, now: Timestamp) -> Option<UnusedNodes> {
    if more == 0 {
        return before;
    }
    let count = before.map_or(0, |before| before.count);
    let more = u32::try_from(more).unwrap_or(u32::MAX);
    Some(UnusedNodes { count: count.saturating_add(more), last_time: Time(now) })
}

/// Returns true if pods bring no node because too many came that no pod used.
pub fn is_stopped(unused: Option<&UnusedNodes>) -> bool {
    unused.is_some_and(|unused| unused.count >= UNUSED_NODES_MAX)
}

/// Returns why pods bring no node, as a clause.
pub fn clause(unused: Option<&UnusedNodes>) -> String {
    let count = unused.map_or(0, |unused| unused.count);
    format!(
        "{count} nodes came for pods in a row and no pod used them: pods bring no other for an hour, and then one at a time, until a pod \
         uses one or the specification changes"
    )
}

/// Returns the number of further nodes that pods may bring. `unproven` is the number of bids and nodes for pods that no pod has used
/// yet.
pub fn most(unused: Option<&UnusedNodes>, unproven: usize, now: Timestamp) -> usize {
    match unused {
        Some(unused) if unused.count >= UNUSED_NODES_MAX => {
            usize::from(now.duration_since(unused.last_time.0) >= UNUSED_PAUSE && unproven == 0)
        }
        Some(_) | None => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn three_unused_nodes_in_a_row_stop_further_ones_but_one_an_hour() {
        let two = after(after(None, 1, at(0)), 1, at(10));
        assert_eq!(most(two.as_ref(), 5, at(10)), usize::MAX);
        let three = after(two, 1, at(20));
        assert!(is_stopped(three.as_ref()));
        assert_eq!(most(three.as_ref(), 0, at(3619)), 0);
        assert_eq!(most(three.as_ref(), 0, at(3620)), 1);
        assert_eq!(most(three.as_ref(), 1, at(3620)), 0, "one is on its way");
        let four = after(three.clone(), 1, at(4000));
        assert_eq!(most(four.as_ref(), 0, at(4001)), 0);
        assert_eq!(after(three.clone(), 0, at(9999)), three);
    }

    #[test]
    fn another_specification_begins_anew() {
        let unused_nodes = after(None, 3, at(0));
        let status = BidNodeStatus { observed_generation: Some(1), unused_nodes, ..BidNodeStatus::default() };
        assert!(is_stopped(of_status(Some(&status), Some(1)).as_ref()));
        assert_eq!(of_status(Some(&status), Some(2)), None);
    }
}
