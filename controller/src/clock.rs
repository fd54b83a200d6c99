//! The only place that asks for the time.

use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// Returns the present time in whole microseconds, the precision of Kubernetes' `MicroTime`.
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

/// Returns the time since an instant; zero if that is still to come.
pub fn since(instant: Timestamp) -> Duration {
    Duration::try_from(now().duration_since(instant)).unwrap_or_default()
}
