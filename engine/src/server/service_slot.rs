//! Holds the service once the engine leads, and passes requests to gRPC or REST. Before that it answers that the engine
//! does not lead.

use crate::api::Api;
use crate::wire::status::ApiError;
use crate::{grpc, rest};
use axum::Router;
use axum::body::Body;
use axum::http::HeaderValue;
use axum::response::Response;
use futures_util::FutureExt;
use futures_util::future::{Either, ready};
use http::header;
use hyper::body::Incoming;
use hyper::service::service_fn;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use tower::ServiceExt;

/// A service that answers the requests of a connection.
pub(super) trait Responder:
    hyper::service::Service<
        hyper::Request<Incoming>,
        Response = Response,
        Error = Infallible,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
}

impl<S> Responder for S where
    S: hyper::service::Service<
            hyper::Request<Incoming>,
            Response = Response,
            Error = Infallible,
            Future: Send + 'static,
        > + Clone
        + Send
        + 'static
{
}

/// The routes of both protocols. They are made before an engine leads, so that a standby can serve at
/// once then.
pub(super) struct Prepared {
    grpc: grpc::Prepared,
    rest: Router<Api>,
}

impl Prepared {
    pub(super) fn new() -> Prepared {
        Prepared { grpc: grpc::Prepared::new(), rest: rest::routes() }
    }
}

/// The slot of the service. It is filled once, when the engine leads. Cheap to clone.
#[derive(Clone)]
pub(super) struct ServiceSlot {
    open: Arc<OnceLock<Open>>,
    /// The answers of REST before that.
    standing_by: Router,
    cors_origins: Arc<[HeaderValue]>,
}

struct Open {
    api: Api,
    grpc: grpc::Services,
    rest: Router,
}

impl ServiceSlot {
    /// Returns an empty slot. Pages of these origins may call REST.
    pub(super) fn new(cors_origins: &[HeaderValue]) -> ServiceSlot {
        ServiceSlot {
            open: Arc::default(),
            standing_by: rest::layered(rest::standing_by(), cors_origins),
            cors_origins: cors_origins.into(),
        }
    }

    pub(super) fn open(&self, prepared: Prepared, api: Api) {
        let grpc = prepared.grpc.serve(api.clone());
        let rest = rest::layered(prepared.rest.with_state(api.clone()), &self.cors_origins);
        assert!(self.open.set(Open { api, grpc, rest }).is_ok(), "it is opened once");
    }

    /// Returns the API, or None before the engine leads.
    pub(super) fn api(&self) -> Option<&Api> {
        self.open.get().map(|open| &open.api)
    }

    pub(super) fn responder(&self) -> impl Responder {
        let (slot, standing_by) = (self.open.clone(), self.standing_by.clone());
        service_fn(move |request: hyper::Request<Incoming>| {
            let request = request.map(Body::new);
            let kind = request.headers().get(header::CONTENT_TYPE);
            let is_grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
            let Some(open) = slot.get() else {
                return Either::Left(if is_grpc {
                    Either::Left(ready(Ok(grpc::refusal(ApiError::not_leading()))))
                } else {
                    Either::Right(standing_by.clone().oneshot(request))
                });
            };
            Either::Right(if is_grpc {
                Either::Left(open.grpc.clone().answer(request).map(Ok))
            } else {
                Either::Right(open.rest.clone().oneshot(request))
            })
        })
    }
}
