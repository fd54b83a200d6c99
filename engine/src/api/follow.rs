//! Streams events from a place on: first from the tables, then live from the commit feed, and from the tables again if
//! the reader was too slow. Every event has a place, and only events after the last place are sent, so no event is lost
//! or sent twice.

use super::event_filter::{EventFilter, VisibleEvents};
use super::{Api, LOOKED_AT};
use crate::auth::LimitState;
use crate::events::commit::Commit;
use crate::lifecycle::engine::Engine;
use crate::readmodel::queries::EventQuery;
use crate::readmodel::rows::EventPlace;
use crate::runtime::account_feeds::AccountFeed;
use crate::wire::cursor::Cursor;
use crate::wire::page::Room;
use crate::wire::status::{ApiError, Code};
use futures_util::{Stream, stream};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;

/// The most events of one frame.
const FRAME_EVENTS: usize = 1000;
/// The interval of bookmarks, which move the cursor while only events happen that the stream leaves out.
const BOOKMARK: Duration = Duration::from_secs(1);
/// The interval of empty frames while nothing happens at all. They show that the stream is alive.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// Returns the answer to a cursor whose next events are no longer kept.
pub(super) fn not_kept(first_event: u64) -> ApiError {
    ApiError::new(Code::Gone).saying(format!(
        "events before command {first_event} are no longer kept; list what there is and start anew"
    ))
}

/// The events of one frame, and the place up to which the stream was examined.
pub(super) struct Frame {
    pub(super) found_events: Vec<VisibleEvents>,
    pub(super) place: EventPlace,
}

/// The events that a frame has so far, and the room that is left in it.
struct Events {
    found_events: Vec<VisibleEvents>,
    room: Room,
}

impl Events {
    fn none() -> Events {
        Events { found_events: Vec::new(), room: Room::new(FRAME_EVENTS) }
    }

    fn is_empty(&self) -> bool {
        self.room.is_empty()
    }
}

/// Streams the events after `place`. The first frame comes at once, so that its reader has a cursor.
pub(super) fn follow(
    api: Api,
    reader: Arc<LimitState>,
    filter: EventFilter,
    live: Live,
    place: EventPlace,
) -> impl Stream<Item = Result<Frame, ApiError>> + Send + use<> {
    let read_first = (place < (live.began, Cursor::ALL)).then_some(live.began);
    let (live, rows) = (live.commits, FRAME_EVENTS);
    let follow = Follow { api, reader, filter, live, place, read_first, rows, held: None, last: None };
    stream::try_unfold(follow, |mut follow| async {
        let frame = follow.next().await?;
        Ok(Some((frame, follow)))
    })
}

/// Live commits. Subscribe before you read the place to start from: a watch that starts at the end then
/// misses nothing and reads no table.
pub(super) struct Live {
    commits: Commits,
    /// Every commit after this command is received.
    began: u64,
}

enum Commits {
    /// All commits, without gaps.
    All(broadcast::Receiver<Arc<Commit>>),
    /// The commits that may concern the filter's account.
    Own(AccountFeed),
}

impl Live {
    pub(super) fn listen(engine: &Engine, filter: &EventFilter) -> Live {
        let commits = match &filter.query.account {
            Some(account) => Commits::Own(engine.subscribe_to(account.clone())),
            None => Commits::All(engine.subscribe()),
        };
        // Both numbers are read after the subscription above.
        let began = engine.applied().max(commits.looked());
        Live { commits, began }
    }
}

impl Commits {
    fn receiver(&mut self) -> &mut broadcast::Receiver<Arc<Commit>> {
        match self {
            Commits::All(commits) => commits,
            Commits::Own(feed) => &mut feed.commits,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Commits::All(commits) => commits.is_empty(),
            Commits::Own(feed) => feed.commits.is_empty(),
        }
    }

    /// Returns the command up to which commits were left out because they do not concern the account.
    fn looked(&self) -> u64 {
        match self {
            Commits::All(_) => 0,
            Commits::Own(feed) => feed.looked(),
        }
    }
}

struct Follow {
    api: Api,
    /// The account whose turn it must be when a table is read.
    reader: Arc<LimitState>,
    filter: EventFilter,
    live: Commits,
    /// Everything up to and including this place was examined.
    place: EventPlace,
    /// The command up to which the table has to be read first.
    read_first: Option<u64>,
    /// The number of events that are read from the table at a time: about as many as a frame has room for.
    rows: usize,
    /// A commit of which a part is still to be sent.
    held: Option<Arc<Commit>>,
    /// The last frame: its time, and the place up to which it reached.
    last: Option<(Instant, EventPlace)>,
}

impl Follow {
    async fn next(&mut self) -> Result<Frame, ApiError> {
        let mut events = Events::none();
        loop {
            match self.read_first {
                Some(target) => self.read_table(target, &mut events).await?,
                None => self.receive(&mut events).await?,
            }
            let more_at_once = self.read_first.is_none() && (self.held.is_some() || !self.live.is_empty());
            if events.room.is_full()
                || !events.is_empty() && !more_at_once
                || events.is_empty() && self.owes_bookmark()
            {
                self.last = Some((Instant::now(), self.place));
                return Ok(Frame { found_events: events.found_events, place: self.place });
            }
        }
    }

