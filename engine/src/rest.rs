//! The REST protocol: the same calls as gRPC except PlaceBids, with the same messages, checks and codes.

mod bind;
mod document;
mod examples;
mod layers;
mod operation;
mod operations;
mod page;
mod prepared;
mod problem;
mod rpcs;
mod sse;

use crate::api::{Api, header_of};
use crate::auth::caller::Caller;
use crate::auth::held::held;
use crate::auth::limits::Slot;
use crate::auth::policy::{self, OpenCost};
use crate::runtime::metrics::Requests;
use crate::runtime::spans;
use crate::wire::status::{ApiError, Code};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use axum::response::Response;
use axum::routing::{MethodFilter, get, on};
use bind::Given;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use operation::Operation;
use prepared::Prepared;
use problem::problem;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The largest body of a request, in bytes.
const BODY_BYTES: usize = 64 * 1024;
/// The time within which a request is answered if its caller names none.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest time that a caller may name.
const PATIENCE_MAX: Duration = Duration::from_secs(300);

/// The number of bytes of an unread body that are discarded, so that its connection can be used again.
const DISCARDED_BYTES: usize = 256 * 1024;
/// The time that such a body may take to arrive.
const DISCARD_PATIENCE: Duration = Duration::from_secs(2);

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The deadline of a request, in whole seconds.
const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("request-timeout");

pub(crate) use layers::{layered, origin};

/// Returns all of REST, with the OpenAPI document and the market page. Pages of other origins may not read it.
pub fn router(api: Api) -> Router {
    layered(routes().with_state(api), &[])
}

/// Returns the same routes before an engine leads. To make them takes a while, so a standby does it in
/// advance.
pub(crate) fn routes() -> Router<Api> {
    let operations = operations::all();
    let document = Prepared::new("application/json", document_of(&operations).into());
    let rpcs = rpcs::all();
    let document = async move |State(api): State<Api>, request: Request| {
        for_anybody(&api, request, |headers| document.answer(headers)).await
    };
    let index = async |State(api): State<Api>, request: Request| {
        for_anybody(&api, request, |headers| page::index(&api, headers)).await
    };
    let asset = async |State(api): State<Api>, request: Request| {
        let path = request.uri().path().to_owned();
        for_page_file(&api, request, |headers| page::asset(&api, &path, headers)).await
    };
    let mut router = Router::new()
        .route("/", get(index))
        .route("/assets/{*path}", get(asset))
        .route("/openapi.json", get(document));
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
        .fallback(async |State(api): State<Api>, request: Request| {
            for_anybody(&api, request, |_| problem(nothing_here())).await
        })
        .method_not_allowed_fallback(async |State(api): State<Api>, request: Request| {
            for_anybody(&api, request, |_| problem::wrong_method()).await
        })
}

fn nothing_here() -> ApiError {
    ApiError::new(Code::UnknownMethod).saying("there is nothing at this path")
}

/// Returns the routes of an engine that does not lead.
pub(crate) fn standing_by() -> Router {
    Router::new().fallback(async |request: Request| {
        let (parts, body) = request.into_parts();
        in_order(problem(ApiError::not_leading()), parts.version, body).await
    })
}

/// Answers a request that needs no token. It counts for the address it comes from.
async fn for_anybody(api: &Api, request: Request, answer: impl FnOnce(&HeaderMap) -> Response) -> Response {
    let (parts, body) = request.into_parts();
    let slot = api.admit_anybody(&parts.extensions).await;
    answered(slot, parts, body, answer).await
}

/// Answers a request for a file that the market page loads.
async fn for_page_file(api: &Api, request: Request, answer: impl FnOnce(&HeaderMap) -> Response) -> Response {
    let (parts, body) = request.into_parts();
    let slot = api.admit_page_file(&parts.extensions);
    answered(slot, parts, body, answer).await
}

async fn answered(
    slot: Result<Slot, ApiError>,
    parts: Parts,
    body: Body,
    answer: impl FnOnce(&HeaderMap) -> Response,
) -> Response {
    let response = match slot {
        Ok(slot) => held(answer(&parts.headers), Some(slot), OpenCost::Requests(1)),
        Err(error) => problem(error),
    };
    in_order(response, parts.version, body).await
}

