//! An engine that answers as a test tells it to, over a pipe in memory: no ports, and time may stand still.

use futures_util::Stream;
use futures_util::stream::BoxStream;
use hyper_util::rt::TokioIo;
use kubebid_client::v1::admin_service_server::{AdminService, AdminServiceServer};
use kubebid_client::v1::bid_service_server::{BidService, BidServiceServer};
use kubebid_client::v1::event_service_server::{EventService, EventServiceServer};
use kubebid_client::v1::market_service_server::{MarketService, MarketServiceServer};
use kubebid_client::v1::*;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt as _};

/// One call that reached the engine.
#[derive(Clone, Debug)]
pub(crate) struct Seen<Q> {
    pub(crate) request: Q,
    pub(crate) token: Option<String>,
    /// As it is on the wire.
    pub(crate) timeout: Option<String>,
    pub(crate) at: Instant,
}

/// What a method was asked, and what it is to answer: the first answer first, without one UNIMPLEMENTED.
#[derive(Debug)]
pub(crate) struct Script<Q, A> {
    pub(crate) seen: Mutex<Vec<Seen<Q>>>,
    answers: Mutex<VecDeque<Result<A, Status>>>,
}

impl<Q, A> Default for Script<Q, A> {
    fn default() -> Self {
        Script { seen: Mutex::default(), answers: Mutex::default() }
    }
}

impl<Q: Clone, A> Script<Q, A> {
    pub(crate) fn answers(&self, answers: impl IntoIterator<Item = Result<A, Status>>) {
        self.answers.lock().unwrap().extend(answers);
    }

    pub(crate) fn seen(&self) -> Vec<Seen<Q>> {
        self.seen.lock().unwrap().clone()
    }

    fn play(&self, metadata: &MetadataMap, request: Q) -> Result<A, Status> {
        let text = |name| metadata.get(name).map(|value| value.to_str().unwrap().to_owned());
        let (token, timeout) = (text("authorization"), text("grpc-timeout"));
        self.seen.lock().unwrap().push(Seen { request, token, timeout, at: Instant::now() });
        let answer = self.answers.lock().unwrap().pop_front();
        answer.unwrap_or_else(|| Err(Status::unimplemented("the script has ended")))
    }
}

/// A stream that a test feeds; it ends when its sender is dropped.
pub(crate) type Feed<T> = mpsc::UnboundedReceiver<Result<T, Status>>;

pub(crate) fn feed<T>() -> (mpsc::UnboundedSender<Result<T, Status>>, Feed<T>) {
    mpsc::unbounded_channel()
}

#[derive(Debug, Default)]
pub(crate) struct Engine {
    pub(crate) place_bid: Script<PlaceBidRequest, PlaceBidResponse>,
    pub(crate) create_token: Script<CreateTokenRequest, CreateTokenResponse>,
    pub(crate) list_bids: Script<ListBidsRequest, ListBidsResponse>,
    pub(crate) get_bid: Script<GetBidRequest, GetBidResponse>,
    /// Calls to these are answered after this long.
    pub(crate) get_bid_after: Mutex<Duration>,
    pub(crate) place_bids: Script<(), Feed<PlaceBidsResponse>>,
    /// The frames of bids, as they come.
    pub(crate) frames: Mutex<Vec<PlaceBidsRequest>>,
    pub(crate) watch_events: Script<WatchEventsRequest, Feed<WatchEventsResponse>>,
    pub(crate) watch_prices: Script<WatchPricesRequest, Feed<WatchPricesResponse>>,
    pub(crate) events: tokio::sync::Notify,
}

impl Engine {
    pub(crate) fn start() -> (Arc<Engine>, Channel) {
        let engine = Arc::new(Engine::default());
        let channel = engine.serve();
        (engine, channel)
    }

    pub(crate) fn serve(self: &Arc<Self>) -> Channel {
        let (connect, connections) = mpsc::unbounded_channel::<std::io::Result<DuplexStream>>();
        let server = Server::builder()
            .add_service(BidServiceServer::new(FakeService(self.clone())))
            .add_service(AdminServiceServer::new(FakeService(self.clone())))
            .add_service(EventServiceServer::new(FakeService(self.clone())))
            .add_service(MarketServiceServer::new(FakeService(self.clone())));
        tokio::spawn(server.serve_with_incoming(Received(connections)));
        let connector = tower::service_fn(move |_| {
            let (ours, theirs) = duplex(1 << 16);
            let sent = connect.send(Ok(theirs));
            async move { sent.map(|()| TokioIo::new(ours)).map_err(std::io::Error::other) }
        });
        Endpoint::from_static("http://engine.test").connect_with_connector_lazy(connector)
    }

