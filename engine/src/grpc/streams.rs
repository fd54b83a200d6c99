//! The methods that answer with streams.

use super::malformed::malformed;
use super::methods::read;
use crate::api::Api;
use crate::auth::caller::Caller;
use crate::wire::pieces::WORTH_SHARING;
use crate::wire::status::ApiError;
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use http::{HeaderMap, HeaderValue};
use http_body_util::StreamBody;
use hyper::body::Frame;
use prost::Message;
use std::convert::Infallible;
use std::iter;
use tonic::{Status, Streaming};

/// A stream of answers.
pub(super) type Frames = BoxStream<'static, Result<Bytes, Status>>;
/// The answers of a watch: messages in pieces, which may be shared with other watches.
pub(super) type Watched = BoxStream<'static, Result<Vec<Bytes>, Status>>;

/// The number of frames of one stream that are in progress at once, so that one is read while another
/// becomes durable.
const AT_ONCE: usize = 4;

/// Answers PlaceBids: one response for each frame, in order.
pub(super) fn place_bids(api: Api, caller: Caller, frames: Streaming<Bytes>) -> Frames {
    let guard = (api.clone(), caller.clone());
    let answers = frames
        .map(move |frame| {
            let (api, caller) = (api.clone(), caller.clone());
            async move {
                let frame =
                    frame.map_err(|status| malformed(&status).map_or(status, ApiError::into_status))?;
                let answer = api.place_bid_frame(&caller, read(frame)?).await?;
                Ok::<_, Status>(answer.encode_to_vec().into())
            }
        })
        .buffered(AT_ONCE);
    let (api, caller) = guard;
    api.until_ended(caller, answers).boxed()
}

/// Returns the answers of a watch until it has to end.
pub(super) fn answers<T: Send + 'static>(
    api: &Api,
    caller: Caller,
    frames: impl Stream<Item = Result<T, ApiError>> + Send + 'static,
    encode: fn(T) -> Vec<Bytes>,
) -> Watched {
    let frames = frames.map(move |frame| frame.map(encode));
    api.until_ended(caller, frames).map(|frame| frame.map_err(ApiError::into_status)).boxed()
}

/// Turns a watch into the body of its response. tonic would copy each message into a buffer of its own,
/// although a hundred watches may send the same bytes.
pub(super) fn body(watched: Watched) -> Body {
    let frames = stream::unfold(Some(watched), async |open| {
        let mut watched = open?;
        match watched.next().await {
            Some(Ok(message)) => Some((framed(message), Some(watched))),
            Some(Err(status)) => Some((vec![end(&status)], None)),
            None => Some((vec![end(&Status::ok(""))], None)),
        }
    });
    Body::new(StreamBody::new(frames.flat_map(stream::iter).map(Ok::<_, Infallible>)))
}

/// Puts before a message what gRPC requires: the flag that it is not compressed, and its length.
fn framed(message: Vec<Bytes>) -> Vec<Frame<Bytes>> {
    let length: usize = message.iter().map(Bytes::len).sum();
    let length = u32::try_from(length).expect("a message is smaller than 4 GiB");
    let mut pieces = message.into_iter().peekable();
    let own = pieces.next_if(|first| first.len() <= WORTH_SHARING).unwrap_or_default();
    let mut head = Vec::with_capacity(5 + own.len());
    head.push(0);
    head.extend_from_slice(&length.to_be_bytes());
    head.extend_from_slice(&own);
    iter::once(head.into()).chain(pieces).map(Frame::data).collect()
}

/// Returns the last item of a stream.
fn end(status: &Status) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        trailers.insert("grpc-status", HeaderValue::from_static("13"));
    }
    Frame::trailers(trailers)
}
