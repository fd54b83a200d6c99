//! Keeps how long this engine's lease is valid, as far as it can know.

use crate::runtime::clock::since_boot;
use kubebid_core::units::Micros;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The validity of this engine's lease, as far as it can know. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LeaseState(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The end of the lease, on the clock that does not stop while the process or the machine is suspended.
    until_us: AtomicU64,
}

impl LeaseState {
    /// Returns a state that is valid as long as the process lives, for a store without leases.
    pub(crate) fn for_life() -> LeaseState {
        LeaseState(Arc::new(Inner { until_us: AtomicU64::new(u64::MAX) }))
    }

    /// Makes the lease valid as long as the process lives.
    pub(crate) fn renew_for_life(&self) {
        self.0.until_us.store(u64::MAX, Ordering::Release);
    }

    /// Returns true if no other engine leads. If it returns false, another engine may lead.
    pub(crate) fn is_valid(&self) -> bool {
        let until_us = self.0.until_us.load(Ordering::Acquire);
        until_us == u64::MAX || since_boot().0 < until_us
    }

    /// Makes the lease valid for `length` from an instant of [`since_boot`] on.
    pub(crate) fn set(&self, from: Micros, length: Duration) {
        let length_us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let until_us = from.0.saturating_add(length_us).min(u64::MAX - 1);
        self.0.until_us.store(until_us, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_not_valid_after_its_end() {
        let lease_state = LeaseState::for_life();
        assert!(lease_state.is_valid());
        lease_state.set(since_boot(), Duration::from_secs(3600));
        assert!(lease_state.is_valid());
        lease_state.set(since_boot(), Duration::ZERO);
        assert!(!lease_state.is_valid());
    }
}