    /// Returns when the next frame is due, even if it has no events.
    fn frame_due(&self) -> Option<Instant> {
        let (at, place) = self.last?;
        let moved = self.place > place;
        // A caller who watches everything follows the market command by command.
        let at_once = moved && self.filter.is_everything();
        Some(if at_once { at } else { at + if moved { BOOKMARK } else { SIGN_OF_LIFE } })
    }

    fn owes_bookmark(&self) -> bool {
        self.frame_due().is_none_or(|due| due <= Instant::now())
    }

    /// Reads one page of the table.
    async fn read_table(&mut self, target: u64, events: &mut Events) -> Result<(), ApiError> {
        let engine = self.api.engine();
        engine.wait_projected(target).await;
        if self.filter.looks_for_labels() {
            self.api.labels_written(target).await;
        }
        // A watch waits for as long as it takes: its place is kept.
        let _turn = self.reader.reads.acquire().await;
        // The extent is read before the page, so the page has everything that was written by then.
        // It is read from the tables themselves, because they may have lost rows, and the place
        // must not move past events that were not seen.
        let tables = &engine.read_model().tables;
        let extent = tables.extent().await?;
        let known = (engine.projected().min(extent.watermark), Cursor::ALL);
        if known.0 < target {
            return Err(
                ApiError::new(Code::Unavailable).saying("the events are not written yet, or not any more")
            );
        }
        let query =
            EventQuery { after: Some(self.place), limit: self.rows as u32, ..self.filter.query.clone() };
        let page = engine.read_model().event_page(&query, LOOKED_AT).await?;
        // Read again, because rows may have been dropped while the page was read.
        let extent = tables.extent().await?;
        if !extent.has_events_after(self.place) {
            return Err(not_kept(extent.first_event));
        }
        let is_end = page.events.len() < self.rows;
        for (read, row) in page.events.into_iter().enumerate() {
            if let Some(event) = self.filter.seen(row.event, &row.parties) {
                if !events.room.admits(event.encoded_len()) {
                    self.rows = read.max(1);
                    return Ok(());
                }
                events.found_events.push(VisibleEvents::Own(event));
            }
            self.place = (row.seq.0, row.index);
        }
        self.rows = FRAME_EVENTS.min(2 * self.rows);
        match page.stopped_at {
            Some(place) => self.place = place,
            None if is_end => self.place = self.place.max(known),
            None => {}
        }
        if self.place >= (target, Cursor::ALL) {
            self.read_first = None;
        }
        Ok(())
    }

    /// Waits for the next commit, or until a frame is due.
    async fn receive(&mut self, events: &mut Events) -> Result<(), ApiError> {
        if let Some(commit) = self.held.take() {
            return self.take(commit, events).await;
        }
        // The first frame does not wait, nor does a frame that already has events.
        let received = if self.last.is_none() || !events.is_empty() {
            match self.live.receiver().try_recv() {
                Ok(commit) => Ok(commit),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Closed) => Err(RecvError::Closed),
                Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
            }
        } else {
            let due = self.look_around_at();
            tokio::select! {
                received = self.live.receiver().recv() => received,
                () = tokio::time::sleep_until(due) => {
                    self.look_around();
                    return Ok(());
                }
            }
        };
        match received {
            Ok(commit) => self.take(commit, events).await?,
            Err(RecvError::Lagged(_)) => self.read_first = Some(self.api.engine().applied()),
            Err(RecvError::Closed) => {
                return Err(
                    ApiError::new(Code::Unavailable).saying("the exchange has stopped; go on elsewhere")
                );
            }
        }
        Ok(())
    }

    /// Returns when to check the progress, if no commit arrives until then.
    fn look_around_at(&self) -> Instant {
        let due = self.frame_due().unwrap_or_else(Instant::now);
        match self.live {
            Commits::All(_) => due,
            // An account feed does not report the commits of others, so the progress has to be
            // checked.
            Commits::Own(_) => due.min(Instant::now() + BOOKMARK),
        }
    }

    /// Moves the place forward after a time in which no commit arrived.
    fn look_around(&mut self) {
        // Read before the queue is checked: everything sent by then is already received, or still
        // in the queue.
        let (looked, applied) = (self.live.looked(), self.api.engine().applied());
        if !self.live.is_empty() {
            return;
        }
        match self.live {
            Commits::Own(_) => self.place = self.place.max((looked, Cursor::ALL)),
            // A commit may have been sent just before the subscription, and applied just after
            // the end was read.
            Commits::All(_) if self.place < (applied, Cursor::ALL) => self.read_first = Some(applied),
            Commits::All(_) => {}
        }
    }

    async fn take(&mut self, commit: Arc<Commit>, events: &mut Events) -> Result<(), ApiError> {
        let (before, last) = (commit.first_seq().0 - 1, commit.last_seq().0);
        if self.place >= (last, Cursor::ALL) {
            return Ok(());
        }
        if matches!(self.live, Commits::All(_)) && self.place < (before, Cursor::ALL) {
            // Commits in between are missing.
            self.read_first = Some(before);
            self.held = Some(commit);
            return Ok(());
        }
        let labels = match self.filter.looks_for_labels() {
            true => Some(self.api.labels_in(&commit).await?),
            false => None,
        };
        let (found_events, place) = self.filter.pick(&commit, labels, self.place, &mut events.room);
        self.place = place;
        events.found_events.extend(found_events);
        if self.place < (last, Cursor::ALL) {
            self.held = Some(commit);
        }
        Ok(())
    }
}
