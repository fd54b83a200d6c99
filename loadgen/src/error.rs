//! The errors of a bench.

use kubebid_engine::server::ServeError;

/// The reason why a bench ended without figures, or why its engine did not end well.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The options ask for something that is not possible.
    #[error("{what}")]
    Usage {
        /// One sentence: what is wrong.
        what: String,
        /// One sentence: what to do next.
        advice: Option<&'static str>,
    },
    /// The engine, the machine or the bench itself failed.
    #[error("{what}")]
    Fault {
        /// One sentence, perhaps with the end of the engine's log.
        what: String,
        /// One sentence: what to do next.
        advice: Option<&'static str>,
    },
    /// An endpoint did not answer over HTTP.
    #[error("{0}")]
    Unavailable(String),
    /// A call failed, or was refused when nothing was measured yet.
    #[error(transparent)]
    Call(#[from] kubebid_client::Error),
    /// The engine or its store failed in this process.
    #[error(transparent)]
    Engine(#[from] ServeError),
}

impl BenchError {
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        BenchError::Usage { what: what.into(), advice: None }
    }

    pub(crate) fn fault(what: impl Into<String>) -> Self {
        BenchError::Fault { what: what.into(), advice: None }
    }
}
