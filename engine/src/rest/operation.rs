//! A REST operation: its verb and path, its messages, and the method it calls.

use super::bind::{Binding, Given};
use super::sse::{self, Frame};
use crate::api::Api;
use crate::auth::caller::Caller;
use crate::wire::status::ApiError;
use axum::Json;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

/// An rpc as a REST operation.
pub(super) struct Operation {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// The name of the rpc. The second operation of an rpc has a name of its own.
    pub(super) id: &'static str,
    pub(super) rpc: &'static str,
    pub(super) binding: Binding,
    pub(super) request: Message,
    pub(super) response: Message,
    /// True if it answers with server-sent events, each with a response message.
    pub(super) streams: bool,
    pub(super) handler: Handler,
}

type Handler =
    Arc<dyn Fn(Api, Caller, Given) -> BoxFuture<'static, Result<Response, ApiError>> + Send + Sync>;

/// A message as OpenAPI describes it.
pub(super) struct Message {
    pub(super) name: String,
    pub(super) schema: RefOr<Schema>,
    pub(super) refers_to: Vec<(String, RefOr<Schema>)>,
}

impl Message {
    fn of<M: ToSchema>() -> Message {
        let mut refers_to = Vec::new();
        M::schemas(&mut refers_to);
        Message { name: M::name().into_owned(), schema: M::schema(), refers_to }
    }
}

/// Returns an operation with one response. `call` is the method that gRPC calls too.
pub(super) fn unary<Q, A, F, Answer>(
    method: Method,
    path: &'static str,
    rpc: &'static str,
    call: F,
) -> Operation
where
    Q: DeserializeOwned + ToSchema + Send + 'static,
    A: Serialize + ToSchema + 'static,
    F: Fn(Api, Caller, Q) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<A, ApiError>> + Send + 'static,
{
    let call = Arc::new(call);
    let handler: Handler = Arc::new(move |api, caller, given| {
        let call = call.clone();
        Box::pin(async move {
            let answer = call(api, caller, given.read::<Q>()?).await?;
            Ok(Json(answer).into_response())
        })
    });
    operation::<Q, A>(method, path, rpc, false, handler)
}

/// Returns an operation that answers with a stream of frames.
pub(super) fn watch<Q, A, F, Answer, S>(path: &'static str, rpc: &'static str, call: F) -> Operation
where
    Q: DeserializeOwned + ToSchema + Send + 'static,
    A: Frame + ToSchema + 'static,
    F: Fn(Api, Caller, Q) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<S, ApiError>> + Send + 'static,
    S: Stream<Item = Result<A, ApiError>> + Send + 'static,
{
    let call = Arc::new(call);
    let handler: Handler = Arc::new(move |api, caller, given| {
        let call = call.clone();
        Box::pin(async move {
            let frames = call(api.clone(), caller.clone(), given.read::<Q>()?).await?;
            Ok(sse::respond(api.until_ended(caller, frames)))
        })
    });
    operation::<Q, A>(Method::GET, path, rpc, true, handler)
}

fn operation<Q: ToSchema, A: ToSchema>(
    method: Method,
    path: &'static str,
    rpc: &'static str,
    streams: bool,
    handler: Handler,
) -> Operation {
    let (request, response) = (Message::of::<Q>(), Message::of::<A>());
    let binding = Binding::new(&method, path, &request);
    Operation { method, path, id: rpc, rpc, binding, request, response, streams, handler }
}

impl Operation {
    /// Gives the second operation of an rpc its own name.
    #[must_use]
    pub(super) fn named(self, id: &'static str) -> Operation {
        Operation { id, ..self }
    }

    /// Removes a parameter of the query, or a field of the body, that has no meaning for this operation.
    ///
    /// # Panics
    /// If the operation does not have it.
    #[must_use]
    pub(super) fn without(mut self, parameter: &str) -> Operation {
        let removed = match &mut self.request.schema {
            RefOr::T(Schema::Object(object)) if self.binding.has_body => {
                object.properties.remove(parameter).is_some()
            }
            RefOr::T(_) | RefOr::Ref(_) => self.binding.query.remove(parameter).is_some(),
        };
        assert!(removed, "{} has no parameter {parameter}", self.id);
        self
    }
}
