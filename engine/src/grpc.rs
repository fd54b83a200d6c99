//! The gRPC protocol: routing, framing, and the mapping of errors.

mod malformed;
mod methods;
mod middleware;
mod streams;
mod timed;

use crate::api::Api;
use crate::auth::caller::Caller;
use crate::auth::held::held;
use crate::auth::policy::OpenCost;
use crate::runtime::metrics::Requests;
use crate::runtime::spans;
use crate::wire::status::{ApiError, Code};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use kubebid_proto::Encoded;
use methods::{Call, METHODS};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::Status;
use tonic::codec::CompressionEncoding;
use tonic::server::Grpc;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::{ServiceExt, service_fn};

/// The largest request, in bytes.
const MESSAGE: usize = 64 * 1024;
/// The largest frame of a stream of requests, in bytes.
const FRAME: usize = 4 * 1024 * 1024;
/// The smallest answer that is compressed if the caller accepts gzip, in bytes. Requests and streams are never
/// compressed.
const LEAST_COMPRESSED: usize = 1024;
/// The interval at which the health service checks if the engine is open.
const HEALTH: Duration = Duration::from_millis(250);

/// All gRPC services, with health and reflection. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Services(Arc<Inner>);

struct Inner {
    api: Api,
    methods: HashMap<&'static str, Method>,
    /// The services for health and reflection.
    others: Router,
    counted_others: Requests,
}

struct Method {
    call: Call,
    counted: Requests,
}

/// The services that need no token.
const OTHERS: [&str; 3] = [
    "/grpc.health.v1.Health/",
    "/grpc.reflection.v1.ServerReflection/",
    "/grpc.reflection.v1alpha.ServerReflection/",
];

/// The services before an engine leads. To make them takes a while, so a standby does it in advance.
pub(crate) struct Prepared {
    methods: HashMap<&'static str, Method>,
    others: Router,
    counted_others: Requests,
    reporter: HealthReporter,
}

impl Prepared {
    pub(crate) fn new() -> Prepared {
        let (reporter, health) = tonic_health::server::health_reporter();
        let methods = METHODS.iter().map(|(path, call)| {
            let counted = Requests::of("grpc", path);
            (*path, Method { call: *call, counted })
        });
        Prepared {
            methods: methods.collect(),
            others: add_reflection(Routes::new(health)).into_axum_router(),
            counted_others: Requests::of("grpc", "other"),
            reporter,
        }
    }

    pub(crate) fn serve(self, api: Api) -> Services {
        let Prepared { methods, others, counted_others, reporter } = self;
        tokio::spawn(report_health(api.clone(), reporter));
        Services(Arc::new(Inner { api, methods, others, counted_others }))
    }
}

impl Services {
    pub(crate) async fn answer(self, request: Request) -> Response {
        let Inner { api, methods, others, counted_others } = &*self.0;
        let path = request.uri().path();
        if let Some(method) = methods.get(path) {
            let call = method.call;
            // Boxed from the beginning; otherwise each level of futures around it would copy
            // it.
            let next = |caller, request| Box::pin(called(api.clone(), call, caller, request));
            let span = spans::request("grpc", method.counted.method(), request.headers());
            return spans::within(span, middleware::pass(api, &method.counted, request, next)).await;
        }
        let path = path.to_owned();
        let answer = async {
            let slot = api.admit_anybody(request.extensions()).await?;
            if !OTHERS.iter().any(|service| path.starts_with(service)) {
                return Err(Code::UnknownMethod.into());
            }
            let answer =
                async { others.clone().oneshot(request).await.unwrap_or_else(|never| match never {}) };
            let answer = middleware::unpanicked(&path, answer).await;
            middleware::explained(held(answer, Some(slot), OpenCost::Requests(1)))
        };
        let answer = async { answer.await.unwrap_or_else(middleware::refused) };
        middleware::counted(counted_others, answer).await
    }
}

/// Returns the response to a request that is not served.
pub(crate) fn refusal(error: ApiError) -> Response {
    middleware::refused(error)
}

/// Calls a method of the [`Api`]. tonic decodes the request and encodes the response.
async fn called(api: Api, call: Call, caller: Caller, request: Request) -> Response {
    let grpc = |largest| Grpc::new(Encoded).max_decoding_message_size(largest);
    let response = match call {
        Call::Once(call) => {
            let service = service_fn(|request: tonic::Request<Bytes>| {
                let answer = call(api.clone(), caller.clone(), request.into_inner());
                async move {
                    let mut response = tonic::Response::new(answer.await?);
                    if response.get_ref().len() < LEAST_COMPRESSED {
                        response.disable_compression();
                    }
                    Ok::<_, Status>(response)
                }
            });
            let mut grpc = grpc(MESSAGE).send_compressed(CompressionEncoding::Gzip);
            grpc.unary(service, request.map(timed::body)).await
        }
        Call::Watch(call) => {
            let (watch, mut watched) = oneshot::channel();
            let mut watch = Some(watch);
            let service = service_fn(|request: tonic::Request<Bytes>| {
                let answer = call(api.clone(), caller.clone(), request.into_inner());
                let watch = watch.take();
                async move {
                    let begun = answer.await?;
                    let _ = watch.map(|watch| watch.send(begun));
                    Ok::<_, Status>(tonic::Response::new(stream::empty::<Result<Bytes, Status>>()))
                }
            });
            // tonic makes everything of the response except the body.
            let response = grpc(MESSAGE).server_streaming(service, request.map(timed::body)).await;
            return match watched.try_recv() {
                Ok(begun) => response.map(|_| streams::body(begun)),
                Err(_) => response.map(Body::new),
            };
        }
        Call::Frames(call) => {
            let service = service_fn(|request: tonic::Request<tonic::Streaming<Bytes>>| {
                let frames = call(api.clone(), caller.clone(), request.into_inner());
                async move { Ok::<_, Status>(tonic::Response::new(frames)) }
            });
            grpc(FRAME).streaming(service, request).await
        }
    };
    response.map(Body::new)
}

fn add_reflection(routes: Routes) -> Routes {
    let configured = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(kubebid_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let v1 = configured().build_v1().expect("descriptors of our own");
    let v1alpha = configured().build_v1alpha().expect("descriptors of our own");
    routes.add_service(v1).add_service(v1alpha)
}

/// Reports to the health service that the services serve, while the engine is open and leads.
async fn report_health(api: Api, reporter: HealthReporter) {
    // The empty name stands for all services together.
    let services = METHODS.iter().filter_map(|(path, _)| path.trim_start_matches('/').split_once('/'));
    let names: BTreeSet<&str> = services.map(|(service, _)| service).chain([""]).collect();
    let mut was = None;
    loop {
        let open = api.is_open() && api.engine().leads();
        if was != Some(open) {
            let status = if open { ServingStatus::Serving } else { ServingStatus::NotServing };
            for name in &names {
                reporter.set_service_status(name, status).await;
            }
            was = Some(open);
        }
        if !api.is_open() {
            return;
        }
        tokio::time::sleep(HEALTH).await;
    }
}
