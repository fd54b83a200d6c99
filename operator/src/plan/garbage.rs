//! Plans the garbage collection of bids: a bid whose slot is gone is ended after a grace period.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time for which a bid has no slot before it is ended: the watch of the slots may lag.
const GRACE: Duration = Duration::from_secs(10);

/// The bids without a slot, each with the time at which it was first observed so, or last failed to be ended.
///
/// Times are durations since an arbitrary start.
#[derive(Debug, Default)]
pub struct Garbage {
    since: BTreeMap<u64, Duration>,
}

impl Garbage {
    /// Takes the bids that have no slot at this time, and returns those that are to be ended.
    pub fn plan(&mut self, without_slot: &BTreeSet<u64>, now: Duration) -> Vec<u64> {
        self.since.retain(|bid, _| without_slot.contains(bid));
        for bid in without_slot {
            self.since.entry(*bid).or_insert(now);
        }
        let is_due = |since: &Duration| now.saturating_sub(*since) >= GRACE;
        self.since.iter().filter(|(_, since)| is_due(since)).map(|(bid, _)| *bid).collect()
    }

    /// Lets a bid that could not be ended wait for another grace period.
    pub fn failed(&mut self, bid: u64, now: Duration) {
        self.since.insert(bid, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u64; 0] = [];

    #[test]
    fn a_bid_is_ended_after_it_had_no_slot_for_a_while() {
        let mut garbage = Garbage::default();
        let mut plan =
            |bids: &[u64], second| garbage.plan(&bids.iter().copied().collect(), Duration::from_secs(second));
        assert_eq!(plan(&[7], 0), NONE);
        assert_eq!(plan(&[7, 8], 9), NONE);
        assert_eq!(plan(&[7, 8], 10), [7]);
        // Its slot was seen again.
        assert_eq!(plan(&[8], 11), NONE);
        assert_eq!(plan(&[7, 8], 19), [8]);
        garbage.failed(8, Duration::from_secs(19));
        assert_eq!(garbage.plan(&BTreeSet::from([8]), Duration::from_secs(28)), NONE);
        assert_eq!(garbage.plan(&BTreeSet::from([8]), Duration::from_secs(29)), [8]);
    }
}