    /// Listens on a port of the loopback, and says where.
    pub(crate) async fn listen(self: &Arc<Self>) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder().add_service(BidServiceServer::new(FakeService(self.clone())));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        format!("http://{address}")
    }

    /// Waits for the frames of bids to be as many as this.
    pub(crate) async fn frames(&self, count: usize) -> Vec<PlaceBidsRequest> {
        loop {
            let changed = self.events.notified();
            let frames = self.frames.lock().unwrap().clone();
            if frames.len() >= count {
                return frames;
            }
            changed.await;
        }
    }
}

/// An engine that nobody can reach.
pub(crate) fn nobody() -> Channel {
    let connector = tower::service_fn(|_| async {
        Err::<TokioIo<DuplexStream>, _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
    });
    Endpoint::from_static("http://nobody.test").connect_with_connector_lazy(connector)
}

/// A refusal as an engine makes it.
pub(crate) fn refused(
    code: Code,
    reason: &str,
    message: &str,
    field: Option<&str>,
    seq: Option<u64>,
) -> Status {
    let metadata: HashMap<String, String> =
        seq.map(|seq| ("seq".into(), seq.to_string())).into_iter().collect();
    let mut details = ErrorDetails::with_error_info(reason, "kubebid.io", metadata);
    if let Some(field) = field {
        details.add_bad_request_violation(field, message);
    }
    Status::with_error_details(code, message, details)
}

/// The intake is full.
pub(crate) fn busy(retry_after: Duration) -> Status {
    let mut details = ErrorDetails::with_error_info("BUSY", "kubebid.io", HashMap::new());
    details.set_retry_info(Some(retry_after));
    Status::with_error_details(Code::ResourceExhausted, "the intake is full", details)
}

/// A refusal of an engine that waits to lead.
pub(crate) fn not_leading() -> Status {
    let mut details = ErrorDetails::with_error_info("NOT_LEADING", "kubebid.io", HashMap::new());
    details.set_retry_info(Some(Duration::from_millis(200)));
    Status::with_error_details(Code::Unavailable, "this engine does not lead", details)
}

pub(crate) fn bid(number: u64) -> Bid {
    Bid { bid: number, labels: BTreeMap::new(), ..Default::default() }
}

struct Received<T>(mpsc::UnboundedReceiver<T>);

impl<T> Stream for Received<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}

struct FakeService(Arc<Engine>);

#[tonic::async_trait]
impl BidService for FakeService {
    type PlaceBidsStream = BoxStream<'static, Result<PlaceBidsResponse, Status>>;

    async fn place_bid(
        &self,
        request: Request<PlaceBidRequest>,
    ) -> Result<Response<PlaceBidResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.0.place_bid.play(&metadata, request).map(Response::new)
    }

    async fn get_bid(&self, request: Request<GetBidRequest>) -> Result<Response<GetBidResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let answer = self.0.get_bid.play(&metadata, request);
        let after = *self.0.get_bid_after.lock().unwrap();
        tokio::time::sleep(after).await;
        answer.map(Response::new)
    }

    async fn list_bids(
        &self,
        request: Request<ListBidsRequest>,
    ) -> Result<Response<ListBidsResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.0.list_bids.play(&metadata, request).map(Response::new)
    }

    async fn place_bids(
        &self,
        request: Request<Streaming<PlaceBidsRequest>>,
    ) -> Result<Response<Self::PlaceBidsStream>, Status> {
        let (metadata, _, mut frames) = request.into_parts();
        let answers = self.0.place_bids.play(&metadata, ())?;
        let engine = self.0.clone();
        tokio::spawn(async move {
            while let Ok(Some(frame)) = frames.message().await {
                engine.frames.lock().unwrap().push(frame);
                engine.events.notify_waiters();
            }
        });
        Ok(Response::new(Box::pin(Received(answers))))
    }

    async fn quote_bid(&self, _: Request<QuoteBidRequest>) -> Result<Response<QuoteBidResponse>, Status> {
        Err(Status::unimplemented("quote_bid"))
    }

    async fn amend_bid(&self, _: Request<AmendBidRequest>) -> Result<Response<AmendBidResponse>, Status> {
        Err(Status::unimplemented("amend_bid"))
    }

    async fn cancel_bid(&self, _: Request<CancelBidRequest>) -> Result<Response<CancelBidResponse>, Status> {
        Err(Status::unimplemented("cancel_bid"))
    }
}

#[tonic::async_trait]
impl EventService for FakeService {
    type WatchEventsStream = BoxStream<'static, Result<WatchEventsResponse, Status>>;

    async fn watch_events(
        &self,
        request: Request<WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let (metadata, _, request) = request.into_parts();
        let events = self.0.watch_events.play(&metadata, request)?;
        Ok(Response::new(Box::pin(Received(events))))
    }

