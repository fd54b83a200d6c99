//! The limits of unread answers and of watches of an account.

use crate::world::{Caller, World, assert_refused};
use bytes::{BufMut, Bytes, BytesMut};
use h2::RecvStream;
use h2::client::SendRequest;
use http::{Request, Response};
use kubebid_engine::api::ApiOptions;
use kubebid_proto::v1;
use tokio::net::TcpStream;
use tonic::{Code, Status};

/// Opens a connection whose peer reads no bytes of any answer.
async fn that_reads_nothing(world: &World) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(world.address).await.unwrap();
    let (requests, connection) =
        h2::client::Builder::new().initial_window_size(0).handshake::<_, Bytes>(stream).await.unwrap();
    tokio::spawn(connection);
    requests.ready().await.unwrap()
}

/// Lists the markets, and waits for the head of the response.
async fn list(requests: &mut SendRequest<Bytes>, caller: &Caller) -> Response<RecvStream> {
    *requests = requests.clone().ready().await.unwrap();
    let request = Request::post("http://x/kubebid.auction.v1.MarketService/ListMarkets")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {}", caller.bearer.0.as_ref().unwrap()));
    let (answer, mut message) = requests.send_request(request.body(()).unwrap(), false).unwrap();
    let mut empty = BytesMut::new();
    empty.put_slice(&[0; 5]);
    message.send_data(empty.freeze(), true).unwrap();
    answer.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_count_as_open_requests() {
    let mut api = ApiOptions::default();
    api.limits.open_requests = 8;
    let world = World::with(api, 64).await;
    let (t1, t2) = (world.tenant("t1").await, world.tenant("t2").await);
    let mut requests = that_reads_nothing(&world).await;
    let mut unread = Vec::new();
    for _ in 0..8 {
        let answer = list(&mut requests, &t1).await;
        assert!(!answer.headers().contains_key("grpc-status"));
        unread.push(answer);
    }
    let refused = list(&mut requests, &t1).await;
    let status = Status::from_header_map(refused.headers()).expect("a refusal has no message");
    let refused = assert_refused(Err::<(), _>(status), Code::ResourceExhausted, "LIMIT");
    assert_eq!((refused.limit.as_deref(), refused.retries), (Some("open_requests"), true));
    t2.markets().list_markets(v1::ListMarketsRequest::default()).await.unwrap();
    drop(unread);
    // Repeats until the server has noticed that the answers are not wanted any more.
    while list(&mut requests, &t1).await.headers().contains_key("grpc-status") {}
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_a_limit_of_open_watches() {
    let mut api = ApiOptions::default();
    api.limits.watches = 2;
    let world = World::with(api, 64).await;
    let t1 = world.tenant("t1").await;
    let watch = async || t1.events().watch_events(v1::WatchEventsRequest::default()).await;
    let prices = t1.markets().watch_prices(v1::WatchPricesRequest::default()).await.unwrap();
    let events = watch().await.unwrap();
    let refused = assert_refused(watch().await, Code::ResourceExhausted, "LIMIT");
    assert_eq!((refused.limit.as_deref(), refused.retries), (Some("watches"), true));
    world.tenant("t2").await.events().watch_events(v1::WatchEventsRequest::default()).await.unwrap();
    drop(events);
    while watch().await.is_err() {}
    drop(prices);
    world.stop().await;
}
