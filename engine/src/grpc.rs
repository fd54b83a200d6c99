//! gRPC: every method is a few lines that call the [`Api`]; who may call it was settled at the gate.

mod gate;
mod malformed;
mod reads;
mod streams;
mod unary;

use crate::api::Api;
use crate::wire::status::{ApiError, Code};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use kubebid_proto::v1::admin_service_server::AdminServiceServer;
use kubebid_proto::v1::allocation_service_server::AllocationServiceServer;
use kubebid_proto::v1::bid_service_server::BidServiceServer;
use kubebid_proto::v1::billing_service_server::BillingServiceServer;
use kubebid_proto::v1::event_service_server::EventServiceServer;
use kubebid_proto::v1::market_service_server::MarketServiceServer;
use kubebid_proto::v1::offer_service_server::OfferServiceServer;
use std::convert::Infallible;
use std::time::Duration;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::{Service, ServiceExt};

/// The largest request.
const MESSAGE: usize = 64 * 1024;
/// The largest frame of a stream of requests.
const FRAME: usize = 4 * 1024 * 1024;
/// How often the health service looks whether the engine is open.
const HEALTH: Duration = Duration::from_millis(250);

/// All services, with health and reflection. Those on which load comes are called at once, without the
/// boxes and the search of a router.
#[derive(Clone)]
pub(crate) struct Grpc {
    api: Api,
    bids: BidServiceServer<Services>,
    /// The one method with larger messages has a server of its own.
    frames: BidServiceServer<Services>,
    markets: MarketServiceServer<Services>,
    others: Router,
}

const PLACE_BIDS: &str = "/kubebid.auction.v1.BidService/PlaceBids";
const BIDS: &str = "/kubebid.auction.v1.BidService/";
const MARKETS: &str = "/kubebid.auction.v1.MarketService/";

impl Grpc {
    pub(crate) fn new(api: Api) -> Grpc {
        let (reporter, health) = tonic_health::server::health_reporter();
        tokio::spawn(report_health(api.clone(), reporter));
        let services = Services(api.clone());
        let others = Routes::new(health)
            .add_service(AllocationServiceServer::new(services.clone()).max_decoding_message_size(MESSAGE))
            .add_service(OfferServiceServer::new(services.clone()).max_decoding_message_size(MESSAGE))
            .add_service(EventServiceServer::new(services.clone()).max_decoding_message_size(MESSAGE))
            .add_service(BillingServiceServer::new(services.clone()).max_decoding_message_size(MESSAGE))
            .add_service(AdminServiceServer::new(services.clone()).max_decoding_message_size(MESSAGE));
        Grpc {
            api,
            bids: BidServiceServer::new(services.clone()).max_decoding_message_size(MESSAGE),
            frames: BidServiceServer::new(services.clone()).max_decoding_message_size(FRAME),
            markets: MarketServiceServer::new(services).max_decoding_message_size(MESSAGE),
            others: add_reflection(others).into_axum_router(),
        }
    }

    pub(crate) async fn answer(self, request: Request) -> Response {
        let Grpc { api, bids, frames, markets, others } = self;
        let behind = |request: Request| async move {
            let answered = match request.uri().path() {
                PLACE_BIDS => called(frames, request).await,
                path if path.starts_with(BIDS) => called(bids, request).await,
                path if path.starts_with(MARKETS) => called(markets, request).await,
                _ => others.oneshot(request).await,
            };
            answered.unwrap_or_else(|never| match never {})
        };
        gate::pass(&api, request, behind).await
    }
}

async fn called<S>(mut service: S, request: Request) -> Result<Response, Infallible>
where
    S: Service<Request, Response = http::Response<tonic::body::Body>, Error = Infallible>,
{
    // Services of tonic are always ready.
    Ok(service.call(request).await?.map(Body::new))
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

/// The services serve while the engine is open.
async fn report_health(api: Api, reporter: HealthReporter) {
    let names = [
        "",
        <BidServiceServer<Services> as NamedService>::NAME,
        <AllocationServiceServer<Services> as NamedService>::NAME,
        <OfferServiceServer<Services> as NamedService>::NAME,
        <AdminServiceServer<Services> as NamedService>::NAME,
        <MarketServiceServer<Services> as NamedService>::NAME,
        <EventServiceServer<Services> as NamedService>::NAME,
        <BillingServiceServer<Services> as NamedService>::NAME,
    ];
    let mut was = None;
    loop {
        let open = api.is_open();
        if was != Some(open) {
            let status = if open { ServingStatus::Serving } else { ServingStatus::NotServing };
            for name in names {
                reporter.set_service_status(name, status).await;
            }
            was = Some(open);
        }
        if !open {
            return;
        }
        tokio::time::sleep(HEALTH).await;
    }
}

/// All services of the package.
#[derive(Clone, Debug)]
pub(crate) struct Services(Api);

/// Who asks: the gate has put it there.
fn caller<T>(request: &tonic::Request<T>) -> Result<crate::Caller, tonic::Status> {
    let caller = request.extensions().get().cloned();
    caller.ok_or_else(|| ApiError::new(Code::Internal).saying("a request went past the gate").into_status())
}
