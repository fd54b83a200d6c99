//! REST: every verb of gRPC but PlaceBids, with the same messages, checks and codes.

mod bind;
mod document;
mod operation;
mod operations;
mod problem;
mod rpcs;
mod sse;

use crate::api::Api;
use crate::caller::Caller;
use crate::metrics::Requests;
use crate::spans;
use crate::wire::status::{ApiError, Code};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{Html, Response};
use axum::routing::{MethodFilter, get, on};
use bind::Given;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use operation::Operation;
use problem::problem;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The largest body that is read.
const BODY_BYTES: usize = 64 * 1024;
/// For how long an answer is waited for, where the caller does not say.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest that a caller may wait.
const PATIENCE_MAX: Duration = Duration::from_secs(300);

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// In whole seconds.
const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("request-timeout");

/// All of REST, its document and a page for people.
pub fn router(api: Api) -> Router {
    routes().with_state(api)
}

/// The same, before there is anybody to answer. It takes a while to make.
pub(crate) fn routes() -> Router<Api> {
    let operations = operations::all();
    let document: Bytes = document_of(&operations).into();
    let rpcs = rpcs::all();
    let mut router = Router::new()
        .route("/", get(|| async { Html(include_str!("rest/index.html")) }))
        .route("/openapi.json", get(async move || ([(header::CONTENT_TYPE, "application/json")], document)));
    for operation in operations {
        let filter = MethodFilter::try_from(operation.method.clone()).expect("a method of REST");
        let path = operation.path;
        let counted = Arc::new(Requests::of("rest", &rpcs[operation.rpc].path));
        let operation = Arc::new(operation);
        let handler = async move |State(api): State<Api>, parameters: PathParameters, request: Request| {
            let span = spans::request("rest", counted.method(), request.headers());
            spans::within(span, serve(api, &operation, &counted, parameters, request)).await
        };
        router = router.route(path, on(filter, handler));
    }
    router
        .fallback(async || {
            problem(ApiError::new(Code::UnknownMethod).saying("there is nothing at this path"))
        })
        .method_not_allowed_fallback(async || problem::wrong_method())
}

/// An answer to any request that is not to be served.
pub(crate) fn refusal(error: ApiError) -> Response {
    problem(error)
}

/// The OpenAPI document as it is served.
pub fn openapi() -> String {
    document_of(&operations::all())
}

fn document_of(operations: &[Operation]) -> String {
    document::document(operations).to_json().expect("the document has a JSON")
}

type PathParameters = Result<RawPathParams, RawPathParamsRejection>;

async fn serve(
    api: Api,
    operation: &Operation,
    counted: &Requests,
    parameters: PathParameters,
    request: Request,
) -> Response {
    let started = Instant::now();
    let response = answer(api, operation, counted.method(), parameters, request).await;
    let code = response.extensions().get().copied().unwrap_or(tonic::Code::Ok);
    counted.answered(code, started.elapsed());
    response
}

async fn answer(
    api: Api,
    operation: &Operation,
    rpc: &str,
    parameters: PathParameters,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let admitted = admit(&api, operation, rpc, &parts.headers);
    let caller = match admitted {
        Ok(caller) => caller,
        Err(error) => return problem(error),
    };
    let query = parts.uri.query().unwrap_or_default();
    match gather(operation, parameters, query, &parts.headers, body).await {
        Ok(given) => (operation.handler)(api, caller, given).await,
        Err(error) => problem(error),
    }
}

/// Who asks, and until when; by the same check as gRPC.
fn admit(api: &Api, operation: &Operation, rpc: &str, headers: &HeaderMap) -> Result<Caller, ApiError> {
    let patience = match headers.get(REQUEST_TIMEOUT) {
        None => PATIENCE,
        Some(seconds) => {
            let seconds = seconds.to_str().ok().and_then(|text| text.trim().parse().ok());
            let seconds =
                seconds.ok_or_else(|| ApiError::bad_field("Request-Timeout", "is not in whole seconds"))?;
            Duration::from_secs(seconds).min(PATIENCE_MAX)
        }
    };
    let deadline = (!operation.streams).then(|| Instant::now() + patience);
    Ok(Caller { deadline, ..api.admit(rpc, headers)? })
}

async fn gather(
    operation: &Operation,
    parameters: PathParameters,
    query: &str,
    headers: &HeaderMap,
    body: Body,
) -> Result<Given, ApiError> {
    let binding = &operation.binding;
    let mut given = Given::default();
    if let Some((field, text)) = &binding.from_path {
        let parameters = parameters.map_err(|_| ApiError::bad_field("path", "is not UTF-8"))?;
        let mut text = text.clone();
        for (name, value) in &parameters {
            text = text.replace(&format!("{{{name}}}"), value);
        }
        given.set(field, text.into());
    }
    given.set_query(binding, query)?;
    if binding.has_body {
        given.set_body(read(body).await?);
    }
    if let Some(key) = text_of(headers, &IDEMPOTENCY_KEY)?.filter(|_| binding.has_body) {
        if !binding.has_key {
            return Err(ApiError::bad_field(
                "Idempotency-Key",
                "is of no use here: repeat the request as it is",
            ));
        }
        given.set(&["client_key".to_owned()], key.into());
    }
    if let Some(cursor) = text_of(headers, &LAST_EVENT_ID)?.filter(|_| operation.streams) {
        // Who comes again after a break sends the same query as at first.
        given.set(&["cursor".to_owned()], cursor.into());
        if binding.query.contains_key("from_start") {
            given.set(&["from_start".to_owned()], Value::Bool(false));
        }
    }
    Ok(given)
}

async fn read(body: Body) -> Result<Bytes, ApiError> {
    match Limited::new(body, BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(ApiError::new(Code::TooLarge).saying(format!("the body has more than {BODY_BYTES} bytes")))
        }
        Err(_) => Err(ApiError::bad_field("body", "ended before its end")),
    }
}

fn text_of(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().map_err(|_| ApiError::bad_field(name.as_str(), "is not plain text"))?;
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}
