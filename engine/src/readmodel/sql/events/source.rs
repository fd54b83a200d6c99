//! The parts of the `events` table in which a query looks: each is a range of one index, in the order of the events.

use crate::events::visibility::concerns_everyone;
use crate::readmodel::queries::EventQuery;
use crate::readmodel::rows::EventPlace;
use crate::store::select::{Bound, Select};
use kubebid_core::EventKind;
use kubebid_core::units::Micros;
use std::collections::BTreeSet;

/// The places in which a query looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) first: EventPlace,
    /// Exclusive.
    pub(super) end: Option<EventPlace>,
    /// The same as times, so that PostgreSQL can leave out the partitions of other days.
    pub(super) from: Option<Micros>,
    pub(super) to: Option<Micros>,
}

impl Range {
    /// Leaves out the events up to a place that was read.
    pub(super) fn continue_after(&mut self, (seq, index): EventPlace, newest_first: bool) {
        match (newest_first, index.checked_add(1)) {
            (true, _) => self.end = Some(self.end.map_or((seq, index), |end| end.min((seq, index)))),
            (false, Some(next)) => self.first = (seq, next),
            (false, None) => self.first = (seq.saturating_add(1), 0),
        }
    }

    /// Adds the condition that the rows of a relation are in the range.
    fn limit(&self, select: &mut Select, name: &str) {
        select.add(&format!(" AND ({name}.seq, {name}.idx) >= (?, ?)"), &[&self.first.0, &self.first.1]);
        if let Some((seq, index)) = self.end {
            select.add(&format!(" AND ({name}.seq, {name}.idx) < (?, ?)"), &[&seq, &index]);
        }
        if let Some(from) = self.from {
            select.add(&format!(" AND {name}.at >= ?"), &[&from]);
        }
        if let Some(to) = self.to {
            select.add(&format!(" AND {name}.at < ?"), &[&to]);
        }
    }
}

/// A range of an index of `events`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// All events.
    All,
    Bid(u64),
    /// The event that placed a bid.
    PlacedBid(u64),
    /// Events that a bid is a rare party of: see the table `event_parties`.
    BidAsParty(u64),
    /// Events of the holder of an allocation.
    Allocation(u64),
    /// Charges for claims on an allocation.
    ClaimsOnAllocation(u64),
    /// Events of a tenant's bids and nodes, but for those that placed its bids.
    Tenant(String),
    /// The events that placed a tenant's bids, by way of the table `bids`.
    PlacedByTenant(String),
    Provider(String),
    /// Events that an account is a rare party of.
    AccountAsParty(String),
    Market(String),
    /// Events of bids that name several markets or an instance type.
    SeveralMarkets,
    /// One of the kinds that [`is_indexed`].
    Kind(EventKind),
}

/// Returns true if the index `events_by_kind` has this kind. The others are so frequent that a scan finds enough of them.
fn is_indexed(kind: EventKind) -> bool {
    match kind {
        EventKind::BidPlaced
        | EventKind::BidAmended
        | EventKind::BidClosed
        | EventKind::Allocated
        | EventKind::Ready
        | EventKind::Ended
        | EventKind::Charged => false,
        EventKind::MarketOpened
        | EventKind::RulesChanged
        | EventKind::MarketClosing
        | EventKind::MarketEnded
        | EventKind::OfferPut
        | EventKind::UnitAdded
        | EventKind::UnitLeaving
        | EventKind::UnitBack
        | EventKind::UnitResting
        | EventKind::UnitResumed
        | EventKind::UnitRemoved
        | EventKind::NoticeStarted
        | EventKind::NoticeRescinded
        | EventKind::Claimed
        | EventKind::ClaimDropped
        | EventKind::PriceChanged
        | EventKind::NoticeMoved
        | EventKind::Funded
        | EventKind::BudgetSet
        | EventKind::BudgetRenewed
        | EventKind::RenewalSet
        | EventKind::Rejected
        | EventKind::Repeated => true,
    }
}

