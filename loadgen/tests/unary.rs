//! Calls with encoded messages, tried once.

#[allow(dead_code, reason = "the tests of the client use the rest")]
#[path = "../../operator-client/tests/client/support.rs"]
mod support;

use kubebid_client::v1::{PlaceBidRequest, PlaceBidResponse};
use kubebid_client::{Client, Code, Error};
use kubebid_loadgen::unary::Unary;
use prost::Message as _;
use std::sync::Arc;
use std::time::Duration;
use support::{Engine, busy, refused};
use tokio::net::TcpSocket;
use tonic::Code as Grpc;

const PLACE_BID: &str = "/kubebid.auction.v1.BidService/PlaceBid";

async fn client(engine: &Arc<Engine>) -> Client {
    Client::builder().endpoints([engine.listen().await]).token("sesame").build().unwrap()
}

#[tokio::test]
async fn a_call_brings_its_answer_and_has_token_and_timeout() {
    let engine = Arc::new(Engine::default());
    let connection = Unary::connect(&client(&engine).await, PLACE_BID).await.unwrap();
    for bid in [7, 8] {
        let placed = PlaceBidResponse { seq: bid, bid, repeated: false };
        engine.place_bid.answers([Ok(placed)]);
        let request = PlaceBidRequest { client_key: "mine".into(), max_nodes: 3, ..Default::default() };
        let answer = connection.call(&request.encode_to_vec()).await.unwrap();
        assert_eq!(PlaceBidResponse::decode(answer), Ok(placed));
        let seen = engine.place_bid.seen().pop().unwrap();
        assert_eq!(seen.request, request);
        assert_eq!(seen.token.as_deref(), Some("Bearer sesame"));
        assert_eq!(seen.timeout.as_deref(), Some("10S"));
    }
}

#[tokio::test]
async fn a_refusal_is_that_of_other_calls_and_is_not_tried_again() {
    let engine = Arc::new(Engine::default());
    let connection = Unary::connect(&client(&engine).await, PLACE_BID).await.unwrap();
    let off_tick = refused(Grpc::InvalidArgument, "NOT_A_TICK", "not a tick", None, Some(7));
    engine.place_bid.answers([Err(off_tick), Err(busy(Duration::ZERO))]);
    let answer = connection.call(&[]).await;
    assert!(matches!(&answer, Err(Error::Refused(refusal)) if refusal.code == Code::NotATick), "{answer:?}");
    let answer = connection.call(&[]).await;
    assert!(matches!(answer, Err(Error::Busy(_))), "{answer:?}");
    assert_eq!(engine.place_bid.seen().len(), 2);
}

#[tokio::test]
async fn an_endpoint_that_is_away_is_unavailable_over_tls_too() {
    // Bound, so that nobody else has it, and not listened on.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let client = |scheme| Client::builder().endpoints([format!("{scheme}://{address}")]).build().unwrap();
    assert!(matches!(Unary::connect(&client("http"), PLACE_BID).await, Err(Error::Unavailable(_))));
    let secure = Unary::connect(&client("https"), PLACE_BID).await.unwrap();
    let answer = secure.call(&[]).await;
    assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
}
