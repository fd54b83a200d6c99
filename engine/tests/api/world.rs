//! A running service and its callers.

use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kubebid_engine::api::ApiOptions;
use kubebid_engine::auth::bootstrap_admin;
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::server::{ConnectionLimits, Server, ServerConfig};
use kubebid_engine::store::{StoreLocation, StoreOptions};
use kubebid_engine::{Engine, EngineOptions};
use kubebid_proto::v1;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;
use v1::account_service_client::AccountServiceClient;
use v1::admin_service_client::AdminServiceClient;
use v1::allocation_service_client::AllocationServiceClient;
use v1::bid_service_client::BidServiceClient;
use v1::event_service_client::EventServiceClient;
use v1::market_service_client::MarketServiceClient;
use v1::offer_service_client::OfferServiceClient;
use v1::token::Role;

pub(crate) const MARKET: &str = "h100/eu";

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
    pub(crate) ops: SocketAddr,
    pub(crate) admin: Caller,
    channel: Channel,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    folder: TempDir,
}

/// A caller, with or without a token.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) channel: Channel,
    pub(crate) bearer: Bearer,
}

#[derive(Clone)]
pub(crate) struct Bearer(pub(crate) Option<String>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(secret) = &self.0 {
            let bearer: MetadataValue<_> = format!("Bearer {secret}").parse().unwrap();
            request.metadata_mut().insert("authorization", bearer);
        }
        Ok(request)
    }
}

pub(crate) type Called = InterceptedService<Channel, Bearer>;

impl Caller {
    pub(crate) fn called(&self) -> Called {
        InterceptedService::new(self.channel.clone(), self.bearer.clone())
    }

    pub(crate) fn bids(&self) -> BidServiceClient<Called> {
        BidServiceClient::new(self.called())
    }

    pub(crate) fn allocations(&self) -> AllocationServiceClient<Called> {
        AllocationServiceClient::new(self.called())
    }

    pub(crate) fn offers(&self) -> OfferServiceClient<Called> {
        OfferServiceClient::new(self.called())
    }

    pub(crate) fn admin(&self) -> AdminServiceClient<Called> {
        AdminServiceClient::new(self.called())
    }

    pub(crate) fn account(&self) -> AccountServiceClient<Called> {
        AccountServiceClient::new(self.called())
    }

    pub(crate) fn markets(&self) -> MarketServiceClient<Called> {
        MarketServiceClient::new(self.called())
    }

    pub(crate) fn events(&self) -> EventServiceClient<Called> {
        EventServiceClient::new(self.called())
    }

    pub(crate) async fn place(&self, bid: v1::PlaceBidRequest) -> Result<v1::PlaceBidResponse, Status> {
        self.bids().place_bid(bid).await.map(tonic::Response::into_inner)
    }

    /// Reads a bid as it is after a command.
    pub(crate) async fn bid(&self, bid: u64, min_seq: u64) -> v1::Bid {
        let request = v1::GetBidRequest { bid, min_seq };
        self.bids().get_bid(request).await.unwrap().into_inner().bid.unwrap()
    }

    pub(crate) async fn offer(&self, capacity: u32, reserve_micros: u64) -> u64 {
        self.put(capacity, reserve_micros).await.unwrap().seq
    }

    pub(crate) async fn put(
        &self,
        capacity: u32,
        reserve_micros: u64,
    ) -> Result<v1::PutOfferResponse, Status> {
        let request = v1::PutOfferRequest {
            market: MARKET.to_owned(),
            capacity,
            reserve_micros,
            ..v1::PutOfferRequest::default()
        };
        self.offers().put_offer(request).await.map(tonic::Response::into_inner)
    }
}

/// A client that sends deadlines and leaves it to the server to keep them.
pub(crate) type Patient = BidServiceClient<Client<HttpConnector, tonic::body::Body>>;

impl World {
    /// Returns the number of the last command. `applied` follows the answers a moment later.
    pub(crate) async fn seq(&self) -> u64 {
        self.engine.ask(|exchange| exchange.seq().0).await.expect("the exchange answers")
    }

    pub(crate) fn patient(&self) -> Patient {
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        BidServiceClient::with_origin(client, format!("http://{}", self.address).parse().unwrap())
    }
}

impl Caller {
    /// Returns a request of this caller with a deadline, as in "250m".
    pub(crate) fn in_time<T>(&self, message: T, timeout: &str) -> Request<T> {
        let (mut metadata, extensions, ()) = self.bearer.clone().call(Request::new(())).unwrap().into_parts();
        metadata.insert("grpc-timeout", timeout.parse().unwrap());
        Request::from_parts(metadata, extensions, message)
    }
}

/// Returns a bid for one node.
pub(crate) fn bid(ceiling_micros: u64) -> v1::PlaceBidRequest {
    v1::PlaceBidRequest {
        markets: vec![MARKET.to_owned()],
        ceiling_micros,
        max_nodes: 1,
        ..v1::PlaceBidRequest::default()
    }
}

impl World {
    pub(crate) async fn start() -> World {
        World::with(ApiOptions::default(), 16_384).await
    }

    /// Starts a service with one market.
    pub(crate) async fn with(api: ApiOptions, intake: usize) -> World {
        World::serving(World::config(api), intake).await
    }