/// The condition of `events_by_kind`, word for word as in the migrations: SQLite uses the index only then.
const INDEXED: &str =
    "e.kind NOT IN ('bid_placed', 'bid_amended', 'bid_closed', 'allocated', 'ready', 'ended', 'charged')";

/// The time lets PostgreSQL look into one partition only. SQLite would join by the index of times, which many events share.
const SAME_PARTITION: &str = " AND e.at = k.at";

impl Source {
    /// Returns sources that together have all events of a query, and as few others as the indexes allow. `labelled` are
    /// the bids with the query's labels, if they are few.
    pub(super) fn of(query: &EventQuery, labelled: Option<&BTreeSet<u64>>) -> Vec<Source> {
        if !query.bids.is_empty() || labelled.is_some() {
            let asked: BTreeSet<u64> = query.bids.iter().map(|bid| bid.0).collect();
            let bids: BTreeSet<u64> = match labelled {
                Some(labelled) if asked.is_empty() => labelled.clone(),
                Some(labelled) => asked.intersection(labelled).copied().collect(),
                None => asked,
            };
            let sources = |bid| [Source::Bid(bid), Source::PlacedBid(bid), Source::BidAsParty(bid)];
            return bids.into_iter().flat_map(sources).collect();
        }
        if !query.allocations.is_empty() {
            let sources = |id: u64| [Source::Allocation(id), Source::ClaimsOnAllocation(id)];
            return query.allocations.iter().flat_map(|id| sources(id.0)).collect();
        }
        if let Some(account) = &query.account {
            return Source::of_account(query, &account.to_string());
        }
        if !query.kinds.is_empty() && query.kinds.iter().all(|kind| is_indexed(*kind)) {
            return query.kinds.iter().copied().map(Source::Kind).collect();
        }
        if !query.markets.is_empty() {
            let markets = query.markets.iter().map(|market| Source::Market(market.to_string()));
            return markets.chain([Source::SeveralMarkets]).collect();
        }
        vec![Source::All]
    }

    /// Returns the sources for what an account may see, without those that have no event of the kinds that are asked for.
    fn of_account(query: &EventQuery, account: &str) -> Vec<Source> {
        let kinds = EventKind::ALL.iter().copied();
        let asked: Vec<EventKind> =
            kinds.filter(|kind| query.kinds.is_empty() || query.kinds.contains(kind)).collect();
        let mut sources = Vec::new();
        if asked.contains(&EventKind::BidPlaced) {
            sources.push(Source::PlacedByTenant(account.to_owned()));
        }
        if asked.iter().any(|kind| *kind != EventKind::BidPlaced && !concerns_everyone(*kind)) {
            sources.push(Source::Tenant(account.to_owned()));
            sources.push(Source::Provider(account.to_owned()));
            sources.push(Source::AccountAsParty(account.to_owned()));
        }
        // Events of markets have no bids, and so no labels.
        if query.labels.is_empty() {
            sources.extend(asked.into_iter().filter(|kind| concerns_everyone(*kind)).map(Source::Kind));
        }
        sources
    }

