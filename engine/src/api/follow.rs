//! Streams events from a place on: first from the tables, then live from the commit feed, and from the tables again if
//! the reader was too slow. Every event has a place, and only events after the last place are sent, so no event is lost
//! or sent twice.

use super::event_filter::{EventFilter, VisibleEvents};
use super::{Api, LOOKED_AT};
use crate::events::commit::Commit;
use crate::lifecycle::engine::Engine;
use crate::readmodel::queries::EventQuery;
use crate::readmodel::rows::Place;
use crate::runtime::account_feeds::AccountFeed;
use crate::wire::cursor::Cursor;
use crate::wire::status::{ApiError, Code};
use futures_util::{Stream, stream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;

/// Events of one frame at most; a frame stays well below what a client takes.
const FRAME_EVENTS: usize = 1000;
/// While things happen elsewhere, a frame moves the cursor so often.
const BOOKMARK: Duration = Duration::from_secs(1);
/// While nothing happens at all, a frame says that the stream lives.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// Returns the answer to a cursor whose next events are no longer kept.
pub(super) fn not_kept(first_event: u64) -> ApiError {
    ApiError::new(Code::Gone).saying(format!(
        "events before command {first_event} are no longer kept; list what there is and start anew"
    ))
}

/// The events of one frame, and the place up to which the stream has looked.
pub(super) struct Frame {
    pub(super) found_events: Vec<VisibleEvents>,
    pub(super) place: Place,
}

/// The events that a frame has so far.
#[derive(Default)]
struct Events {
    found_events: Vec<VisibleEvents>,
    count: usize,
}

impl Events {
    fn extend(&mut self, found_events: impl IntoIterator<Item = VisibleEvents>) {
        let before = self.found_events.len();
        self.found_events.extend(found_events);
        self.count += self.found_events[before..].iter().map(VisibleEvents::count).sum::<usize>();
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Begins behind `place`; the first frame comes at once, that its reader has a place.
pub(super) fn follow(
    api: Api,
    filter: EventFilter,
    live: Live,
    place: Place,
) -> impl Stream<Item = Result<Frame, ApiError>> + Send + use<> {
    let behind = (place < (live.began, Cursor::ALL)).then_some(live.began);
    let follow = Follow { api, filter, live: live.commits, place, behind, held: None, last: None };
    stream::try_unfold(follow, |mut follow| async {
        let frame = follow.next().await?;
        Ok(Some((frame, follow)))
    })
}

/// Live commits. Subscribe before you read the place to start from: a watch that starts at the end then misses
/// nothing and reads no table.
pub(super) struct Live {
    commits: Commits,
    /// All that comes behind this command is heard.
    began: u64,
}

enum Commits {
    /// All commits, one behind the other.
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
        // Both asked for behind the line above.
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

    /// Up to here commits were left out because they are of no concern.
    fn looked(&self) -> u64 {
        match self {
            Commits::All(_) => 0,
            Commits::Own(feed) => feed.looked(),
        }
    }
}

struct Follow {
    api: Api,
    filter: EventFilter,
    live: Commits,
    /// Everything up to and with it has been looked at.
    place: Place,
    /// The table has to be read up to this command first.
    behind: Option<u64>,
    /// A commit that is not used up.
    held: Option<Arc<Commit>>,
    /// The last frame: when it was, and up to where.
    last: Option<(Instant, Place)>,
}

impl Follow {
    async fn next(&mut self) -> Result<Frame, ApiError> {
        let mut events = Events::default();
        loop {
            match self.behind {
                Some(target) => self.read_table(target, &mut events).await?,
                None => self.hear(&mut events).await?,
            }
            let more_at_once = self.behind.is_none() && (self.held.is_some() || !self.live.is_empty());
            let full = events.count >= FRAME_EVENTS;
            if full || !events.is_empty() && !more_at_once || events.is_empty() && self.owes_bookmark() {
                self.last = Some((Instant::now(), self.place));
                return Ok(Frame { found_events: events.found_events, place: self.place });
            }
        }
    }

    /// Returns when the next frame is due, whatever it holds.
    fn frame_due(&self) -> Option<Instant> {
        let (at, place) = self.last?;
        let moved = self.place > place;
        // Who watches everything follows the market command by command.
        let at_once = moved && self.filter.is_everything();
        Some(if at_once { at } else { at + if moved { BOOKMARK } else { SIGN_OF_LIFE } })
    }

    fn owes_bookmark(&self) -> bool {
        self.frame_due().is_none_or(|due| due <= Instant::now())
    }

    /// One page of the table.
    async fn read_table(&mut self, target: u64, events: &mut Events) -> Result<(), ApiError> {
        let engine = self.api.engine();
        engine.wait_projected(target).await;
        if self.filter.looks_for_labels() {
            self.api.labels_written(target).await;
        }
        // Before the page is read: the page has all of what is written by then. The tables are asked themselves: they
        // may have lost what they had, and the place does not move past what was not seen.
        let tables = &engine.read_model().tables;
        let extent = tables.extent().await?;
        let known = (engine.projected().min(extent.watermark), Cursor::ALL);
        if known.0 < target {
            return Err(
                ApiError::new(Code::Unavailable).saying("the events are not written yet, or not any more")
            );
        }
        let query =
            EventQuery { after: Some(self.place), limit: FRAME_EVENTS as u32, ..self.filter.query.clone() };
        let page = engine.read_model().event_page(&query, LOOKED_AT).await?;
        // Now, because rows may have been dropped while the page was read.
        let extent = tables.extent().await?;
        if !extent.has_events_after(self.place) {
            return Err(not_kept(extent.first_event));
        }
        if let Some(last) = page.events.last() {
            self.place = (last.seq.0, last.index);
        }
        match page.stopped_at {
            Some(place) => self.place = place,
            None if page.events.len() < FRAME_EVENTS => self.place = self.place.max(known),
            None => {}
        }
        let seen = page.events.into_iter().filter_map(|row| self.filter.seen(row.event, &row.parties));
        events.extend(seen.map(VisibleEvents::Own));
        if self.place >= (target, Cursor::ALL) {
            self.behind = None;
        }
        Ok(())
    }

    /// Waits for the next commit, or until a frame is due.
    async fn hear(&mut self, events: &mut Events) -> Result<(), ApiError> {
        if let Some(commit) = self.held.take() {
            return self.take(commit, events).await;
        }
        // A first frame, and one that holds something already, do not wait.
        let heard = if self.last.is_none() || !events.is_empty() {
            match self.live.receiver().try_recv() {
                Ok(commit) => Ok(commit),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Closed) => Err(RecvError::Closed),
                Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
            }
        } else {
            let due = self.look_around_at();
            tokio::select! {
                heard = self.live.receiver().recv() => heard,
                () = tokio::time::sleep_until(due) => {
                    self.look_around();
                    return Ok(());
                }
            }
        };
        match heard {
            Ok(commit) => self.take(commit, events).await?,
            Err(RecvError::Lagged(_)) => self.behind = Some(self.api.engine().applied()),
            Err(RecvError::Closed) => {
                return Err(
                    ApiError::new(Code::Unavailable).saying("the exchange has stopped; go on elsewhere")
                );
            }
        }
        Ok(())
    }

    /// Returns when to look around, if nothing is heard.
    fn look_around_at(&self) -> Instant {
        let due = self.frame_due().unwrap_or_else(Instant::now);
        match self.live {
            Commits::All(_) => due,
            // That others go on is not heard.
            Commits::Own(_) => due.min(Instant::now() + BOOKMARK),
        }
    }

    /// Nothing was heard for a while.
    fn look_around(&mut self) {
        // Before it is asked whether something waits: what was sent by then is received, or waits.
        let (looked, applied) = (self.live.looked(), self.api.engine().applied());
        if !self.live.is_empty() {
            return;
        }
        match self.live {
            Commits::Own(_) => self.place = self.place.max((looked, Cursor::ALL)),
            // A commit may have been sent just before we listened, and applied just after we read the end.
            Commits::All(_) if self.place < (applied, Cursor::ALL) => self.behind = Some(applied),
            Commits::All(_) => {}
        }
    }

    async fn take(&mut self, commit: Arc<Commit>, events: &mut Events) -> Result<(), ApiError> {
        let (before, last) = (commit.first_seq().0 - 1, commit.last_seq().0);
        if self.place >= (last, Cursor::ALL) {
            return Ok(());
        }
        if matches!(self.live, Commits::All(_)) && self.place < (before, Cursor::ALL) {
            // Something is missing in between.
            self.behind = Some(before);
            self.held = Some(commit);
            return Ok(());
        }
        let labels = match self.filter.looks_for_labels() {
            true => Some(self.api.labels_in(&commit).await?),
            false => None,
        };
        let (found_events, place) =
            self.filter.pick(&commit, labels, self.place, FRAME_EVENTS - events.count);
        self.place = place;
        events.extend(found_events);
        if self.place < (last, Cursor::ALL) {
            self.held = Some(commit);
        }
        Ok(())
    }
}
