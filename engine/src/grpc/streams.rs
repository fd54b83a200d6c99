//! The methods that answer with streams.

use super::malformed::malformed;
use crate::api::Api;
use crate::caller::Caller;
use crate::wire::status::ApiError;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use kubebid_proto::v1;
use tonic::{Status, Streaming};

/// What a stream of answers is.
pub(super) type Answers<T> = BoxStream<'static, Result<T, Status>>;

/// Frames of one stream that are on their way at once, so that one is read while another becomes durable.
const FRAMES: usize = 4;

/// Each frame answered by one, in their order.
pub(super) fn place_bids(
    api: Api,
    caller: Caller,
    frames: Streaming<v1::PlaceBidsRequest>,
) -> Answers<v1::PlaceBidsResponse> {
    let guard = (api.clone(), caller.clone());
    let answers = frames
        .map(move |frame| {
            let (api, caller) = (api.clone(), caller.clone());
            async move {
                let frame =
                    frame.map_err(|status| malformed(&status).map_or(status, ApiError::into_status))?;
                Ok::<_, Status>(api.place_bid_frame(&caller, frame).await?)
            }
        })
        .buffered(FRAMES);
    let (api, caller) = guard;
    api.until_ended(caller, answers).boxed()
}

/// What a watch answers with, until it must end.
pub(super) fn answers<T: Send + 'static>(
    api: &Api,
    caller: Caller,
    frames: impl Stream<Item = Result<T, ApiError>> + Send + 'static,
) -> Answers<T> {
    api.until_ended(caller, frames).map(|frame| frame.map_err(ApiError::into_status)).boxed()
}
