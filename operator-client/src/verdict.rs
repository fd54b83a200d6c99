//! Classifies gRPC statuses: what each means for the caller, and whether a retry can help.

use crate::Code;
use crate::error::{Error, Kind, Refusal};
use std::time::Duration;
use tonic::{Code as Grpc, Status};
use tonic_types::StatusExt as _;

const DOMAIN: &str = "kubebid.io";

/// The meaning of a status.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Nothing was done; there may be room later.
    Busy(Option<Duration>),
    /// The engine answered that `min_seq` was not reached in time.
    NotYet,
    /// There was no answer in time.
    Silent,
    /// This engine waits for another's end, or has met its own, and took nothing. Somebody leads or is about to:
    /// going round again is worth this wait.
    NotLeading(Duration),
    /// This engine is away, or the connection broke.
    Away {
        /// True if there was no connection, so nothing was sent.
        untaken: bool,
    },
    /// The token is unknown or revoked.
    Unknown(Box<Refusal>),
    /// Another try would end the same way.
    Final(Error),
}

/// Returns what a status means for the caller.
pub(crate) fn classify_status(status: &Status) -> Verdict {
    let details = status.get_error_details();
    let retry_after = details.retry_info().and_then(|info| info.retry_delay);
    let info = details.error_info().filter(|info| info.domain == DOMAIN);
    let code = info.map(|info| Code::from(info.reason.as_str()));
    let refusal = |kind: Kind, otherwise: Code| {
        let field = details.bad_request().and_then(|bad| bad.field_violations.first());
        let mut metadata: std::collections::BTreeMap<_, _> =
            info.map(|info| info.metadata.clone()).unwrap_or_default().into_iter().collect();
        let seq = metadata.remove("seq").and_then(|seq| seq.parse().ok());
        Box::new(Refusal {
            code: code.clone().unwrap_or(otherwise),
            kind,
            message: status.message().to_owned(),
            field: field.map(|violation| violation.field.clone()),
            seq,
            metadata,
        })
    };
    let refused = |kind, otherwise| Verdict::Final(Error::Refused(refusal(kind, otherwise)));

    if caused_by::<tonic::TimeoutExpired>(status) {
        return Verdict::Silent;
    }
    if std::error::Error::source(status).is_some() {
        // Made here and not by an engine: the connection is at fault.
        return Verdict::Away { untaken: caused_by::<tonic::ConnectError>(status) };
    }
    match status.code() {
        Grpc::InvalidArgument => refused(Kind::Invalid, Code::BadField),
        Grpc::NotFound => refused(Kind::NotFound, Code::Other("NOT_FOUND".into())),
        Grpc::AlreadyExists => refused(Kind::Exists, Code::Other("ALREADY_EXISTS".into())),
        Grpc::FailedPrecondition => refused(Kind::State, Code::Other("FAILED_PRECONDITION".into())),
        Grpc::OutOfRange if code == Some(Code::Gone) => {
            Verdict::Final(Error::Gone(refusal(Kind::OutOfRange, Code::Gone)))
        }
        Grpc::OutOfRange => refused(Kind::OutOfRange, Code::TooLarge),
        Grpc::ResourceExhausted => match code {
            Some(Code::Busy) => Verdict::Busy(retry_after),
            Some(_) | None if retry_after.is_some() => Verdict::Busy(retry_after),
            Some(_) => refused(Kind::Limit, Code::Limit),
            // Not from an engine, but from what stands before it.
            None => Verdict::Busy(None),
        },
        Grpc::Unauthenticated => Verdict::Unknown(refusal(Kind::Access, Code::Unauthenticated)),
        Grpc::PermissionDenied => Verdict::Final(Error::Denied(refusal(Kind::Access, Code::Forbidden))),
        Grpc::DeadlineExceeded if code.is_some() => Verdict::NotYet,
        Grpc::DeadlineExceeded => Verdict::Silent,
        Grpc::Unavailable if code == Some(Code::NotLeading) => {
            Verdict::NotLeading(retry_after.unwrap_or_default())
        }
        Grpc::Unavailable | Grpc::Cancelled | Grpc::Aborted => Verdict::Away { untaken: false },
        Grpc::Ok | Grpc::Unknown | Grpc::Unimplemented | Grpc::Internal | Grpc::DataLoss => {
            Verdict::Final(Error::Fault(Box::new(status.clone())))
        }
    }
}

fn caused_by<E: std::error::Error + 'static>(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<E>() {
            return true;
        }
        cause = error.source();
    }
    false
}
