//! Explain: why a bid lacks nodes, or why a node was taken away.

mod steps;
mod summary;
mod words;

use super::billing::known;
use super::event_filter::EventFilter;
use super::{Api, LOOKED_AT};
use crate::auth::caller::Caller;
use crate::readmodel::queries::EventQuery;
use crate::runtime::views::MarketView;
use crate::wire::bid::unfilled;
use crate::wire::status::{ApiError, Code};
use kubebid_core::EventKind;
use kubebid_core::Reject;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketId};
use kubebid_core::views::{AllocationView, BidView, Obstacle};
use kubebid_proto::v1;
use steps::Subject;
use v1::explain_request::Subject as Asked;

/// The number of the last events that an explanation includes.
const STEPS: u32 = 200;

impl Api {
    /// Explain: says why a bid lacks nodes, or why a node was taken away, with the events that led
    /// there.
    pub async fn explain(
        &self,
        caller: &Caller,
        request: v1::ExplainRequest,
    ) -> Result<v1::ExplainResponse, ApiError> {
        self.applied_up_to(caller, request.min_seq).await?;
        match request.subject {
            Some(Asked::Bid(bid)) => self.explain_bid(caller, BidId(known(bid))).await,
            Some(Asked::Allocation(allocation)) => {
                self.explain_allocation(caller, AllocationId(known(allocation))).await
            }
            None => Err(ApiError::bad_field("subject", "must be a bid or an allocation")),
        }
    }

    async fn explain_bid(&self, caller: &Caller, id: BidId) -> Result<v1::ExplainResponse, ApiError> {
        let whose = (!caller.sees_all()).then(|| caller.account.clone());
        let asked = self.engine().ask(move |exchange| {
            let is_seen = |view: &BidView| {
                whose.is_none_or(|account| exchange.account_id(&account) == Some(view.tenant))
            };
            // A bid of another account costs no search for what is in its way.
            let found = exchange.view_bid(id).filter(is_seen).map(|view| (view, exchange.obstacles(id)));
            (exchange.seq(), found)
        });
        let (seq, found) = asked.await?;
        let (view, obstacles) = found.ok_or_else(|| ApiError::new(Code::Market(Reject::UnknownBid)))?;
        let events =
            self.history(caller, seq.0, EventQuery { bids: [id].into(), ..EventQuery::default() }).await?;
        let mut subject = Subject::of(Some(id.0));
        let steps = events.into_iter().filter_map(|event| subject.step(event)).collect();
        let (rule, summary) = summary::of_bid(&view, &obstacles, |market| self.market_name(market));
        Ok(v1::ExplainResponse {
            seq: seq.0,
            summary,
            rule: rule.to_owned(),
            obstacles: obstacles.iter().map(|obstacle| self.obstacle(obstacle)).collect(),
            steps,
        })
    }

    async fn explain_allocation(
        &self,
        caller: &Caller,
        id: AllocationId,
    ) -> Result<v1::ExplainResponse, ApiError> {
        let asked = self.engine().ask(move |exchange| (exchange.seq(), exchange.view_allocation(id)));
        let (seq, view) = asked.await?;
        self.projected_up_to(caller, seq.0).await?;
        let row = self.allocation_row(caller, id.0).await?;
        let row = row.ok_or_else(|| ApiError::new(Code::Market(Reject::UnknownAllocation)))?;
        let of_node = EventQuery { allocations: [id].into(), ..EventQuery::default() };
        let events = self.history(caller, seq.0, of_node).await?;
        let bid = caller.sees(&AccountName::new(&row.tenant)).then_some(row.bid.0);
        let events = match bid {
            Some(bid) => self.with_bid(caller, seq.0, bid, events).await?,
            None => events,
        };
        let (rule, summary) =
            summary::of_allocation(id, view.as_ref(), &events, self.rules_of(view.as_ref()).as_deref());
        let mut subject = Subject::of(bid);
        let steps = events.into_iter().filter_map(|event| subject.step(event)).collect();
        Ok(v1::ExplainResponse { seq: seq.0, summary, rule: rule.to_owned(), obstacles: Vec::new(), steps })
    }

    /// Adds to the events of a node what its bid asked for, before and between them.
    async fn with_bid(
        &self,
        caller: &Caller,
        seq: u64,
        bid: u64,
        mut events: Vec<v1::Event>,
    ) -> Result<Vec<v1::Event>, ApiError> {
        let kinds = [EventKind::BidPlaced, EventKind::BidAmended].into();
        let query = EventQuery { bids: [BidId(bid)].into(), kinds, ..EventQuery::default() };
        events.extend(self.history(caller, seq, query).await?);
        events.sort_by_key(|event| (event.seq, event.index));
        Ok(events)
    }

    /// Returns the last events, oldest first, as the caller may see them.
    async fn history(
        &self,
        caller: &Caller,
        seq: u64,
        query: EventQuery,
    ) -> Result<Vec<v1::Event>, ApiError> {
        self.projected_up_to(caller, seq).await?;
        let filter = EventFilter::new(caller, None)?;
        let query =
            EventQuery { account: filter.query.account.clone(), newest_first: true, limit: STEPS, ..query };
        let rows = self.engine().read_model().event_page(&query, LOOKED_AT).await?.events;
        let mut events: Vec<_> =
            rows.into_iter().filter_map(|row| filter.seen(row.event, &row.parties)).collect();
        events.reverse();
        Ok(events)
    }

    fn obstacle(&self, obstacle: &Obstacle) -> v1::explain_response::Obstacle {
        v1::explain_response::Obstacle {
            market: self.market_name(obstacle.market),
            reason: unfilled(obstacle.reason).into(),
            needed_ceiling_micros: obstacle.needed_ceiling.map(|ceiling| ceiling.0),
            protected_until_us: obstacle.protected_until.map(|until| until.0),
        }
    }

    fn market_name(&self, market: MarketId) -> String {
        self.engine().views().names().market(market).to_string()
    }

    fn rules_of(&self, view: Option<&AllocationView>) -> Option<std::sync::Arc<MarketView>> {
        view.map(|view| self.engine().views().markets().by_id(view.unit.market))
    }
}

/// Returns how many nodes a bid has, live and under notice.
fn held(view: &BidView) -> u64 {
    (view.live.len() + view.under_notice.len()) as u64
}
