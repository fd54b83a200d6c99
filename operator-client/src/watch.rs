//! Watches that resume where they broke.

use crate::Client;
use crate::call::{Limits, MESSAGE_MAX, Repeat, Tries, in_time};
use crate::error::Error;
use crate::v1::event_service_client::EventServiceClient;
use crate::v1::market_service_client::MarketServiceClient;
use crate::v1::{
    EventFilter, WatchEventsRequest, WatchEventsResponse, WatchPricesRequest, WatchPricesResponse,
};
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Extensions, Request, Response, Status, Streaming};

impl Client {
    /// Watches events from a cursor on, and then as they happen; with an empty cursor only those that follow.
    ///
    /// Frames come as the engine sends them, without what came before. A frame without events is a bookmark. The
    /// watch reopens by itself if it breaks; it ends after an error, such as [`Error::Gone`]. Until its first
    /// frame a watch without a cursor has no place: to miss nothing, begin with the cursor of a list.
    pub fn watch_events(
        &self,
        filter: Option<EventFilter>,
        cursor: impl Into<String>,
    ) -> Watch<WatchEventsResponse> {
        self.watch(WatchEventsRequest { cursor: cursor.into(), from_start: false, filter })
    }

    /// Watches events from the beginning of the journal on, as [`watch_events`](Self::watch_events).
    pub fn watch_events_from_start(&self, filter: Option<EventFilter>) -> Watch<WatchEventsResponse> {
        self.watch(WatchEventsRequest { cursor: String::new(), from_start: true, filter })
    }

    /// Watches the numbers of markets as they change: of those that are named, or of all of an instance type, or of
    /// all. Without a cursor the first frames have the present ones. Otherwise it works as
    /// [`watch_events`](Self::watch_events).
    pub fn watch_prices(&self, request: WatchPricesRequest) -> Watch<WatchPricesResponse> {
        self.watch(request)
    }

    fn watch<F: Feed>(&self, feed: F) -> Watch<F::Frame> {
        let cursor = feed.cursor().to_owned();
        let tries = Tries::new(self.clone(), None);
        let open = Open { tries, feed, seen: F::Seen::default(), stream: None, was_open: false, over: false };
        let frames = stream::unfold(open, |mut open| async move {
            if open.over {
                return None;
            }
            let frame = open.next().await;
            open.over = frame.is_err();
            Some((frame, open))
        });
        Watch { frames: frames.boxed(), cursor, cursor_of: F::cursor_of }
    }
}

/// Frames as they come, over as many connections as it takes. A [`Stream`], cancel-safe.
pub struct Watch<T> {
    frames: BoxStream<'static, Result<T, Error>>,
    cursor: String,
    cursor_of: fn(&T) -> &str,
}

impl<T> Watch<T> {
    /// Returns the next frame, or None after an error.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        StreamExt::next(self).await
    }

    /// Returns the cursor after the last frame.
    pub fn cursor(&self) -> &str {
        &self.cursor
    }
}

impl<T> Stream for Watch<T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let frame = self.frames.poll_next_unpin(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.cursor = (self.cursor_of)(frame).to_owned();
        }
        frame
    }
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

/// A request for a stream that can be made again from another place.
trait Feed: Clone + Send + Sync + 'static {
    type Frame: Send + 'static;
    /// The place of the last thing that was delivered.
    type Seen: Default + Send;

    fn cursor(&self) -> &str;
    fn cursor_of(frame: &Self::Frame) -> &str;
    fn open(
        self,
        channel: Channel,
        metadata: MetadataMap,
    ) -> impl Future<Output = Result<Response<Streaming<Self::Frame>>, Status>> + Send;
    /// Makes the next request ask for what follows the frame.
    fn go_on_after(&mut self, frame: &Self::Frame);
    /// Drops what was delivered before.
    fn sift(seen: &mut Self::Seen, frame: &mut Self::Frame);
}

/// A watch between two frames.
struct Open<F: Feed> {
    tries: Tries,
    feed: F,
    seen: F::Seen,
    stream: Option<Streaming<F::Frame>>,
    was_open: bool,
    over: bool,
}

impl<F: Feed> Open<F> {
    async fn next(&mut self) -> Result<F::Frame, Error> {
        loop {
            match self.frame().await {
                Ok(mut frame) => {
                    self.tries.reset();
                    self.feed.go_on_after(&frame);
                    F::sift(&mut self.seen, &mut frame);
                    return Ok(frame);
                }
                Err(status) => {
                    self.stream = None;
                    let tries = (!self.was_open).then_some(self.tries.client.options.tries);
                    let limits = Limits { repeat: Repeat::Safe, tries, until: None };
                    let pause = self.tries.after(status, limits)?;
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn frame(&mut self) -> Result<F::Frame, Status> {
        let options = self.tries.client.options;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let (channel, request) = self.tries.request(());
                let opening = self.feed.clone().open(channel, request.into_parts().0);
                let opened = in_time(options.timeout, opening).await?;
                self.was_open = true;
                self.stream.insert(opened.into_inner())
            }
        };
        match in_time(options.silence, stream.message()).await? {
            Some(frame) => Ok(frame),
            None => Err(Status::unavailable("the engine ended the watch")),
        }
    }
}

impl Feed for WatchEventsRequest {
    type Frame = WatchEventsResponse;
    type Seen = (u64, u32);

    fn cursor(&self) -> &str {
        &self.cursor
    }

    fn cursor_of(frame: &WatchEventsResponse) -> &str {
        &frame.cursor
    }

    async fn open(
        self,
        channel: Channel,
        metadata: MetadataMap,
    ) -> Result<Response<Streaming<WatchEventsResponse>>, Status> {
        let request = Request::from_parts(metadata, Extensions::default(), self);
        EventServiceClient::new(channel).max_decoding_message_size(MESSAGE_MAX).watch_events(request).await
    }

    fn go_on_after(&mut self, frame: &WatchEventsResponse) {
        self.cursor.clone_from(&frame.cursor);
        self.from_start = false;
    }

    fn sift(seen: &mut (u64, u32), frame: &mut WatchEventsResponse) {
        frame.events.retain(|event| {
            let place = (event.seq, event.index);
            // Commands are numbered from 1: (0, 0) comes before all events.
            let fresh = place > *seen;
            *seen = place.max(*seen);
            fresh
        });
    }
}

impl Feed for WatchPricesRequest {
    type Frame = WatchPricesResponse;
    /// The last point of each market: the present numbers of several markets are of several commands, in no order.
    type Seen = BTreeMap<String, (u64, u32)>;

    fn cursor(&self) -> &str {
        &self.cursor
    }

    fn cursor_of(frame: &WatchPricesResponse) -> &str {
        &frame.cursor
    }

    async fn open(
        self,
        channel: Channel,
        metadata: MetadataMap,
    ) -> Result<Response<Streaming<WatchPricesResponse>>, Status> {
        let request = Request::from_parts(metadata, Extensions::default(), self);
        MarketServiceClient::new(channel).max_decoding_message_size(MESSAGE_MAX).watch_prices(request).await
    }

    fn go_on_after(&mut self, frame: &WatchPricesResponse) {
        self.cursor.clone_from(&frame.cursor);
    }

    fn sift(seen: &mut Self::Seen, frame: &mut WatchPricesResponse) {
        frame.points.retain(|point| {
            let place = (point.seq, point.index);
            match seen.get_mut(&point.market) {
                Some(last) if place <= *last => false,
                Some(last) => {
                    *last = place;
                    true
                }
                None => {
                    seen.insert(point.market.clone(), place);
                    true
                }
            }
        });
    }
}
