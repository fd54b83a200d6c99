//! Repairs of a resource that another client keeps changing: they become slower.

use crate::clock;
use crate::external::Timing;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The repairs that are made without a wait.
const FREE: u32 = 3;
/// The most doublings of the wait.
const DOUBLINGS: u32 = 3;
/// The time after which a repair is forgotten, in units of the patience. It is longer than the longest wait.
const MEMORY: u32 = 10;

/// The repairs of a resource that somebody else has changed, each soon after the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Repairs {
    /// The number of repairs.
    pub count: u32,
    /// The time of the last one.
    pub last: MicroTime,
}

impl Repairs {
    /// Returns the repairs after one more.
    pub(super) fn one_more(previous: Option<&Repairs>, timing: &Timing) -> Repairs {
        let recent = previous.filter(|it| clock::since(it.last.0) < timing.patience * MEMORY);
        Repairs { count: recent.map_or(0, |it| it.count) + 1, last: MicroTime(clock::now()) }
    }

    /// Returns the time between the last repair and the next: none at first, then the patience, doubled each time.
    pub(super) fn wait(&self, timing: &Timing) -> Duration {
        match self.count.checked_sub(FREE) {
            None => Duration::ZERO,
            Some(more) => timing.patience * 2_u32.pow(more.min(DOUBLINGS)),
        }
    }

    /// Returns true if the next repair has to wait.
    pub(super) fn is_waiting(&self, timing: &Timing) -> bool {
        clock::since(self.last.0) < self.wait(timing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::SignedDuration;

    #[test]
    fn repairs_become_slower_and_are_forgotten() {
        let timing = Timing { patience: Duration::from_secs(10), ..Timing::default() };
        let waits: Vec<_> = (1..=8)
            .map(|count| Repairs { count, last: MicroTime(clock::now()) }.wait(&timing).as_secs())
            .collect();
        assert_eq!(waits, [0, 0, 10, 20, 40, 80, 80, 80]);

        let ago = |seconds| MicroTime(clock::now() - SignedDuration::from_secs(seconds));
        let contested = Repairs { count: 4, last: ago(15) };
        assert!(contested.is_waiting(&timing));
        assert!(!Repairs { last: ago(21), ..contested.clone() }.is_waiting(&timing));
        assert_eq!(Repairs::one_more(Some(&contested), &timing).count, 5);
        assert_eq!(Repairs::one_more(Some(&Repairs { last: ago(101), ..contested }), &timing).count, 1);
        assert_eq!(Repairs::one_more(None, &timing).count, 1);
    }
}