    /// Adds a statement that selects the first `count` events of a range, or one more.
    pub(super) fn select(&self, select: &mut Select, range: &Range, order: &str, count: usize) {
        match self {
            Source::BidAsParty(bid) => {
                let condition = ("p.bid = ? AND p.bid IS NOT NULL", bid as &dyn Bound);
                select_by_keys(select, "event_parties p", "p", condition, range, order, count);
            }
            Source::AccountAsParty(account) => {
                select_by_keys(
                    select,
                    "event_parties p",
                    "p",
                    ("p.account = ?", account),
                    range,
                    order,
                    count,
                );
            }
            Source::ClaimsOnAllocation(allocation) => {
                let condition = ("c.allocation = ? AND NOT c.own", allocation as &dyn Bound);
                select_by_keys(select, "charges c", "c", condition, range, order, count);
            }
            Source::PlacedByTenant(account) => {
                select.add("SELECT e.* FROM (SELECT b.bid AS seq, b.placed_at AS at FROM bids b", &[]);
                select.add(" WHERE b.tenant = ? AND b.bid >= ?", &[account, &range.first.0]);
                if let Some((seq, _)) = range.end {
                    select.add(" AND b.bid <= ?", &[&seq]);
                }
                // One more, because the first one may be before the place at which the range begins.
                select.add(&format!(" ORDER BY b.bid {order} LIMIT ?"), &[&(count as u64 + 1)]);
                select.add(") k JOIN events e ON e.seq = k.seq AND e.kind = 'bid_placed'", &[]);
                select.on_postgres(SAME_PARTITION).add(" WHERE true", &[]);
                range.limit(select, "e");
            }
            Source::All
            | Source::Bid(_)
            | Source::PlacedBid(_)
            | Source::Allocation(_)
            | Source::Tenant(_)
            | Source::Provider(_)
            | Source::Market(_)
            | Source::SeveralMarkets
            | Source::Kind(_) => {
                select.add("SELECT e.* FROM events e WHERE ", &[]);
                self.condition(select);
                range.limit(select, "e");
                select.add(&format!(" ORDER BY e.seq {order}, e.idx {order} LIMIT ?"), &[&(count as u64)]);
            }
        }
    }

    /// Adds the condition on `events` of a source that needs no other table.
    fn condition(&self, select: &mut Select) {
        match self {
            Source::All => select.add("true", &[]),
            Source::Bid(bid) => {
                select.add("e.bid = ? AND e.bid IS NOT NULL AND e.kind <> 'bid_placed'", &[bid])
            }
            // The number of a bid is the seq of the command that placed it.
            Source::PlacedBid(bid) => select.add("e.seq = ? AND e.kind = 'bid_placed'", &[bid]),
            Source::Allocation(allocation) => select.add(
                "e.bid = (SELECT a.bid FROM allocations a WHERE a.allocation = ?)
                 AND e.bid IS NOT NULL AND e.kind <> 'bid_placed' AND e.allocation = ?",
                &[allocation, allocation],
            ),
            Source::Tenant(account) => {
                select.add("e.tenant = ? AND e.tenant IS NOT NULL AND e.kind <> 'bid_placed'", &[account])
            }
            Source::Provider(account) => select.add("e.provider = ? AND e.provider IS NOT NULL", &[account]),
            Source::Market(market) => select.add("e.market = ?", &[market]),
            Source::SeveralMarkets => select.add("e.market IS NULL AND e.bid IS NOT NULL", &[]),
            Source::Kind(kind) => select.add(&format!("e.kind = '{}' AND {INDEXED}", kind.word()), &[]),
            Source::BidAsParty(_)
            | Source::AccountAsParty(_)
            | Source::ClaimsOnAllocation(_)
            | Source::PlacedByTenant(_) => unreachable!("these sources have statements of their own"),
        };
    }
}

/// Adds a statement that finds the places of events in another table first. The limit inside keeps PostgreSQL from
/// joining all of that table's rows.
fn select_by_keys(
    select: &mut Select,
    table: &str,
    name: &str,
    (condition, argument): (&str, &dyn Bound),
    range: &Range,
    order: &str,
    count: usize,
) {
    select
        .add(&format!("SELECT e.* FROM (SELECT {name}.seq, {name}.idx, {name}.at FROM {table} WHERE "), &[]);
    select.add(condition, &[argument]);
    range.limit(select, name);
    select.add(&format!(" ORDER BY {name}.seq {order}, {name}.idx {order} LIMIT ?"), &[&(count as u64)]);
    select.add(") k JOIN events e ON e.seq = k.seq AND e.idx = k.idx", &[]).on_postgres(SAME_PARTITION);
}