    async fn list_events(
        &self,
        _: Request<ListEventsRequest>,
    ) -> Result<Response<ListEventsResponse>, Status> {
        Err(Status::unimplemented("list_events"))
    }

    async fn explain(&self, _: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        Err(Status::unimplemented("explain"))
    }
}

#[tonic::async_trait]
impl MarketService for FakeService {
    type WatchPricesStream = BoxStream<'static, Result<WatchPricesResponse, Status>>;

    async fn watch_prices(
        &self,
        request: Request<WatchPricesRequest>,
    ) -> Result<Response<Self::WatchPricesStream>, Status> {
        let (metadata, _, request) = request.into_parts();
        let prices = self.0.watch_prices.play(&metadata, request)?;
        Ok(Response::new(Box::pin(Received(prices))))
    }

    async fn list_markets(
        &self,
        _: Request<ListMarketsRequest>,
    ) -> Result<Response<ListMarketsResponse>, Status> {
        Err(Status::unimplemented("list_markets"))
    }

    async fn list_instance_types(
        &self,
        _: Request<ListInstanceTypesRequest>,
    ) -> Result<Response<ListInstanceTypesResponse>, Status> {
        Err(Status::unimplemented("list_instance_types"))
    }

    async fn get_market_price(
        &self,
        _: Request<GetMarketPriceRequest>,
    ) -> Result<Response<GetMarketPriceResponse>, Status> {
        Err(Status::unimplemented("get_market_price"))
    }

    async fn get_depth(&self, _: Request<GetDepthRequest>) -> Result<Response<GetDepthResponse>, Status> {
        Err(Status::unimplemented("get_depth"))
    }

    async fn list_price_history(
        &self,
        _: Request<ListPriceHistoryRequest>,
    ) -> Result<Response<ListPriceHistoryResponse>, Status> {
        Err(Status::unimplemented("list_price_history"))
    }
}

#[tonic::async_trait]
impl AdminService for FakeService {
    async fn create_token(
        &self,
        request: Request<CreateTokenRequest>,
    ) -> Result<Response<CreateTokenResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.0.create_token.play(&metadata, request).map(Response::new)
    }

    async fn open_market(
        &self,
        _: Request<OpenMarketRequest>,
    ) -> Result<Response<OpenMarketResponse>, Status> {
        Err(Status::unimplemented("open_market"))
    }

    async fn change_rules(
        &self,
        _: Request<ChangeRulesRequest>,
    ) -> Result<Response<ChangeRulesResponse>, Status> {
        Err(Status::unimplemented("change_rules"))
    }

    async fn close_market(
        &self,
        _: Request<CloseMarketRequest>,
    ) -> Result<Response<CloseMarketResponse>, Status> {
        Err(Status::unimplemented("close_market"))
    }

    async fn put_instance_type(
        &self,
        _: Request<PutInstanceTypeRequest>,
    ) -> Result<Response<PutInstanceTypeResponse>, Status> {
        Err(Status::unimplemented("put_instance_type"))
    }

    async fn advance_time(
        &self,
        _: Request<AdvanceTimeRequest>,
    ) -> Result<Response<AdvanceTimeResponse>, Status> {
        Err(Status::unimplemented("advance_time"))
    }

    async fn fund_account(
        &self,
        _: Request<FundAccountRequest>,
    ) -> Result<Response<FundAccountResponse>, Status> {
        Err(Status::unimplemented("fund_account"))
    }

    async fn set_budget(&self, _: Request<SetBudgetRequest>) -> Result<Response<SetBudgetResponse>, Status> {
        Err(Status::unimplemented("set_budget"))
    }

    async fn set_renewal(
        &self,
        _: Request<SetRenewalRequest>,
    ) -> Result<Response<SetRenewalResponse>, Status> {
        Err(Status::unimplemented("set_renewal"))
    }

    async fn put_account(
        &self,
        _: Request<PutAccountRequest>,
    ) -> Result<Response<PutAccountResponse>, Status> {
        Err(Status::unimplemented("put_account"))
    }

    async fn list_accounts(
        &self,
        _: Request<ListAccountsRequest>,
    ) -> Result<Response<ListAccountsResponse>, Status> {
        Err(Status::unimplemented("list_accounts"))
    }

    async fn list_tokens(
        &self,
        _: Request<ListTokensRequest>,
    ) -> Result<Response<ListTokensResponse>, Status> {
        Err(Status::unimplemented("list_tokens"))
    }

    async fn revoke_token(
        &self,
        _: Request<RevokeTokenRequest>,
    ) -> Result<Response<RevokeTokenResponse>, Status> {
        Err(Status::unimplemented("revoke_token"))
    }
}
