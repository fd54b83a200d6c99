//! Clock: the only place that asks for the time.

use k8s_openapi::jiff::Timestamp;

/// Returns the current time in whole microseconds, which both Kubernetes and the market can express.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}
