//! What a caller looks for among the events: a filter, as far as it may see.

use super::billing::known;
use crate::caller::{Caller, Whose};
use crate::chunk::Chunk;
use crate::projections::queries::EventQuery;
use crate::projections::rows::Place;
use crate::store::Labels;
use crate::telling::add;
use crate::wire::cursor::Cursor;
use crate::wire::echo::quoted;
use crate::wire::event::{Parties, Told, Viewer, redact};
use crate::wire::lists;
use crate::wire::pieces::Pieces;
use crate::wire::status::ApiError;
use crate::wire::text;
use kubebid_core::event::Scope;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName, Names};
use kubebid_proto::v1;
use kubebid_proto::v1::event::Kind;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::ops::Range;
use std::sync::Arc;

/// The fields of `Event.kind`.
pub(super) const KINDS: [&str; 21] = [
    "market_opened",
    "rules_changed",
    "offer_put",
    "unit_added",
    "unit_leaving",
    "unit_back",
    "unit_removed",
    "bid_placed",
    "bid_amended",
    "bid_closed",
    "allocated",
    "ready",
    "notice_started",
    "notice_rescinded",
    "claimed",
    "claim_dropped",
    "ended",
    "charged",
    "price_changed",
    "rejected",
    "repeated",
];

/// What a viewer may see.
#[derive(Clone, Debug)]
pub(super) enum Sight {
    /// Events of a chunk that follow each other, in full, and shared with all who see them so.
    Run(Arc<Chunk>, Range<usize>),
    /// Changes of prices of a chunk that follow each other, shared with all who watch prices.
    Prices(Arc<Chunk>, Range<usize>),
    /// One event in full.
    Whole(Arc<Told>),
    /// One event as this viewer may see it.
    Own(v1::Event),
}

impl Sight {
    /// How many events it is.
    pub(super) fn count(&self) -> usize {
        match self {
            Sight::Run(_, run) | Sight::Prices(_, run) => run.len(),
            Sight::Whole(_) | Sight::Own(_) => 1,
        }
    }

