//! The only place that asks for the time.

use k8s_openapi::jiff::Timestamp;

/// Now, in whole microseconds, which is what Kubernetes and the market both can say.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}
