//! Watches as the bytes they are on the wire, for who reads only a part of each frame.

use crate::Client;
use crate::call::{Limits, Repeat, Tries, in_time};
use crate::error::Error;
use crate::methods::MESSAGE_MAX;
use crate::v1::{WatchEventsRequest, WatchPricesRequest};
use bytes::Bytes;
use futures_util::stream::{Stream, TryStreamExt};
use kubebid_proto::Encoded;
use prost::Message;
use tonic::Status;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;

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
            Ok(opened) => Ok(opened.into_inner().map_err(move |status| over(&mut tries, status))),
            Err(status) => Err(over(&mut tries, status)),
        }
    }
}

/// What it means that the only try failed.
fn over(tries: &mut Tries, status: Status) -> Error {
    let limits = Limits { repeat: Repeat::Safe, tries: Some(1), until: None };
    tries.after(status.clone(), limits).err().unwrap_or_else(|| Error::Fault(Box::new(status)))
}
