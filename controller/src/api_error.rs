//! The texts of errors of the Kubernetes API, as people read them.

use crate::object::Object;
use kube::runtime::watcher;

/// Returns the message of a refusal by the API server, or any other error in full.
pub fn message(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error
        && !status.message.is_empty()
    {
        return status.message.clone();
    }
    error.to_string()
}

/// Returns true if the object, or its kind, is not there. A group that is not served is answered without a reason.
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Returns true if the API server refuses what a request says, and would refuse it again: the object is not valid, a role does
/// not permit the request, or an admission policy denies it.
pub fn is_denied(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422))
}

/// Returns why a watch of a kind failed.
pub(crate) fn watch_message<K: Object>(error: &watcher::Error) -> String {
    let (watcher::Error::InitialListFailed(cause)
    | watcher::Error::WatchStartFailed(cause)
    | watcher::Error::WatchFailed(cause)) = error
    else {
        return error.to_string();
    };
    if is_not_found(cause) {
        return format!("{} is not defined in the cluster", K::plural(&()));
    }
    message(cause)
}
