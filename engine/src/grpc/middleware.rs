//! The path of every gRPC request: admission, deadline, panics, metrics.

use super::malformed::malformed;
use crate::api::{Api, header_of};
use crate::auth::caller::Caller;
use crate::auth::held::held;
use crate::auth::policy;
use crate::runtime::metrics::Requests;
use crate::wire::status::{ApiError, Code};
use axum::extract::Request;
use axum::response::Response;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};
use tonic::Status;
use tracing::error;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Admits a request, and answers it by `next` before its deadline.
pub(super) async fn pass<F: Future<Output = Response>>(
    api: &Api,
    requests: &Requests,
    request: Request,
    next: impl FnOnce(Caller, Request) -> F,
) -> Response {
    let answer = async { admit(api, requests.method(), request, next).await.unwrap_or_else(refused) };
    counted(requests, answer).await
}

pub(super) async fn counted(requests: &Requests, answer: impl Future<Output = Response>) -> Response {
    let started = Instant::now();
    let response = answer.await;
    let code = response.extensions().get().map_or(tonic::Code::Ok, Status::code);
    requests.answered(code, started.elapsed());
    response
}

async fn admit<F: Future<Output = Response>>(
    api: &Api,
    path: &str,
    request: Request,
    next: impl FnOnce(Caller, Request) -> F,
) -> Result<Response, ApiError> {
    let mut caller = api.admit(path, request.headers(), request.extensions()).await?;
    let slot = caller.slot.clone();
    let deadline = deadline(request.headers())?;
    caller.deadline = deadline;
    let answering = unpanicked(path, next(caller, request));
    let response = match deadline {
        // What has begun continues in the background. A command that is not stamped yet is never
        // taken.
        Some(deadline) if deadline <= Instant::now() => return Err(late()),
        Some(deadline) => tokio::time::timeout_at(deadline.into(), answering).await.map_err(|_| late())?,
        None => answering.await,
    };
    let response = held(response, slot, policy::open_cost(path));
    explained(response)
}

/// Gives a status that tonic made the code of the table. Statuses made by KubeBid have details, those of
/// tonic have none.
pub(super) fn explained(response: Response) -> Result<Response, ApiError> {
    match response.extensions().get::<Status>() {
        Some(status) if status.details().is_empty() => malformed(status).map_or(Ok(response), Err),
        // A service of tonic writes this header without a status.
        None if response.headers().get("grpc-status").is_some_and(|code| code == "12") => {
            Err(Code::UnknownMethod.into())
        }
        Some(_) | None => Ok(response),
    }
}

pub(super) fn late() -> ApiError {
    let said = "the deadline came first; repeat a command with its client_key to learn what became of it";
    ApiError::new(Code::NotYet).saying(said)
}

/// Answers INTERNAL if a request panics, which is a bug of the engine. The server continues.
pub(super) async fn unpanicked(path: &str, answering: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(answering).catch_unwind().await.unwrap_or_else(|_| {
        error!(path, "a request panicked");
        refused(ApiError::new(Code::Internal))
    })
}

pub(super) fn refused(error: ApiError) -> Response {
    error.into_status().into_http()
}

/// Reads the deadline from `grpc-timeout`, as in "250m".
fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, ApiError> {
    let Some(header) = header_of(headers, &GRPC_TIMEOUT)? else { return Ok(None) };
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
