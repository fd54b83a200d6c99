//! The filter of a watch or a list of events, limited to what the caller may see.

use super::billing::known;
use crate::auth::caller::{AccountFilter, Caller};
use crate::events::commit::Commit;
use crate::events::encoded::add;
use crate::events::message::{EventMessage, Parties};
use crate::events::visibility::{Viewer, redact};
use crate::readmodel::event_matches::EventFacts;
use crate::readmodel::queries::EventQuery;
use crate::readmodel::rows::EventPlace;
use crate::store::Labels;
use crate::wire::cursor::Cursor;
use crate::wire::echo::quoted;
use crate::wire::lists;
use crate::wire::page::Room;
use crate::wire::pieces::Pieces;
use crate::wire::status::ApiError;
use crate::wire::text;
use kubebid_core::EventKind;
use kubebid_core::event::Scope;
use kubebid_core::units::{AllocationId, BidId, MarketName, Names};
use kubebid_proto::v1;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::ops::Range;
use std::sync::Arc;

/// Events as a viewer may see them.
#[derive(Clone, Debug)]
pub(super) enum VisibleEvents {
    /// Consecutive events of a commit in full, shared with all viewers who see them in full.
    Run(Arc<Commit>, Range<usize>),
    /// Consecutive price changes of a commit, shared with all who watch prices.
    Prices(Arc<Commit>, Range<usize>),
    /// One event in full.
    Whole(Arc<EventMessage>),
    /// One event as this viewer may see it.
    Own(v1::Event),
}

impl VisibleEvents {
    /// Returns the number of events.
    pub(super) fn count(&self) -> usize {
        match self {
            VisibleEvents::Run(_, run) | VisibleEvents::Prices(_, run) => run.len(),
            VisibleEvents::Whole(_) | VisibleEvents::Own(_) => 1,
        }
    }

