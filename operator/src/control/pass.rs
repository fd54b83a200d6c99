//! A pass: one reconcile of one object, with its metrics, its backoff, and the error policy.

use crate::context::Context;
use crate::error::Error;
use crate::metrics;
use futures_util::FutureExt as _;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt as _};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// The backoff after the first failure is up to twice this time. It doubles with each failure in a row.
const BACKOFF: Duration = Duration::from_millis(250);
/// The longest backoff.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// The time after which an object is requeued while the stores have not synced.
const SYNC_POLL: Duration = Duration::from_millis(100);

/// Reconciles an object, unless it is in backoff. A panic counts as an error, so that it harms no other object.
pub(super) async fn reconcile<K, F>(
    object: Arc<K>,
    context: Arc<Context>,
    is_urgent: impl Fn(&K) -> bool,
    reconcile: impl FnOnce(Arc<K>, Arc<Context>) -> F,
) -> Result<Action, Error>
where
    K: Resource<DynamicType = ()>,
    F: Future<Output = Result<Action, Error>>,
{
    let began = Instant::now();
    if !context.has_synced() {
        return Ok(Action::requeue(SYNC_POLL));
    }
    if !is_urgent(&object)
        && let Some(left) = context.backoffs.left(&key(object.as_ref()), desired_hash(object.as_ref()))
    {
        return Ok(Action::requeue(left));
    }
    let _pass = context.pass();
    let pass = AssertUnwindSafe(reconcile(Arc::clone(&object), Arc::clone(&context))).catch_unwind();
    let result = pass.await.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("panicked");
        Err(Error::Panicked(text.to_owned()))
    });
    let label = result.as_ref().map_or_else(Error::label, |_| "ok");
    metrics::reconciled(label, began.elapsed());
    if result.is_ok() {
        context.backoffs.succeeded(&key(object.as_ref()));
    }
    result
}

fn key<K: Resource<DynamicType = ()>>(object: &K) -> String {
    key_of::<K>(object.meta().namespace.as_deref().unwrap_or_default(), &object.name_any())
}

/// Returns the key of an object in the backoffs.
pub(super) fn key_of<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> String {
    format!("{}/{namespace}/{name}", K::kind(&()))
}

/// Returns a hash of what people change about an object. A change of it ends a backoff; a status write does not.
fn desired_hash<K: Resource>(object: &K) -> u64 {
    let meta = object.meta();
    let mut hasher = DefaultHasher::new();
    (meta.generation, meta.deletion_timestamp.is_some(), &meta.annotations).hash(&mut hasher);
    hasher.finish()
}

/// Requeues an object whose reconcile failed: soon after a conflict, and with a growing backoff and jitter after any other
/// error.
pub(super) fn error_policy<K: Resource<DynamicType = ()>>(
    object: Arc<K>,
    error: &Error,
    context: Arc<Context>,
) -> Action {
    if matches!(error, Error::Conflict) {
        return Action::requeue(Duration::from_millis(50 + fastrand::u64(..100)));
    }
    let key = key(object.as_ref());
    let times = context.backoffs.failed(&key);
    warn!(object = key, times, %error, "to be looked at again");
    let most = BACKOFF.saturating_mul(1 << times.min(8)).min(BACKOFF_MAX);
    let wait = most.mul_f64(0.5 + 0.5 * fastrand::f64()).max(error.retry_after());
    context.backoffs.begin(&key, desired_hash(object.as_ref()), wait);
    Action::requeue(wait)
}