/// Returns the response after the unread rest of the request's body is discarded, which HTTP/1 needs to
/// continue a connection. If the body does not end soon, the response closes the connection.
async fn in_order(mut response: Response, version: Version, body: Body) -> Response {
    if version < Version::HTTP_2 && !hyper::body::Body::is_end_stream(&body) && !discard(body).await {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Reads and drops the rest of a body. Returns true if it came to its end.
async fn discard(mut body: Body) -> bool {
    let reading = async {
        let mut left = DISCARDED_BYTES;
        while let Some(frame) = body.frame().await {
            let read = frame.ok().map(|frame| frame.data_ref().map_or(0, Bytes::len));
            match read.and_then(|read| left.checked_sub(read)) {
                Some(rest) => left = rest,
                None => return false,
            }
        }
        true
    };
    tokio::time::timeout(DISCARD_PATIENCE, reading).await.unwrap_or(false)
}

/// Returns the OpenAPI document as it is served.
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
    let (parts, mut body) = request.into_parts();
    let gathered = async {
        let caller = admit(&api, operation, rpc, &parts).await?;
        let deadline = caller.deadline.unwrap_or_else(|| Instant::now() + PATIENCE);
        let query = parts.uri.query().unwrap_or_default();
        let gathering = gather(operation, parameters, query, &parts.headers, &mut body);
        match tokio::time::timeout_at(deadline.into(), gathering).await {
            Ok(given) => Ok((caller, given?)),
            Err(_) => Err(ApiError::new(Code::NotYet).saying("the body did not come to its end in time")),
        }
    };
    match gathered.await {
        Ok((caller, given)) => {
            let slot = caller.slot.clone();
            let answered = (operation.handler)(api, caller, given).await;
            let response = answered.unwrap_or_else(|error| problem(operation.binding.name_parameter(error)));
            held(response, slot, policy::open_cost(rpc))
        }
        Err(error) => in_order(problem(error), parts.version, body).await,
    }
}

/// Admits a request by the same checks as gRPC. Returns the caller with its deadline.
async fn admit(api: &Api, operation: &Operation, rpc: &str, parts: &Parts) -> Result<Caller, ApiError> {
    let caller = api.admit(rpc, &parts.headers, &parts.extensions).await?;
    let patience = match header_of(&parts.headers, &REQUEST_TIMEOUT)? {
        None => PATIENCE,
        Some(seconds) => {
            let seconds = seconds.to_str().ok().and_then(|text| text.trim().parse().ok());
            let seconds =
                seconds.ok_or_else(|| ApiError::bad_field("Request-Timeout", "is not in whole seconds"))?;
            Duration::from_secs(seconds).min(PATIENCE_MAX)
        }
    };
    let deadline = (!operation.streams).then(|| Instant::now() + patience);
    Ok(Caller { deadline, ..caller })
}

async fn gather(
    operation: &Operation,
    parameters: PathParameters,
    query: &str,
    headers: &HeaderMap,
    body: &mut Body,
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
    // The body is read even if it is not needed, because the next request of the connection follows
    // it.
    let body = read(body).await?;
    if binding.has_body {
        given.set_body(body);
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
        // A caller that reconnects sends the same query as the first time.
        given.set(&["cursor".to_owned()], cursor.into());
        if binding.query.contains_key("from_start") {
            given.set(&["from_start".to_owned()], Value::Bool(false));
        }
    }
    Ok(given)
}

async fn read(body: &mut Body) -> Result<Bytes, ApiError> {
    match Limited::new(body, BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(ApiError::new(Code::TooLarge).saying(format!("the body has more than {BODY_BYTES} bytes")))
        }
        Err(_) => Err(ApiError::bad_field("body", "ended before its end")),
    }
}

fn text_of(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, ApiError> {
    let Some(value) = header_of(headers, name)? else { return Ok(None) };
    let text = value.to_str().map_err(|_| ApiError::bad_field(name.as_str(), "is not plain text"))?;
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}
