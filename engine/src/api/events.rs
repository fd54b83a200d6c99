//! Reads of events: a stream of them, or a page.

use super::billing::{known, period};
use super::event_filter::{EventFilter, VisibleEvents};
use super::follow::{Live, follow, not_kept};
use super::{Api, LOOKED_AT};
use crate::auth::caller::Caller;
use crate::readmodel::queries::EventQuery;
use crate::readmodel::rows::{EventPlace, EventRow};
use crate::wire::cursor::Cursor;
use crate::wire::page;
use crate::wire::pieces::Pieces;
use crate::wire::status::{ApiError, Code};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use kubebid_proto::v1;
use prost::Message;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

impl Api {
    /// WatchEvents: streams the events that the caller asks for and may see, after a cursor or from
    /// the present on.
    pub async fn watch_events(
        &self,
        caller: &Caller,
        request: v1::WatchEventsRequest,
    ) -> Result<impl Stream<Item = Result<v1::WatchEventsResponse, ApiError>> + Send + use<>, ApiError> {
        let frames = self.watch_event_frames(caller, request).await?;
        Ok(frames.map(|frame| frame.map(EventFrame::into_message)))
    }

    /// Works like [`Api::watch_events`], for protocols that send the frames on as bytes.
    pub(crate) async fn watch_event_frames(
        &self,
        caller: &Caller,
        request: v1::WatchEventsRequest,
    ) -> Result<impl Stream<Item = Result<EventFrame, ApiError>> + Send + use<>, ApiError> {
        if request.from_start && !request.cursor.is_empty() {
            return Err(ApiError::bad_field("from_start", "does not go together with a cursor"));
        }
        let filter = EventFilter::new(caller, request.filter)?;
        let live = Live::listen(self.engine(), &filter);
        let from = match self.place_of(&request.cursor).await? {
            Some(from) => from,
            None if request.from_start => {
                let extent = self.engine().read_model().tables.extent().await?;
                extent.before_first_event()
            }
            // Without a cursor the watch starts after the last command of the exchange, and
            // does not repeat what the caller already knows. The exchange answers commands a
            // moment before they count as applied.
            None => (self.engine().ask(|exchange| exchange.seq().0).await?, Cursor::ALL),
        };
        let journal = self.engine().journal_id();
        let reader = Arc::clone(&caller.session.limit_state);
        let frames = follow(self.clone(), reader, filter, live, from);
        Ok(frames.map(move |frame| {
            let frame = frame?;
            let (seq, index) = frame.place;
            Ok(EventFrame {
                found_events: frame.found_events,
                rest: v1::WatchEventsResponse {
                    events: Vec::new(),
                    cursor: Cursor { journal, seq, index }.to_string(),
                    seq: if index == Cursor::ALL { seq } else { seq - 1 },
                },
            })
        }))
    }

    /// ListEvents: returns a page of the events that the caller asks for and may see.
    ///
    /// # Errors
    /// `GONE` if events after the cursor are no longer kept.
    pub async fn list_events(
        &self,
        caller: &Caller,
        request: v1::ListEventsRequest,
    ) -> Result<v1::ListEventsResponse, ApiError> {
        let size = page::size(request.page_size);
        let filter = EventFilter::new(caller, request.filter)?;
        let (from, to) = period(request.from_us, request.to_us)?;
        let page_before: Option<PageEnd> = page::after(&request.page_token)?;
        let cursor = self.place_of(&request.cursor).await?;
        let _turn = self.turn_to_read(caller, request.min_seq).await?;
        let seq = self.engine().projected();
        let query = EventQuery {
            after: page_before.map(|end| end.0).or(cursor),
            from,
            to,
            newest_first: request.newest_first,
            limit: size + 1,
            ..filter.query.clone()
        };
        let page = self.engine().read_model().event_page(&query, LOOKED_AT).await?;
        if let Some(after) = query.after.filter(|_| !query.newest_first) {
            // Checked only here, because rows may have been dropped while the page was read.
            let extent = self.engine().read_model().tables.extent().await?;
            if !extent.has_events_after(after) {
                return Err(not_kept(extent.first_event));
            }
        }
        let mut rows = page.events;
        let place = |row: &EventRow| PageEnd((row.seq.0, row.index));
        // A search that stopped at the most events that one request may examine is continued there.
        let end = page::truncate(&mut rows, size, place).or(page.stopped_at.map(PageEnd));
        let last = rows.last().map_or(PageEnd((seq, Cursor::ALL)), place);
        let found =
            rows.into_iter().filter_map(|row| Some((place(&row), filter.seen(row.event, &row.parties)?)));
        let (events, end) = page::fill(found, end);
        let (journal, PageEnd((last_seq, index))) = (self.engine().journal_id(), end.unwrap_or(last));
        Ok(v1::ListEventsResponse {
            seq,
            events,
            next_page_token: end.map(page::token).unwrap_or_default(),
            cursor: Cursor { journal, seq: last_seq, index }.to_string(),
        })
    }

