//! What every client finds: reflection, health, metrics, REST on the same port, and an orderly stop.

use crate::world::{World, bid};
use kubebid_engine::api::ApiOptions;
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::server::{ServeError, Server, ServerConfig, TlsFiles};
use kubebid_engine::store::{StoreLocation, StoreOptions};
use kubebid_engine::{Engine, EngineOptions};
use kubebid_proto::v1;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Sends a GET over HTTP/1. Returns the status and the body.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

/// Lists the services by one version of reflection.
macro_rules! services {
    ($world:expr, $version:ident) => {{
        use tonic_reflection::pb::$version as pb;
        let mut client =
            pb::server_reflection_client::ServerReflectionClient::new($world.nobody().channel.clone());
        let request = pb::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(pb::server_reflection_request::MessageRequest::ListServices(String::new())),
        };
        let mut answers =
            client.server_reflection_info(tokio_stream::iter([request])).await.unwrap().into_inner();
        let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
        let pb::server_reflection_response::MessageResponse::ListServicesResponse(list) = answer else {
            panic!("{answer:?}")
        };
        list.service.into_iter().map(|service| service.name).collect::<Vec<String>>()
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_lists_all_services() {
    let world = World::start().await;
    for names in [services!(world, v1), services!(world, v1alpha)] {
        for service in ["Bid", "Allocation", "Offer", "Market", "Event", "Billing", "Admin"] {
            let name = format!("kubebid.auction.v1.{service}Service");
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        assert!(names.contains(&"grpc.health.v1.Health".to_owned()));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_served_by_grpc_and_on_its_own_port() {
    let world = World::start().await;
    let mut health = HealthClient::new(world.nobody().channel.clone());
    for service in ["", "kubebid.auction.v1.BidService", "kubebid.auction.v1.MarketService"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let status = health.check(request).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service}");
    }
    assert_eq!(get(world.ops, "/livez").await.0, 200);
    assert_eq!(get(world.ops, "/readyz").await.0, 200);
    world.tenant("t1").await.place(bid(100)).await.unwrap();
    let (status, metrics) = get(world.ops, "/metrics").await;
    assert_eq!(status, 200);
    for name in
        ["kubebid_commands_total", "kubebid_requests_total{", "kubebid_commit_duration_seconds_bucket"]
    {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
    assert_eq!(get(world.address, "/metrics").await.0, 404);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rest_is_on_the_same_port() {
    let world = World::start().await;
    let (status, document) = get(world.address, "/openapi.json").await;
    assert_eq!(status, 200);
    assert!(document.contains("\"openapi\":\"3.1"), "{}", &document[..200]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_used_if_it_is_configured() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = TlsFiles { certificates: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
    std::fs::write(&files.certificates, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let broken = TlsFiles { key: files.certificates.clone(), ..files.clone() };
    let config = |tls| ServerConfig { tls: Some(tls), ops: None, ..World::config(ApiOptions::default()) };
    assert!(matches!(Server::bind(config(broken)).await, Err(ServeError::Tls(_))));
    let empty = TlsFiles { certificates: folder.path().join("empty.pem"), ..files.clone() };
    std::fs::write(&empty.certificates, "").unwrap();
    let refused = Server::bind(config(empty)).await.unwrap_err().to_string();
    assert!(refused.ends_with("empty.pem: it holds no certificate in PEM"), "{refused}");

    let store = StoreOptions::new(StoreLocation::Sqlite(folder.path().join("kubebid.db")));
    let (engine, running) = Engine::start(EngineOptions::new(store, Clock::Stepped)).await.unwrap();
    let server = Server::bind(config(files)).await.unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.run(engine, running, async {
        let _ = stopped.await;
    }));
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(client));
    let name = "localhost".try_into().unwrap();
    let mut stream = connector.connect(name, stream).await.unwrap();
    stream.write_all(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_ends_streams_and_stops_in_order() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let mut events = t1.events().watch_events(v1::WatchEventsRequest::default()).await.unwrap().into_inner();
    let placed = t1.place(bid(100)).await.unwrap();
    let (address, engine) = (world.address, world.engine.clone());
    world.stop().await;
    let end = loop {
        match events.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ends with a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::Unavailable);
    assert!(TcpStream::connect(address).await.is_err());
    assert!(!engine.is_open());
    assert!(engine.applied() >= placed.seq);
}
