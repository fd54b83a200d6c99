//! Errors of a reconcile. Each ends the pass, and the object is requeued.

use kubebid_controller::writer::WriteError;
use kubebid_controller::{Error as PassError, ReconcilerError};
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
    /// This replica is not the leader, or cannot be sure of it.
    #[error("this replica does not lead")]
    NotLeader,
    /// The engine does not answer, or refuses.
    #[error("the engine: {0}")]
    Engine(#[from] kubebid_client::Error),
    /// The provisioner does not answer, or refuses.
    #[error(transparent)]
    Provisioner(#[from] crate::provisioner::Fault),
}

/// An error of a service beside the cluster.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    /// The engine does not answer, or refuses.
    #[error("the engine: {0}")]
    Engine(kubebid_client::Error),
    /// The provisioner does not answer, or refuses.
    #[error(transparent)]
    Provisioner(crate::provisioner::Fault),
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NotLeader => Error::NotLeader,
            WriteError::Conflict => Error::Conflict,
            WriteError::Cluster(error) => Error::Cluster(error),
        }
    }
}

impl From<Error> for PassError<ServiceError> {
    fn from(error: Error) -> Self {
        match error {
            Error::Conflict => PassError::Conflict,
            Error::Cluster(error) => PassError::Cluster(error),
            Error::NotLeader => PassError::NotLeader,
            Error::Engine(error) => PassError::Own(ServiceError::Engine(error)),
            Error::Provisioner(fault) => PassError::Own(ServiceError::Provisioner(fault)),
        }
    }
}

impl ReconcilerError for ServiceError {
    fn reason(&self) -> &'static str {
        match self {
            ServiceError::Engine(_) => "auction",
            ServiceError::Provisioner(_) => "provisioner",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            ServiceError::Provisioner(fault) => fault.retry_after,
            ServiceError::Engine(_) => None,
        }
    }
}