    pub(super) fn events(&self) -> Box<dyn Iterator<Item = &v1::Event> + '_> {
        match self {
            Sight::Run(chunk, run) => {
                Box::new(chunk.telling().events[run.clone()].iter().map(|told| &told.event))
            }
            Sight::Prices(chunk, run) => {
                let telling = chunk.telling();
                Box::new(telling.prices().events[run.clone()].iter().map(|at| &telling.events[*at].event))
            }
            Sight::Whole(told) => Box::new(iter::once(&told.event)),
            Sight::Own(event) => Box::new(iter::once(event)),
        }
    }

    /// Adds the events to what is encoded of a frame.
    pub(super) fn encode(&self, frame: &mut Pieces) {
        match self {
            Sight::Run(chunk, run) => frame.share(chunk.telling().encoded(run)),
            Sight::Prices(..) => self.events().for_each(|event| add(&event.encode_to_vec(), frame.own())),
            Sight::Whole(told) => add(told.encoded(), frame.own()),
            Sight::Own(event) => add(&event.encode_to_vec(), frame.own()),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Lookout {
    viewer: Viewer,
    /// Without a place and a limit.
    pub(super) query: EventQuery,
    /// Changes of prices are looked for, and nothing else.
    prices: bool,
}

impl Lookout {
    pub(super) fn new(caller: &Caller, filter: Option<v1::EventFilter>) -> Result<Lookout, ApiError> {
        let filter = filter.unwrap_or_default();
        let kinds = lists::distinct("EventFilter.kinds", "filter.kinds", filter.kinds)?;
        let markets = lists::distinct("EventFilter.markets", "filter.markets", filter.markets)?;
        if let Some(unknown) = kinds.iter().find(|kind| !KINDS.contains(&&kind[..])) {
            let what = format!("names {}, which is no kind", quoted(unknown));
            return Err(ApiError::bad_field("filter.kinds", what));
        }
        for name in markets.iter().chain(&filter.account) {
            text::text("filter", name, text::NOTE)?;
        }
        let account = match (filter.account, caller.sees_all()) {
            (None, true) => None,
            (account, _) => match caller.whose(account.as_deref())? {
                Whose::Of(account) => Some(account.clone()),
                Whose::Everybody => None,
            },
        };
        let viewer = if caller.sees_all() { Viewer::All } else { Viewer::Account(caller.account.clone()) };
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
        Ok(Lookout { viewer, query, prices: false })
    }

    /// Changes of prices, as everyone may see them.
    pub(super) fn prices(markets: BTreeSet<MarketName>) -> Lookout {
        let kinds = ["price_changed".to_owned()].into();
        let query = EventQuery { kinds, markets, ..EventQuery::default() };
        Lookout { viewer: Viewer::All, query, prices: true }
    }

    /// Nothing is left out, neither by the filter nor by what the caller may see.
    pub(super) fn is_everything(&self) -> bool {
        matches!(self.viewer, Viewer::All) && self.query == EventQuery::default()
    }

    /// Returns whether it depends on the labels of bids, which are rows of the store.
    pub(super) fn looks_for_labels(&self) -> bool {
        !self.query.labels.is_empty()
    }

    /// An event of the table, as the caller may see it.
    pub(super) fn seen(&self, event: v1::Event, parties: &Parties) -> Option<v1::Event> {
        redact(event, parties, &self.viewer)
    }

    /// What the caller looks for in a chunk behind a place, and up to which place that is all; `most` events at most.
    /// `labels` are those of the chunk's bids, if it looks for labels.
    pub(super) fn pick(
        &self,
        chunk: &Arc<Chunk>,
        labels: Option<&BTreeMap<u64, Labels>>,
        behind: Place,
        most: usize,
    ) -> (Vec<Sight>, Place) {
        let told = &chunk.telling().events;
        let behind = told.partition_point(|told| (told.event.seq, told.event.index) <= behind);
        let end = (chunk.last_seq().0, Cursor::ALL);
        let place_of = |at: usize| (told[at].event.seq, told[at].event.index);
        if self.is_everything() {
            let run = behind..told.len().min(behind + most);
            let place = if run.end < told.len() { place_of(run.end - 1) } else { end };
            return (vec![Sight::Run(chunk.clone(), run)], place);
        }
        if self.prices {
            return self.pick_prices(chunk, behind, most);
        }
        let places = chunk.telling().places(self.query.account.as_ref());
        let ahead = places.filter(|at| *at >= behind);
        let mut found = ahead.filter_map(|at| Some((at, self.look_at(&told[at], chunk, labels)?)));
        let (mut sights, mut last) = (Vec::new(), None);
        while sights.len() < most {
            let Some((at, sight)) = found.next() else { return (sights, end) };
            sights.push(sight);
            last = Some(at);
        }
        (sights, last.map_or(end, place_of))
    }

    /// As [`Lookout::pick`], behind the event at this place of the chunk.
    fn pick_prices(&self, chunk: &Arc<Chunk>, behind: usize, most: usize) -> (Vec<Sight>, Place) {
        let (told, changes) = (&chunk.telling().events, &chunk.telling().prices().events);
        let markets = &self.query.markets;
        let wanted = |change: &usize| {
            let market = told[changes[*change]].market.as_ref();
            markets.is_empty() || market.is_some_and(|market| markets.contains(market))
        };
        let from = changes.partition_point(|at| *at < behind);
        let mut wanted = (from..changes.len()).filter(wanted).peekable();
        let (mut sights, mut count) = (Vec::new(), 0);
        while let Some(first) = wanted.next() {
            let mut run = first..first + 1;
            count += 1;
            while count < most && wanted.next_if_eq(&run.end).is_some() {
                run.end += 1;
                count += 1;
            }
            let last = &told[changes[run.end - 1]].event;
            sights.push(Sight::Prices(chunk.clone(), run));
            if count >= most && wanted.peek().is_some() {
                return (sights, (last.seq, last.index));
            }
        }
        (sights, (chunk.last_seq().0, Cursor::ALL))
    }

    /// An event of a chunk, as the caller may see it, if he looks for it.
    fn look_at(
        &self,
        told: &Arc<Told>,
        chunk: &Chunk,
        labels: Option<&BTreeMap<u64, Labels>>,
    ) -> Option<Sight> {
        let Lookout { viewer, query, .. } = self;
        let wanted = query.kinds.is_empty() || query.kinds.contains(told.kind);
        if !wanted || !self.is_in_market(told, chunk) {
            return None;
        }
        let any_bid = query.bids.is_empty() && query.labels.is_empty();
        if !any_bid && !self.has_bid(&told.parties, labels) {
            return None;
        }
        let seen = match viewer {
            Viewer::All => Sight::Whole(told.clone()),
            Viewer::Account(_) => Sight::Own(redact(told.event.clone(), &told.parties, viewer)?),
        };
        let allocation = seen.events().next().and_then(allocation_of);
        let nodes = query.allocations.is_empty()
            || allocation.is_some_and(|id| query.allocations.contains(&AllocationId(id)));
        nodes.then_some(seen)
    }

    /// Returns whether the events' viewer can see that it is about a bid with one of the numbers and all of the labels
    /// that are looked for.
    fn has_bid(&self, parties: &Parties, labels: Option<&BTreeMap<u64, Labels>>) -> bool {
        let EventQuery { bids, labels: wanted, account, .. } = &self.query;
        let Parties { holder, claimant, former, .. } = parties;
        let visible = |party: &AccountName| match &self.viewer {
            Viewer::All => account.as_ref().is_none_or(|account| account == party),
            Viewer::Account(viewer) => viewer == party,
        };
        let has_labels = |bid: u64| {
            let has = labels.and_then(|labels| labels.get(&bid));
            wanted.iter().all(|(key, value)| has.and_then(|has| has.get(key)) == Some(value))
        };
        let mut parties = [holder, claimant, former].into_iter().flatten();
        parties.any(|party| {
            visible(&party.account)
                && (bids.is_empty() || bids.contains(&party.bid))
                && has_labels(party.bid.0)
        })
    }

    fn is_in_market(&self, told: &Told, chunk: &Chunk) -> bool {
        let markets = &self.query.markets;
        if markets.is_empty() {
            return true;
        }
        if let Some(market) = &told.market {
            return markets.contains(market);
        }
        let Some(bid) = told.parties.holder.as_ref().map(|holder| holder.bid) else { return false };
        chunk
            .bid(bid)
            .is_some_and(|view| markets.iter().any(|market| is_named(market, &view.scope, &chunk.names)))
    }
}

/// Whether a bid looks in a market, by name or by its instance type.
fn is_named(market: &MarketName, scope: &Scope, names: &Names) -> bool {
    match scope {
        Scope::Markets(markets) => markets.iter().any(|id| names.market(*id) == market),
        Scope::InstanceType(kind) => market.parts().0 == kind.as_str(),
    }
}

/// The allocation that an event is about, where its viewer may see it.
pub(super) fn allocation_of(event: &v1::Event) -> Option<u64> {
    match event.kind.as_ref()? {
        Kind::Allocated(of) => Some(of.allocation),
        Kind::Ready(of) => Some(of.allocation),
        Kind::NoticeStarted(of) => Some(of.allocation),
        Kind::NoticeRescinded(of) => Some(of.allocation),
        Kind::Ended(of) => Some(of.allocation),
        Kind::Claimed(of) => of.allocation,
        Kind::ClaimDropped(of) => of.allocation,
        Kind::Charged(of) => of.allocation,
        Kind::MarketOpened(_)
        | Kind::RulesChanged(_)
        | Kind::OfferPut(_)
        | Kind::UnitAdded(_)
        | Kind::UnitLeaving(_)
        | Kind::UnitBack(_)
        | Kind::UnitRemoved(_)
        | Kind::BidPlaced(_)
        | Kind::BidAmended(_)
        | Kind::BidClosed(_)
        | Kind::PriceChanged(_)
        | Kind::Rejected(_)
        | Kind::Repeated(_) => None,
    }
}
