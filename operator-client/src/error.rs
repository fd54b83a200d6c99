//! The errors of a call.

use crate::Code;
use crate::v1;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tonic::Status;

/// The reason why a call has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The client itself is set up wrongly: an endpoint, a token file, a certificate.
    #[error("{0}")]
    Config(String),
    /// The engine says no, and would again.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// No credential, or one that is unknown or revoked.
    #[error("not authenticated: {0}")]
    Unauthenticated(Box<Refusal>),
    /// The roles of the credential do not allow the method.
    #[error("not allowed: {0}")]
    Denied(Box<Refusal>),
    /// The cursor is of another journal or ahead of its end: read the lists afresh and watch from the cursor they
    /// give.
    #[error("gone: {0}")]
    Gone(Box<Refusal>),
    /// The engine had no room for the request, as often as it was tried.
    #[error("the engine is busy, {0}")]
    Busy(Box<FailedCall>),
    /// There was no answer before the deadline: `min_seq` was not reached, or nobody answered.
    #[error("no answer in time, {0}")]
    Late(Box<FailedCall>),
    /// No engine could be reached, or its store is away.
    #[error("no engine is available, {0}")]
    Unavailable(Box<FailedCall>),
    /// An answer that no engine should give: a bug, or another program at the endpoint.
    #[error("the engine is at fault: {}", message(.0))]
    Fault(Box<Status>),
}

/// Returns the error for a file that cannot be read.
pub(crate) fn unreadable(what: &str, path: &std::path::Path, error: &std::io::Error) -> Error {
    Error::Config(format!("cannot read the {what} {}: {error}", path.display()))
}

impl Error {
    /// The code of the refusal, if the engine gave one.
    pub fn code(&self) -> Option<&Code> {
        match self {
            Error::Refused(refusal)
            | Error::Unauthenticated(refusal)
            | Error::Denied(refusal)
            | Error::Gone(refusal) => Some(&refusal.code),
            Error::Busy(_) => Some(&Code::Busy),
            Error::Late(_) => Some(&Code::NotYet),
            Error::Unavailable(_) => Some(&Code::Unavailable),
            Error::Config(_) | Error::Fault(_) => None,
        }
    }

    /// The refusal, if it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Error::Refused(refusal)
            | Error::Unauthenticated(refusal)
            | Error::Denied(refusal)
            | Error::Gone(refusal) => Some(refusal),
            Error::Config(_) | Error::Busy(_) | Error::Late(_) | Error::Unavailable(_) | Error::Fault(_) => {
                None
            }
        }
    }

    /// Returns how it was tried, if it was tried in vain.
    pub fn gave_up(&self) -> Option<&FailedCall> {
        match self {
            Error::Busy(end) | Error::Late(end) | Error::Unavailable(end) => Some(end),
            Error::Config(_)
            | Error::Refused(_)
            | Error::Unauthenticated(_)
            | Error::Denied(_)
            | Error::Gone(_)
            | Error::Fault(_) => None,
        }
    }
}

/// The subject of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request is wrong in itself.
    Invalid,
    /// The request names something that does not exist or belongs to another account.
    NotFound,
    /// The request makes something that exists, or its key was used for another request.
    Exists,
    /// It cannot be done as things are.
    State,
    /// A limit of the account, or the size of the message.
    Limit,
    /// A place in a journal that is not there.
    OutOfRange,
    /// A matter of credentials and roles.
    Access,
}

/// A request that was refused, and changed nothing.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The stable code.
    pub code: Code,
    /// The subject.
    pub kind: Kind,
    /// One sentence for people.
    pub message: String,
    /// The field to blame, as in `ceiling_micros`.
    pub field: Option<String>,
    /// The number of the refused command; without one it was not numbered, and its key is free.
    pub seq: Option<u64>,
    /// Anything more that the engine says, as the name of a limit.
    pub metadata: BTreeMap<String, String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl Refusal {
    /// Returns the refusal of one bid of a stream.
    pub(crate) fn of_stream(refusal: v1::Refusal) -> Self {
        let kind = match tonic::Code::from_i32(i32::try_from(refusal.code).unwrap_or(i32::MAX)) {
            tonic::Code::NotFound => Kind::NotFound,
            tonic::Code::AlreadyExists => Kind::Exists,
            tonic::Code::FailedPrecondition => Kind::State,
            tonic::Code::ResourceExhausted => Kind::Limit,
            tonic::Code::OutOfRange => Kind::OutOfRange,
            tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => Kind::Access,
            tonic::Code::Ok
            | tonic::Code::Cancelled
            | tonic::Code::Unknown
            | tonic::Code::InvalidArgument
            | tonic::Code::DeadlineExceeded
            | tonic::Code::Aborted
            | tonic::Code::Unimplemented
            | tonic::Code::Internal
            | tonic::Code::Unavailable
            | tonic::Code::DataLoss => Kind::Invalid,
        };
        Refusal {
            code: Code::from(refusal.reason.as_str()),
            kind,
            message: refusal.message,
            field: refusal.field,
            seq: refusal.seq,
            metadata: BTreeMap::new(),
        }
    }
}

/// The end of a call that was tried in vain.
#[derive(Clone, Debug)]
pub struct FailedCall {
    /// The number of tries.
    pub tries: u32,
    /// The status of the last try.
    pub last: Status,
    /// The endpoint of the last try.
    pub endpoint: String,
    /// The time for which the engine asked to wait.
    pub retry_after: Option<Duration>,
    /// The key it was tried under: repeated with the same key and content, a command is done at most once.
    pub client_key: Option<String>,
    /// True if the command may have been executed all the same.
    pub maybe_taken: bool,
}

impl fmt::Display for FailedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = if self.tries == 1 { "once".to_owned() } else { format!("{} times", self.tries) };
        write!(f, "tried {times}, last at {}: {}", self.endpoint, message(&self.last))
    }
}

/// Returns a status in words, with its causes.
pub(crate) fn message(status: &Status) -> String {
    use std::error::Error as _;
    let mut said = match status.message() {
        "" => format!("{:?}", status.code()),
        message => message.to_owned(),
    };
    let mut cause = status.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) && text != "transport error" {
            said = format!("{said}: {text}");
        }
        cause = error.source();
    }
    said
}
