//! What a caller looks for among the events: a filter, as far as it may see.

use super::billing::known;
use crate::caller::{Caller, Whose};
use crate::chunk::{Chunk, Step};
use crate::projections::queries::EventQuery;
use crate::projections::rows::Place;
use crate::wire::event::{Parties, Told, Viewer, kind, redact};
use crate::wire::status::ApiError;
use crate::wire::text;
use kubebid_core::event::Scope;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName, Names};
use kubebid_proto::v1;
use kubebid_proto::v1::event::Kind;
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

/// An event as its viewer may see it.
#[derive(Clone, Debug)]
pub(super) enum Sight {
    /// In full, and shared with all who see it so.
    Whole(Arc<Told>),
    Own(v1::Event),
}

impl Sight {
    pub(super) fn event(&self) -> &v1::Event {
        match self {
            Sight::Whole(told) => &told.event,
            Sight::Own(event) => event,
        }
    }

    pub(super) fn into_event(self) -> v1::Event {
        match self {
            Sight::Whole(told) => told.event.clone(),
            Sight::Own(event) => event,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Lookout {
    viewer: Viewer,
    /// Without a place and a limit.
    pub(super) query: EventQuery,
}

impl Lookout {
    pub(super) fn new(caller: &Caller, filter: Option<v1::EventFilter>) -> Result<Lookout, ApiError> {
        let filter = filter.unwrap_or_default();
        if let Some(unknown) = filter.kinds.iter().find(|kind| !KINDS.contains(&&kind[..])) {
            return Err(ApiError::bad_field("filter.kinds", format!("names {unknown:?}, which is no kind")));
        }
        for name in filter.markets.iter().chain(&filter.account) {
            text::text("filter", name, text::NOTE)?;
        }
        let account = match (filter.account, caller.sees_all()) {
            (None, true) => None,
            (account, _) => match caller.whose(account.as_deref())? {
                Whose::Of(account) => Some(account.to_string()),
                Whose::Everybody => None,
            },
        };
        let viewer = if caller.sees_all() { Viewer::All } else { Viewer::Account(caller.account.clone()) };
        let query = EventQuery {
            kinds: filter.kinds,
            markets: filter.markets.iter().map(|name| MarketName::new(name)).collect(),
            bids: filter.bids.into_iter().map(|bid| BidId(known(bid))).collect(),
            allocations: filter.allocations.into_iter().map(|id| AllocationId(known(id))).collect(),
            labels: text::labels("filter.labels", filter.labels)?,
            account,
            ..EventQuery::default()
        };
        Ok(Lookout { viewer, query })
    }

    /// Changes of prices, as everyone may see them.
    pub(super) fn prices(markets: Vec<MarketName>) -> Lookout {
        let query = EventQuery { kinds: vec!["price_changed".to_owned()], markets, ..EventQuery::default() };
        Lookout { viewer: Viewer::All, query }
    }

    /// Nothing is left out, neither by the filter nor by what the caller may see.
    pub(super) fn is_everything(&self) -> bool {
        matches!(self.viewer, Viewer::All) && self.query == EventQuery::default()
    }

    /// Labels are rows of the store: what they find is read there too.
    pub(super) fn needs_table(&self) -> bool {
        !self.query.labels.is_empty()
    }

    /// An event of the table, as the caller may see it.
    pub(super) fn seen(&self, event: v1::Event, parties: &Parties) -> Option<v1::Event> {
        redact(event, parties, &self.viewer)
    }

    /// Of a step, what the caller looks for behind a place.
    pub(super) fn pick(&self, step: &Step, told: &[Arc<Told>], chunk: &Chunk, behind: Place) -> Vec<Sight> {
        let query = &self.query;
        let wanted = |name: &str| query.kinds.is_empty() || query.kinds.iter().any(|kind| kind == name);
        if !step.events.iter().any(|event| wanted(kind(&event.fact))) {
            return Vec::new();
        }
        let found = told.iter().filter_map(|told| {
            let ahead = (told.event.seq, told.event.index) > behind;
            if !ahead || !wanted(told.kind) || !self.concerns(told) || !self.is_in_market(told, chunk) {
                return None;
            }
            let parties = &told.parties;
            let seen = match self.viewer {
                Viewer::All => Sight::Whole(told.clone()),
                Viewer::Account(_) => Sight::Own(redact(told.event.clone(), parties, &self.viewer)?),
            };
            let bids = query.bids.is_empty() || self.has_bid(parties);
            let allocation = allocation_of(seen.event());
            let nodes = query.allocations.is_empty()
                || allocation.is_some_and(|id| query.allocations.contains(&AllocationId(id)));
            (bids && nodes).then_some(seen)
        });
        found.collect()
    }

    /// Whether the account that is asked about is a party, or all are.
    fn concerns(&self, told: &Told) -> bool {
        let Some(account) = &self.query.account else { return true };
        let Parties { holder, claimant, former, provider, account: commander } = &told.parties;
        let mut parties = [holder, claimant, former].into_iter().flatten().map(|party| &party.account);
        let is = |name: &AccountName| name.as_str() == account;
        let nobody = [holder, claimant, former].into_iter().all(Option::is_none)
            && provider.is_none()
            && commander.is_none();
        let unowned = matches!(told.kind, "rejected" | "repeated");
        nobody && !unowned || parties.any(is) || provider.iter().chain(commander).any(is)
    }

    fn has_bid(&self, parties: &Parties) -> bool {
        let Parties { holder, claimant, former, .. } = parties;
        let visible = |account: &AccountName| match &self.viewer {
            Viewer::All => true,
            Viewer::Account(viewer) => viewer == account,
        };
        let mut parties = [holder, claimant, former].into_iter().flatten();
        parties.any(|party| visible(&party.account) && self.query.bids.contains(&party.bid))
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
