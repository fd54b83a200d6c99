//! Where every gRPC request passes: who asks, until when, and what becomes of panics and of messages that tonic
//! could not read.

use super::malformed::malformed;
use crate::api::Api;
use crate::metrics;
use crate::wire::status::{ApiError, Code};
use axum::extract::Request;
use axum::response::Response;
use futures_util::FutureExt;
use http::HeaderMap;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};
use tonic::Status;
use tracing::error;

/// The services that have a policy; health and reflection are for everybody.
const OURS: &str = "/kubebid.";

/// `answer` is behind the gate.
pub(super) async fn pass<F: Future<Output = Response>>(
    api: &Api,
    request: Request,
    answer: impl FnOnce(Request) -> F,
) -> Response {
    let started = Instant::now();
    let path = request.uri().path().to_owned();
    let response = if path.starts_with(OURS) {
        match admit(api, request, answer).await {
            Ok(response) => response,
            Err(error) => error.into_status().into_http(),
        }
    } else {
        unpanicked(&path, answer(request)).await.unwrap_or_else(|error| error.into_status().into_http())
    };
    let code = response.extensions().get().map_or(tonic::Code::Ok, Status::code);
    metrics::request("grpc", &path, code_word(code), started.elapsed());
    response
}

async fn admit<F: Future<Output = Response>>(
    api: &Api,
    mut request: Request,
    answer: impl FnOnce(Request) -> F,
) -> Result<Response, ApiError> {
    let path = request.uri().path().to_owned();
    let mut caller = api.admit(&path, request.headers())?;
    caller.deadline = deadline(request.headers())?;
    let deadline = caller.deadline;
    request.extensions_mut().insert(caller);
    let answering = unpanicked(&path, answer(request));
    let response = match deadline {
        // It ends what it has begun, and a command that is not stamped is never taken.
        Some(deadline) if deadline <= Instant::now() => return Err(late()),
        Some(deadline) => tokio::time::timeout_at(deadline.into(), answering).await.map_err(|_| late())??,
        None => answering.await?,
    };
    match response.extensions().get::<Status>() {
        // Ours have details; one without comes from reading the message.
        Some(status) if status.details().is_empty() => match malformed(status) {
            Some(error) => Err(error),
            None => Ok(response),
        },
        Some(_) | None => Ok(response),
    }
}

fn late() -> ApiError {
    let said = "the deadline came first; repeat a command with its client_key to learn what became of it";
    ApiError::new(Code::NotYet).saying(said)
}

/// A panic is our bug: the caller hears so, and the server goes on.
async fn unpanicked(path: &str, answering: impl Future<Output = Response>) -> Result<Response, ApiError> {
    AssertUnwindSafe(answering).catch_unwind().await.map_err(|_| {
        error!(path, "a request panicked");
        ApiError::new(Code::Internal)
    })
}

/// Until when the caller waits: `grpc-timeout`, as in "250m".
fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, ApiError> {
    let Some(header) = headers.get("grpc-timeout") else { return Ok(None) };
    let timeout = header.to_str().ok().and_then(timeout);
    let timeout =
        timeout.ok_or_else(|| ApiError::bad_field("grpc-timeout", "is not up to 8 digits and a unit"))?;
    Ok(Instant::now().checked_add(timeout))
}

fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

fn code_word(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_grpc_has_them() {
        assert_eq!(timeout("250m"), Some(Duration::from_millis(250)));
        assert_eq!(timeout("1S"), Some(Duration::from_secs(1)));
        assert_eq!(timeout("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for bad in ["", "S", "1", "1 S", "-1S", "123456789S", "1x", "1é"] {
            assert_eq!(timeout(bad), None, "{bad}");
        }
    }
}
