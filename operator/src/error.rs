//! Errors of a reconcile. Each ends the pass, and the object is requeued.

use std::time::Duration;

/// The reason why a reconcile failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The object was written by another client, or our copy of it is old.
    #[error("the object has changed meanwhile")]
    Conflict,
    /// The API server does not answer, or refuses.
    #[error("the cluster: {0}")]
    Cluster(Box<kube::Error>),
    /// The engine does not answer, or refuses.
    #[error("the engine: {0}")]
    Engine(#[from] kubebid_client::Error),
    /// The provisioner does not answer, or refuses.
    #[error(transparent)]
    Provisioner(#[from] crate::provisioner::Fault),
    /// This replica is not the leader, or cannot be sure of it.
    #[error("this replica does not lead")]
    NotLeading,
    /// The reconcile panicked.
    #[error("a bug of ours: {0}")]
    Panicked(String),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        let is_conflict = matches!(&error, kube::Error::Api(status) if status.is_conflict());
        if is_conflict { Error::Conflict } else { Error::Cluster(Box::new(error)) }
    }
}

impl Error {
    /// Returns the least time before the next call, if the other side has asked for one.
    pub(crate) fn retry_after(&self) -> Duration {
        match self {
            Error::Provisioner(fault) => fault.retry_after.unwrap_or_default(),
            Error::Conflict
            | Error::Cluster(_)
            | Error::Engine(_)
            | Error::NotLeading
            | Error::Panicked(_) => Duration::ZERO,
        }
    }

    /// Returns the value of the label `result` of the metric of reconciles.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Error::Conflict => "stale",
            Error::Cluster(_) => "cluster",
            Error::Engine(_) => "auction",
            Error::Provisioner(_) => "provisioner",
            Error::NotLeading => "not_leading",
            Error::Panicked(_) => "panicked",
        }
    }
}