    pub(super) fn events(&self) -> Box<dyn Iterator<Item = &v1::Event> + '_> {
        match self {
            VisibleEvents::Run(commit, run) => {
                Box::new(commit.encoded_events().events[run.clone()].iter().map(|message| &message.event))
            }
            VisibleEvents::Prices(commit, run) => {
                let encoded_events = commit.encoded_events();
                Box::new(
                    encoded_events.prices().events[run.clone()]
                        .iter()
                        .map(|at| &encoded_events.events[*at].event),
                )
            }
            VisibleEvents::Whole(message) => Box::new(iter::once(&message.event)),
            VisibleEvents::Own(event) => Box::new(iter::once(event)),
        }
    }

    /// Returns the number of bytes of the encoded events.
    fn length(&self) -> usize {
        match self {
            VisibleEvents::Whole(message) => message.encoded().len(),
            VisibleEvents::Run(..) | VisibleEvents::Prices(..) | VisibleEvents::Own(_) => {
                self.events().map(Message::encoded_len).sum()
            }
        }
    }

    /// Appends the encoded events to a frame.
    pub(super) fn encode(&self, frame: &mut Pieces) {
        match self {
            VisibleEvents::Run(commit, run) => frame.share(commit.encoded_events().encoded(run)),
            VisibleEvents::Prices(..) => {
                self.events().for_each(|event| add(&event.encode_to_vec(), frame.own()))
            }
            VisibleEvents::Whole(message) => add(message.encoded(), frame.own()),
            VisibleEvents::Own(event) => add(&event.encode_to_vec(), frame.own()),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct EventFilter {
    viewer: Viewer,
    /// The query, without a place and a limit.
    pub(super) query: EventQuery,
    /// True if the filter selects price changes and nothing else.
    prices: bool,
}

impl EventFilter {
    pub(super) fn new(caller: &Caller, filter: Option<v1::EventFilter>) -> Result<EventFilter, ApiError> {
        let filter = filter.unwrap_or_default();
        let kinds = lists::distinct("EventFilter.kinds", "filter.kinds", filter.kinds)?;
        let markets = lists::distinct("EventFilter.markets", "filter.markets", filter.markets)?;
        let kind = |word: &String| {
            EventKind::of_word(word).ok_or_else(|| {
                let what = format!("names {}, which is not a kind of event (allocated is one)", quoted(word));
                ApiError::bad_field("filter.kinds", what)
            })
        };
        let kinds = kinds.iter().map(kind).collect::<Result<_, _>>()?;
        for name in markets.iter().chain(&filter.account) {
            text::text("filter", name, text::NOTE)?;
        }
        let account = match (filter.account, caller.sees_all()) {
            (None, true) => None,
            (account, _) => match caller.whose(account.as_deref())? {
                AccountFilter::Of(account) => Some(account.clone()),
                AccountFilter::Everybody => None,
            },
        };
        let viewer = caller.viewer();
        let bids = lists::distinct("EventFilter.bids", "filter.bids", filter.bids)?;
        let allocations =
            lists::distinct("EventFilter.allocations", "filter.allocations", filter.allocations)?;
        let query = EventQuery {
            kinds,
            markets: markets.iter().map(|name| MarketName::new(name)).collect(),
            bids: bids.into_iter().map(|bid| BidId(known(bid))).collect(),
            allocations: allocations.into_iter().map(|id| AllocationId(known(id))).collect(),
            labels: text::labels("filter.labels", filter.labels)?,
            account,
            ..EventQuery::default()
        };
        Ok(EventFilter { viewer, query, prices: false })
    }

    /// Selects price changes, which everyone may see.
    pub(super) fn prices(markets: BTreeSet<MarketName>) -> EventFilter {
        let kinds = [EventKind::PriceChanged].into();
        let query = EventQuery { kinds, markets, ..EventQuery::default() };
        EventFilter { viewer: Viewer::All, query, prices: true }
    }

    /// Returns true if neither the filter nor the rights of the caller leave anything out.
    pub(super) fn is_everything(&self) -> bool {
        matches!(self.viewer, Viewer::All) && self.query == EventQuery::default()
    }

    /// Returns true if the filter depends on the labels of bids, which are rows of the store.
    pub(super) fn looks_for_labels(&self) -> bool {
        !self.query.labels.is_empty()
    }

    /// Returns an event of the table as the caller may see it.
    pub(super) fn seen(&self, event: v1::Event, parties: &Parties) -> Option<v1::Event> {
        redact(event, parties, &self.viewer)
    }

    /// Returns the events after a place of a commit that the caller asks for, as many as there is room for, and
    /// the place up to which the commit was examined. `labels` are those of the commit's bids, if the
    /// filter depends on labels.
    pub(super) fn pick(
        &self,
        commit: &Arc<Commit>,
        labels: Option<&BTreeMap<u64, Labels>>,
        after: EventPlace,
        room: &mut Room,
    ) -> (Vec<VisibleEvents>, EventPlace) {
        let message = &commit.encoded_events().events;
        let first = message.partition_point(|message| (message.event.seq, message.event.index) <= after);
        let end = (commit.last_seq().0, Cursor::ALL);
        let place_of = |at: usize| (message[at].event.seq, message[at].event.index);
        if self.is_everything() {
            let run = first..first + room.admits_run(&commit.encoded_events().begins()[first..]);
            let place = if run.end == message.len() {
                end
            } else if run.is_empty() {
                after
            } else {
                place_of(run.end - 1)
            };
            return (vec![VisibleEvents::Run(commit.clone(), run)], place);
        }
        if self.prices {
            return self.pick_prices(commit, first, after, room);
        }
        let places = commit.encoded_events().places(self.query.account.as_ref());
        let ahead = places.filter(|at| *at >= first);
        let found = ahead.filter_map(|at| Some((at, self.look_at(&message[at], commit, labels)?)));
        let (mut found_events, mut place) = (Vec::new(), after);
        for (at, visible) in found {
            if !room.admits(visible.length()) {
                return (found_events, place);
            }
            found_events.push(visible);
            place = place_of(at);
        }
        (found_events, end)
    }

    /// Works like [`EventFilter::pick`] for price changes, from the event at the
    /// place `first` of the commit on.
    fn pick_prices(
        &self,
        commit: &Arc<Commit>,
        first: usize,
        after: EventPlace,
        room: &mut Room,
    ) -> (Vec<VisibleEvents>, EventPlace) {
        let (message, prices) = (&commit.encoded_events().events, commit.encoded_events().prices());
        let markets = &self.query.markets;
        let wanted = |change: &usize| {
            let market = message[prices.events[*change]].market.as_ref();
            markets.is_empty() || market.is_some_and(|market| markets.contains(market))
        };
        let from = prices.events.partition_point(|at| *at < first);
        let (mut runs, mut place) = (Vec::<Range<usize>>::new(), after);
        let found = |runs: Vec<Range<usize>>| {
            runs.into_iter().map(|run| VisibleEvents::Prices(commit.clone(), run)).collect()
        };
        for change in (from..prices.events.len()).filter(wanted) {
            if room.admits_run(&prices.begins()[change..=change + 1]) == 0 {
                return (found(runs), place);
            }
            let event = &message[prices.events[change]].event;
            place = (event.seq, event.index);
            match runs.last_mut() {
                Some(run) if run.end == change => run.end += 1,
                _ => runs.push(change..change + 1),
            }
        }
        (found(runs), (commit.last_seq().0, Cursor::ALL))
    }

    /// Returns an event of a commit as the caller may see it, if the caller asks for it.
    fn look_at(
        &self,
        message: &Arc<EventMessage>,
        commit: &Commit,
        labels: Option<&BTreeMap<u64, Labels>>,
    ) -> Option<VisibleEvents> {
        let facts = EventFacts {
            kind: Some(message.kind),
            market: message.market.as_ref().map(MarketName::as_str),
            allocation: message.allocation,
            parties: &message.parties,
        };
        let looks_in = |bid| {
            let markets = &self.query.markets;
            commit
                .bid(bid)
                .is_some_and(|view| markets.iter().any(|market| is_named(market, &view.scope, &commit.names)))
        };
        let has_labels = |bid: BidId| {
            let has = labels.and_then(|labels| labels.get(&bid.0));
            let mut wanted = self.query.labels.iter();
            wanted.all(|(key, value)| has.and_then(|has| has.get(key)) == Some(value))
        };
        if !self.query.matches(&facts, looks_in, has_labels) {
            return None;
        }
        Some(match &self.viewer {
            Viewer::All => VisibleEvents::Whole(message.clone()),
            Viewer::Account(_) => {
                VisibleEvents::Own(redact(message.event.clone(), &message.parties, &self.viewer)?)
            }
        })
    }
}

/// Returns true if a bid searches in a market, named directly or through its instance type.
fn is_named(market: &MarketName, scope: &Scope, names: &Names) -> bool {
    match scope {
        Scope::Markets(markets) => markets.iter().any(|id| names.market(*id) == market),
        Scope::InstanceType(kind) => market.parts().0 == kind.as_str(),
    }
}