    pub(crate) async fn serving(config: ServerConfig, intake: usize) -> World {
        let folder = tempfile::tempdir().unwrap();
        let store = StoreOptions::new(StoreLocation::Sqlite(folder.path().join("kubebid.db")));
        let options = EngineOptions { intake, ..EngineOptions::new(store, Clock::Stepped) };
        let (engine, running) = Engine::start(options).await.unwrap();
        let token = folder.path().join("admin.token");
        bootstrap_admin(engine.store(), &token).await.unwrap();
        let secret = std::fs::read_to_string(token).unwrap().trim().to_owned();
        let server = Server::bind(config).await.unwrap();
        let (address, ops) = (server.address(), server.ops_address().unwrap());
        let (stop, stopped) = oneshot::channel();
        let served = engine.clone();
        let serving = tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            server.run(served, running, shutdown).await.unwrap();
        });
        let channel = Channel::from_shared(format!("http://{address}")).unwrap();
        let channel = channel.connect().await.unwrap();
        let admin = Caller { channel: channel.clone(), bearer: Bearer(Some(secret)) };
        let world = World { engine, address, ops, admin, channel, stop, serving, folder };
        let rules = v1::MarketRules { min_runtime_us: Some(900_000_000), ..Default::default() };
        world.open(MARKET, rules).await;
        world
    }

    /// Returns a configuration with free ports.
    pub(crate) fn config(api: ApiOptions) -> ServerConfig {
        let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
        let grace = Duration::from_secs(5);
        let connections = ConnectionLimits::default();
        let (listen, cors_origins) = (loopback, Vec::new());
        ServerConfig { listen, ops: Some(loopback), tls: None, grace, connections, cors_origins, api }
    }

    pub(crate) async fn open(&self, market: &str, rules: v1::MarketRules) {
        let request = v1::OpenMarketRequest { market: market.to_owned(), rules: Some(rules) };
        self.admin.admin().open_market(request).await.unwrap();
    }

    /// Creates the account, if it does not exist, and a token for it.
    pub(crate) async fn caller(&self, account: &str, roles: &[Role]) -> Caller {
        self.limited(account, roles, v1::AccountLimits::default()).await
    }

    pub(crate) async fn limited(&self, account: &str, roles: &[Role], limits: v1::AccountLimits) -> Caller {
        self.limit(account, limits).await;
        let request = v1::CreateTokenRequest {
            account: account.to_owned(),
            roles: roles.iter().map(|role| i32::from(*role)).collect(),
            description: String::new(),
        };
        let made = self.admin.admin().create_token(request).await.unwrap().into_inner();
        Caller { bearer: Bearer(Some(made.secret)), ..self.nobody() }
    }

    pub(crate) async fn limit(&self, account: &str, limits: v1::AccountLimits) {
        let request = v1::PutAccountRequest { name: account.to_owned(), limits: Some(limits) };
        self.admin.admin().put_account(request).await.unwrap();
    }

    pub(crate) async fn tenant(&self, account: &str) -> Caller {
        self.caller(account, &[Role::Tenant]).await
    }

    pub(crate) async fn provider(&self, account: &str) -> Caller {
        self.caller(account, &[Role::Provider]).await
    }

    pub(crate) fn nobody(&self) -> Caller {
        Caller { channel: self.channel.clone(), bearer: Bearer(None) }
    }

    /// Moves the clock. Returns the number of the last command.
    pub(crate) async fn advance(&self, to_us: u64) -> u64 {
        let request = v1::AdvanceTimeRequest { to_us };
        self.admin.admin().advance_time(request).await.unwrap().into_inner().seq
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Stops the exchange's thread until the returned value is dropped.
    pub(crate) async fn hold_the_exchange(&self) -> Held {
        let (release, held) = mpsc::channel::<()>();
        let (began, has_begun) = oneshot::channel();
        let engine = self.engine.clone();
        let asked = tokio::spawn(async move {
            let _ = engine
                .ask(move |_| {
                    let _ = began.send(());
                    let _ = held.recv();
                })
                .await;
        });
        has_begun.await.unwrap();
        Held { _release: release, _asked: asked }
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        self.serving.await.unwrap();
    }
}

pub(crate) struct Held {
    _release: mpsc::Sender<()>,
    _asked: JoinHandle<()>,
}

/// A refusal as the details of a status describe it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: Code,
    pub(crate) reason: String,
    pub(crate) field: Option<String>,
    pub(crate) seq: Option<u64>,
    pub(crate) limit: Option<String>,
    pub(crate) retries: bool,
    pub(crate) message: String,
}

pub(crate) fn refused(status: &Status) -> Refused {
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no details: {status:?}"));
    assert_eq!(info.domain, "kubebid.io");
    let violation = details.bad_request().and_then(|bad| bad.field_violations.first());
    Refused {
        code: status.code(),
        reason: info.reason.clone(),
        field: violation.map(|violation| violation.field.clone()),
        seq: info.metadata.get("seq").map(|seq| seq.parse().unwrap()),
        limit: info.metadata.get("limit").cloned(),
        retries: details.retry_info().is_some(),
        message: status.message().to_owned(),
    }
}

/// Asserts that the answer is a refusal with this code.
#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(
    answer: Result<T, Status>,
    code: Code,
    reason: &str,
) -> Refused {
    let refused = refused(&answer.unwrap_err());
    assert_eq!((refused.code, &refused.reason[..]), (code, reason), "{refused:?}");
    refused
}
