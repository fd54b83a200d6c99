//! Streams as encoded bytes, for programs that read only a part of each frame.

use crate::Client;
use crate::call::{Limits, MESSAGE_MAX, Repeat, Tries, in_time};
use crate::error::Error;
use crate::v1::{PlaceBidRequest, WatchEventsRequest, WatchPricesRequest};
use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt as _, TryStreamExt as _};
use kubebid_proto::Encoded;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

impl Client {
    /// The frames of WatchEvents, each an encoded `WatchEventsResponse`. Over one connection, and over with it:
    /// what [`watch_events`](Self::watch_events) does about that is not done.
    pub async fn watch_events_encoded(
        &self,
        request: &WatchEventsRequest,
    ) -> Result<impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + use<>, Error> {
        self.encoded("/kubebid.auction.v1.EventService/WatchEvents", request).await
    }

    /// The frames of WatchPrices, each an encoded `WatchPricesResponse`, as
    /// [`watch_events_encoded`](Self::watch_events_encoded).
    pub async fn watch_prices_encoded(
        &self,
        request: &WatchPricesRequest,
    ) -> Result<impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + use<>, Error> {
        self.encoded("/kubebid.auction.v1.MarketService/WatchPrices", request).await
    }

    /// The answers to frames of PlaceBids as they come, each an encoded `PlaceBidsResponse`, in the order of the
    /// frames, which [`add_bid`] makes. Over one connection, and over with it: what [`place_bids`](Self::place_bids)
    /// does about that, and about bids without a key or that there is no room for, is not done.
    pub async fn place_bids_encoded<F: Stream<Item = Bytes> + Send + 'static>(
        &self,
        frames: F,
    ) -> Result<impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + use<F>, Error> {
        let mut tries = Tries::new(self.clone(), None);
        let (channel, request) = tries.request(frames.boxed());
        match in_time(self.options.timeout, place_bids(channel, request)).await {
            Ok(answers) => Ok(answers.map_err(move |status| broken(&mut tries, status))),
            Err(status) => Err(broken(&mut tries, status)),
        }
    }

    async fn encoded<Q: Message>(
        &self,
        path: &'static str,
        request: &Q,
    ) -> Result<impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + use<Q>, Error> {
        let mut tries = Tries::new(self.clone(), None);
        let (channel, request) = tries.request(request.encode_to_vec().into());
        let opening = async {
            let mut stub = Grpc::new(channel).max_decoding_message_size(MESSAGE_MAX);
            stub.ready().await.map_err(|error| Status::from_error(error.into()))?;
            stub.server_streaming(request, PathAndQuery::from_static(path), Encoded).await
        };
        match in_time(self.options.timeout, opening).await {
            Ok(opened) => Ok(opened.into_inner().map_err(move |status| broken(&mut tries, status))),
            Err(status) => Err(broken(&mut tries, status)),
        }
    }
}

/// Adds a bid to what is encoded of a frame of PlaceBids.
pub fn add_bid(bid: &PlaceBidRequest, frame: &mut Vec<u8>) {
    prost::encoding::message::encode(BIDS, bid, frame);
}

/// The field of `PlaceBidsRequest` that the bids are in.
const BIDS: u32 = 1;

/// Opens a stream of frames; their answers.
pub(crate) async fn place_bids(
    channel: Channel,
    frames: Request<impl Stream<Item = Bytes> + Send + 'static>,
) -> Result<Streaming<Bytes>, Status> {
    let mut stub = Grpc::new(channel).max_decoding_message_size(MESSAGE_MAX);
    stub.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let path = PathAndQuery::from_static("/kubebid.auction.v1.BidService/PlaceBids");
    Ok(stub.streaming(frames, path, Encoded).await?.into_inner())
}

/// Returns what it means that the only try of a call failed.
pub(crate) fn over(client: &Client, status: Status) -> Error {
    let mut tries = Tries::new(client.clone(), None);
    // It was the first, and it was made.
    let _ = tries.request(());
    broken(&mut tries, status)
}

/// Returns what it means that the only try failed.
fn broken(tries: &mut Tries, status: Status) -> Error {
    let limits = Limits { repeat: Repeat::Safe, tries: Some(1), until: None };
    tries.after(status.clone(), limits).err().unwrap_or_else(|| Error::Fault(Box::new(status)))
}
