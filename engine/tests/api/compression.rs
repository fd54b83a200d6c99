//! Compressed answers: for callers who accept them, if there is something to gain, and never for streams.

use crate::world::{Caller, World, bid};
use axum::body::Body;
use flate2::read::GzDecoder;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kubebid_proto::v1;
use serde_json::Value;
use std::io::Read;
use std::net::SocketAddr;
use tonic::codec::CompressionEncoding;
use tonic::service::Interceptor;

async fn get(to: SocketAddr, path: &str, caller: &Caller, accepted: &str) -> Response<Incoming> {
    let carried = caller.bearer.clone().call(tonic::Request::new(())).unwrap();
    let request = Request::builder()
        .uri(format!("http://{to}{path}"))
        .header("authorization", carried.metadata().get("authorization").unwrap().to_str().unwrap())
        .header("accept-encoding", accepted);
    let client = Client::builder(TokioExecutor::new()).build_http();
    client.request(request.body(Body::empty()).unwrap()).await.unwrap()
}

fn encoding(response: &Response<Incoming>) -> Option<&str> {
    response.headers().get("content-encoding").map(|value| value.to_str().unwrap())
}

async fn bytes(response: Response<Incoming>) -> Vec<u8> {
    response.into_body().collect().await.unwrap().to_bytes().to_vec()
}

/// Returns a service on which this tenant has ten bids.
async fn world_with_bids() -> (World, Caller) {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let mut seq = 0;
    for _ in 0..10 {
        seq = t1.bids().place_bid(bid(1_000_000)).await.unwrap().into_inner().seq;
    }
    let request = v1::ListBidsRequest { min_seq: seq, ..v1::ListBidsRequest::default() };
    t1.bids().list_bids(request).await.unwrap();
    (world, t1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_answer_is_compressed_for_a_caller_who_accepts_it() {
    let (world, t1) = world_with_bids().await;
    let plain = get(world.address, "/v1/bids", &t1, "identity").await;
    assert_eq!(encoding(&plain), None);
    let compressed = get(world.address, "/v1/bids", &t1, "br, gzip").await;
    assert_eq!(encoding(&compressed), Some("gzip"));
    assert_eq!(compressed.headers()["content-type"], "application/json");
    let (plain, compressed) = (bytes(plain).await, bytes(compressed).await);
    assert!(compressed.len() < plain.len() / 2, "{} of {} bytes", compressed.len(), plain.len());
    let mut text = String::new();
    GzDecoder::new(&compressed[..]).read_to_string(&mut text).unwrap();
    let bids = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap()["bids"].clone();
    assert_eq!(bids(text.as_bytes()), bids(&plain));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn short_answers_and_streams_are_not_compressed() {
    let (world, t1) = world_with_bids().await;
    let short = get(world.address, "/v1/bids/999999", &t1, "gzip").await;
    assert_eq!((short.status().as_u16(), encoding(&short)), (404, None));
    let mut stream = get(world.address, "/v1/events/stream?from_start=true", &t1, "gzip").await;
    assert_eq!((stream.status().as_u16(), encoding(&stream)), (200, None));
    let first = stream.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"event: events"), "{first:?}");
    drop(stream);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documents_are_compressed_once() {
    let (world, t1) = world_with_bids().await;
    let document = get(world.address, "/openapi.json", &t1, "gzip").await;
    assert_eq!(encoding(&document), Some("gzip"));
    let compressed = bytes(document).await;
    let mut text = String::new();
    GzDecoder::new(&compressed[..]).read_to_string(&mut text).unwrap();
    assert!(text.starts_with('{') && text.len() > 4 * compressed.len(), "{} bytes", text.len());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_message_of_grpc_is_compressed_for_a_client_that_accepts_it() {
    let (world, t1) = world_with_bids().await;
    let used = |response: &tonic::Response<v1::ListBidsResponse>| {
        response.metadata().get("grpc-encoding").map(|value| value.to_str().unwrap().to_owned())
    };
    let list = |page_size| v1::ListBidsRequest { page_size, ..v1::ListBidsRequest::default() };
    let plain = t1.bids().list_bids(list(100)).await.unwrap();
    assert_eq!(used(&plain), None);
    let mut accepting = t1.bids().accept_compressed(CompressionEncoding::Gzip);
    let compressed = accepting.list_bids(list(100)).await.unwrap();
    assert_eq!(used(&compressed).as_deref(), Some("gzip"));
    assert_eq!(compressed.into_inner().bids, plain.into_inner().bids);
    world.stop().await;
}
