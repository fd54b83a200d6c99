//! Streams as server-sent events: `id` is the cursor, `data` the message.

use super::problem;
use crate::wire::status::ApiError;
use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use kubebid_proto::v1;
use serde::Serialize;
use std::convert::Infallible;
use std::time::Duration;

/// The time without a message after which a comment is sent.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// One message of a stream.
pub(super) trait Frame: Serialize + Send {
    /// The name of the event.
    const NAME: &str;
    /// Returns the place to resume from after it.
    fn cursor(&self) -> &str;
}

impl Frame for v1::WatchEventsResponse {
    const NAME: &str = "events";
    fn cursor(&self) -> &str {
        &self.cursor
    }
}

impl Frame for v1::WatchPricesResponse {
    const NAME: &str = "prices";
    fn cursor(&self) -> &str {
        &self.cursor
    }
}

/// Returns the response that streams frames. A stream that fails ends with an event `problem`.
pub(super) fn respond<A: Frame>(
    frames: impl Stream<Item = Result<A, ApiError>> + Send + 'static,
) -> Response {
    let events = frames.map(|frame| Ok::<Event, Infallible>(event(frame)));
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response();
    // Tells proxies not to buffer; they would hold events back.
    response
        .headers_mut()
        .insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

fn event<A: Frame>(frame: Result<A, ApiError>) -> Event {
    match frame {
        Ok(frame) => {
            let data = serde_json::to_string(&frame).expect("messages have a JSON");
            Event::default().event(A::NAME).id(frame.cursor()).data(data)
        }
        Err(error) => Event::default().event("problem").data(problem::document(error).to_string()),
    }
}
