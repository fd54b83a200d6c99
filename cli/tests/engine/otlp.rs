//! Spans of requests, as a collector gets them.

use crate::process::{Engine, sqlite, token_of};
use kubebid_client::v1::{self, token::Role};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Hands on what it is sent.
struct Collector(mpsc::UnboundedSender<(Resource, Span)>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for of_resource in request.into_inner().resource_spans {
            let resource = of_resource.resource.unwrap_or_default();
            for span in of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans) {
                let _ = self.0.send((resource.clone(), span));
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn collector() -> (SocketAddr, mpsc::UnboundedReceiver<(Resource, Span)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, spans) = mpsc::unbounded_channel();
    let server = Server::builder().add_service(TraceServiceServer::new(Collector(sender)));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    (address, spans)
}

fn value(attributes: &[KeyValue], key: &str) -> Option<Value> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.clone()?.value
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    match value(attributes, key) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?}"),
    }
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

#[tokio::test(flavor = "multi_thread")]
async fn spans_of_requests_carry_the_number_of_their_command_below_the_callers_span() {
    let (address, mut spans) = collector().await;
    let folder = tempfile::tempdir().unwrap();
    let endpoint = format!("http://{address}");
    let engine = Engine::start(&sqlite(folder.path()), folder.path(), &["--otlp-endpoint", &endpoint]);
    let admin = engine.admin().await;
    let opened = admin
        .open_market(v1::OpenMarketRequest { market: "h100/eu".into(), rules: None })
        .await
        .expect("the market opens");
    let tenant = engine.client(&token_of(&admin, "t", Role::Tenant).await);
    let bid = v1::PlaceBidRequest {
        markets: vec!["h100/eu".into()],
        ceiling_micros: 100,
        max_nodes: 1,
        ..v1::PlaceBidRequest::default()
    };
    let placed = tenant.place_bid(bid).await.expect("the bid stands");
    // By REST, from somebody who traces.
    let address = engine.endpoint();
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).await.expect("it listens");
    let request = format!(
        "GET /v1/markets HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
         traceparent: 00-{TRACE}-{PARENT}-01\r\n\r\n",
        engine.admin_token().await
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let (mut command, mut bid, mut read) = (None, None, None);
    while command.is_none() || bid.is_none() || read.is_none() {
        let span = tokio::time::timeout(Duration::from_secs(60), spans.recv()).await;
        let (resource, span) = span.expect("spans are sent in time").expect("the collector runs");
        assert_eq!(text(&resource.attributes, "service.name"), "kubebid");
        assert_eq!(text(&resource.attributes, "service.version"), env!("CARGO_PKG_VERSION"));
        match span.name.as_str() {
            "/kubebid.auction.v1.AdminService/OpenMarket" => command = Some(span),
            "/kubebid.auction.v1.BidService/PlaceBid" => bid = Some(span),
            "/kubebid.auction.v1.MarketService/ListMarkets" => read = Some(span),
            _ => {}
        }
    }
    let (command, bid, read) = (command.unwrap(), bid.unwrap(), read.unwrap());
    assert_eq!(value(&bid.attributes, "seq"), Some(Value::IntValue(placed.seq as i64)));
    assert_eq!(value(&command.attributes, "seq"), Some(Value::IntValue(opened.seq as i64)));
    assert_eq!(text(&command.attributes, "wire"), "grpc");
    assert_eq!(text(&command.attributes, "code"), "OK");
    assert_eq!(text(&read.attributes, "wire"), "rest");
    assert_eq!(value(&read.attributes, "seq"), None, "a read has no command");
    assert_eq!(hex(&read.trace_id), TRACE);
    assert_eq!(hex(&read.parent_span_id), PARENT);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
