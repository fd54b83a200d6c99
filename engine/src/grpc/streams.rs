//! The methods that answer with streams.

use super::malformed::malformed;
use super::methods::read;
use crate::api::Api;
use crate::caller::Caller;
use crate::wire::status::ApiError;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use prost::Message;
use tonic::{Status, Streaming};

/// What a stream of answers is.
pub(super) type Frames = BoxStream<'static, Result<Bytes, Status>>;

/// Frames of one stream that are on their way at once, so that one is read while another becomes durable.
const AT_ONCE: usize = 4;

/// PlaceBids: each frame answered by one, in their order.
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

/// What a watch answers with, until it must end.
pub(super) fn answers<T: Send + 'static>(
    api: &Api,
    caller: Caller,
    frames: impl Stream<Item = Result<T, ApiError>> + Send + 'static,
    encode: fn(T) -> Bytes,
) -> Frames {
    let frames = frames.map(move |frame| frame.map(encode));
    api.until_ended(caller, frames).map(|frame| frame.map_err(ApiError::into_status)).boxed()
}
