//! Answers refusals as problem details (RFC 9457).

use crate::wire::status::{ApiError, Code};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Map, Value, json};

/// The page of the book that describes the codes, each in a section of its own.
const TYPES: &str = "https://kubebid.io/problems.html";

pub(super) fn problem(error: ApiError) -> Response {
    let status = StatusCode::from_u16(error.code.http()).expect("the table has statuses");
    with_status(status, error)
}

/// Returns the response to a method that an existing path does not have.
pub(super) fn wrong_method() -> Response {
    let error = ApiError::new(Code::UnknownMethod).saying("this path has no such method");
    with_status(StatusCode::METHOD_NOT_ALLOWED, error)
}

fn with_status(status: StatusCode, error: ApiError) -> Response {
    let code = error.code.grpc();
    let retry_after = error.retry_after.map(|wait| wait.as_secs_f64().ceil().max(1.0) as u64);
    let mut response = Response::new(Body::from(body(status, error).to_string()));
    *response.status_mut() = status;
    // The metrics count the response by this code, as in gRPC.
    response.extensions_mut().insert(code);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Returns the problem document alone, for a stream that ends with it.
pub(super) fn document(error: ApiError) -> Value {
    let status = StatusCode::from_u16(error.code.http()).expect("the table has statuses");
    body(status, error)
}

fn body(status: StatusCode, error: ApiError) -> Value {
    let code = error.code.word();
    let mut body = json!({
        "type": format!("{TYPES}#{}", code.to_lowercase()),
        "title": title(code),
        "status": status.as_u16(),
        "detail": error.message,
        "code": code,
    });
    let members = body.as_object_mut().expect("made above");
    members.extend(error.field.map(|field| ("field".to_owned(), field.into())));
    members.extend(error.seq.map(|seq| ("seq".to_owned(), seq.to_string().into())));
    let wait = error.retry_after.map(|wait| wait.as_micros().to_string());
    members.extend(wait.map(|wait| ("retry_after_us".to_owned(), wait.into())));
    if !error.metadata.is_empty() {
        let metadata: Map<String, Value> =
            error.metadata.into_iter().map(|(name, value)| (name, value.into())).collect();
        members.insert("metadata".to_owned(), metadata.into());
    }
    body
}

/// Formats a code as a title: `NOT_A_TICK` becomes "Not a tick".
fn title(code: &str) -> String {
    let words = code.replace('_', " ").to_lowercase();
    let (first, rest) = words.split_at(1);
    first.to_uppercase() + rest
}
