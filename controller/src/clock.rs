//! The only place that asks for the time.

use k8s_openapi::jiff::Timestamp;

/// Returns the present time in whole microseconds, the precision of Kubernetes' `MicroTime`.
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}