    /// Returns the place that a cursor names in this journal, or None if the cursor is empty.
    pub(super) async fn place_of(&self, cursor: &str) -> Result<Option<EventPlace>, ApiError> {
        if cursor.is_empty() {
            return Ok(None);
        }
        let cursor = Cursor::parse(cursor).map_err(|error| ApiError::bad_field("cursor", error))?;
        if cursor.journal != self.engine().journal_id() {
            return Err(Code::Gone.into());
        }
        // A frame is sent a moment before its commit counts as applied. Only the exchange knows
        // for certain.
        if cursor.seq > self.engine().applied() {
            let head = self.engine().ask(|exchange| exchange.seq().0).await?;
            if cursor.seq > head {
                return Err(Code::Gone.into());
            }
        }
        let extent = self.engine().read_model().tables.extent().await?;
        if !extent.has_events_after((cursor.seq, cursor.index)) {
            return Err(not_kept(extent.first_event));
        }
        Ok(Some((cursor.seq, cursor.index)))
    }
}

/// A message of WatchEvents, whose events many watches may share.
#[derive(Debug)]
pub(crate) struct EventFrame {
    found_events: Vec<VisibleEvents>,
    /// The rest of the message, without events.
    rest: v1::WatchEventsResponse,
}

impl EventFrame {
    fn into_message(self) -> v1::WatchEventsResponse {
        let events = self.found_events.iter().flat_map(VisibleEvents::events).cloned().collect();
        v1::WatchEventsResponse { events, ..self.rest }
    }

    /// Encodes the message. Events that are seen in full are encoded once for all viewers.
    pub(crate) fn encode(&self) -> Vec<Bytes> {
        let shared = |visible: &&VisibleEvents| matches!(visible, VisibleEvents::Run(..));
        let own: usize =
            self.found_events.iter().filter(|visible| !shared(visible)).map(VisibleEvents::count).sum();
        let mut frame = Pieces::with_capacity(128 * (1 + own));
        for visible in &self.found_events {
            visible.encode(&mut frame);
        }
        self.rest.encode(frame.own()).expect("a vector grows");
        frame.finish()
    }
}

/// The last place of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageEnd(pub(super) EventPlace);

impl fmt::Display for PageEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seq, index) = self.0;
        write!(f, "{seq}.{index}")
    }
}

impl FromStr for PageEnd {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<PageEnd, Self::Err> {
        let (seq, index) = text.split_once('.').unwrap_or((text, ""));
        Ok(PageEnd((known(seq.parse()?), index.parse()?)))
    }
}

#[cfg(test)]
mod tests {
    use kubebid_core::EventKind;
    use prost::Message;
    use prost_types::FileDescriptorSet;

    #[test]
    fn the_kinds_are_those_of_the_proto() {
        let set = FileDescriptorSet::decode(kubebid_proto::FILE_DESCRIPTOR_SET).unwrap();
        let mut messages = set.file.iter().flat_map(|file| &file.message_type);
        let event = messages.find(|message| message.name() == "Event").unwrap();
        let kinds: Vec<&str> = event
            .field
            .iter()
            .filter(|field| field.oneof_index.is_some())
            .map(|field| field.name())
            .collect();
        assert_eq!(kinds, EventKind::ALL.iter().map(|kind| kind.word()).collect::<Vec<_>>());
    }
}
