//! The one place that asks what time it is.

use k8s_openapi::jiff::Timestamp;

/// Now, in whole microseconds, which is what Kubernetes and the market both can say.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}
