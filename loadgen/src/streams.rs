//! Streams of messages as bytes, so that the parts that are not read cost nothing. A stream has one connection and ends
//! with it.

use bytes::Bytes;
use futures_util::stream::{Stream, TryStreamExt as _};
use http::uri::PathAndQuery;
use kubebid_client::v1::{PlaceBidRequest, WatchEventsRequest, WatchPricesRequest};
use kubebid_client::{Client, Error};
use kubebid_proto::Encoded;
use prost::Message;
use std::time::Duration;
use tonic::Status;
use tonic::client::Grpc;
use tonic::transport::Channel;

/// The largest message that is accepted.
const MESSAGE_MAX: usize = 64 << 20;
/// The field of `PlaceBidsRequest` with the bids.
const BIDS: u32 = 1;

/// Opens a WatchEvents stream. Each frame is an encoded `WatchEventsResponse`.
///
/// # Errors
///
/// Returns the refusal, or why the stream could not be opened. The stream yields an error if it breaks.
pub async fn watch_events(
    client: &Client,
    request: &WatchEventsRequest,
) -> Result<impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + use<>, Error> {
    watch(client, "/kubebid.auction.v1.EventService/WatchEvents", request).await
}

/// Opens a WatchPrices stream. Each frame is an encoded `WatchPricesResponse`.
///
/// # Errors
///
/// Returns the refusal, or why the stream could not be opened. The stream yields an error if it breaks.
pub async fn watch_prices(
    client: &Client,
    request: &WatchPricesRequest,
) -> Result<impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + use<>, Error> {
    watch(client, "/kubebid.auction.v1.MarketService/WatchPrices", request).await
}

/// Opens a PlaceBids stream, which sends the frames that [`add_bid`] filled. Each answer is an encoded
/// `PlaceBidsResponse`; they come in the order of the frames.
///
/// # Errors
///
/// Returns why the stream could not be opened. The stream yields an error if it breaks.
pub async fn place_bids<F: Stream<Item = Bytes> + Send + 'static>(
    client: &Client,
    frames: F,
) -> Result<impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + use<F>, Error> {
    let (channel, request) = client.raw_request(frames);
    let path = PathAndQuery::from_static("/kubebid.auction.v1.BidService/PlaceBids");
    let opening = async { stub(channel).await?.streaming(request, path, Encoded).await };
    let opened = in_time(client.options().timeout, opening).await;
    let (opened, client) = (opened.map_err(|status| client.raw_error(status))?, client.clone());
    Ok(opened.into_inner().map_err(move |status| client.raw_error(status)))
}

/// Appends a bid to an encoded frame of PlaceBids.
pub fn add_bid(bid: &PlaceBidRequest, frame: &mut Vec<u8>) {
    prost::encoding::message::encode(BIDS, bid, frame);
}

async fn watch<Q: Message>(
    client: &Client,
    path: &'static str,
    request: &Q,
) -> Result<impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + use<Q>, Error> {
    let (channel, request) = client.raw_request(Bytes::from(request.encode_to_vec()));
    let path = PathAndQuery::from_static(path);
    let opening = async { stub(channel).await?.server_streaming(request, path, Encoded).await };
    let opened = in_time(client.options().timeout, opening).await;
    let (opened, client) = (opened.map_err(|status| client.raw_error(status))?, client.clone());
    Ok(opened.into_inner().map_err(move |status| client.raw_error(status)))
}

/// Waits until the connection can take a call.
pub(crate) async fn stub(channel: Channel) -> Result<Grpc<Channel>, Status> {
    let mut stub = Grpc::new(channel).max_decoding_message_size(MESSAGE_MAX);
    stub.ready().await.map_err(|error| Status::from_error(error.into()))?;
    Ok(stub)
}

/// Returns the result of a call, or DEADLINE_EXCEEDED if there is none within `timeout`.
pub(crate) async fn in_time<A>(
    timeout: Duration,
    call: impl Future<Output = Result<A, Status>>,
) -> Result<A, Status> {
    let late = || Status::deadline_exceeded(format!("no answer within {timeout:?}"));
    tokio::time::timeout(timeout, call).await.unwrap_or_else(|_| Err(late()))
}
