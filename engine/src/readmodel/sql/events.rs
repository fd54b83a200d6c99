//! Queries of events: an index finds candidates in order, and the filter picks those that the query asks for.

mod source;

use super::bids::{LEAST_ROWS, MOST_ROWS, bids_with_labels};
use super::schema::EVENTS;
use crate::events::message::{Parties, Party};
use crate::readmodel::ReadModel;
use crate::readmodel::event_matches::{EventFacts, bidders};
use crate::readmodel::queries::EventQuery;
use crate::readmodel::rows::{EventPlace, EventRow};
use crate::store::Fault;
use crate::store::rows::{number, optional_number, texts, time};
use crate::store::select::Select;
use kubebid_core::EventKind;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName, Micros, Seq};
use kubebid_proto::v1;
use prost::Message;
use source::{Range, Source};
use sqlx::Row;
use sqlx::any::AnyRow;
use std::collections::BTreeSet;

/// The number of bids with a label below which events are searched by the numbers of these bids.
const FEW: u32 = 100;

/// Some events of a query, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct EventPage {
    /// The events that were found.
    pub events: Vec<EventRow>,
    /// The place of the last row that the search examined, if it stopped before its limit and before
    /// the last event.
    pub stopped_at: Option<EventPlace>,
}

impl ReadModel {
    /// Returns the first events of a query up to its limit, however many rows it reads.
    pub async fn events(&self, query: &EventQuery) -> Result<Vec<EventRow>, Fault> {
        Ok(self.event_page(query, usize::MAX).await?.events)
    }

    /// Returns the first events of a query up to its limit. A search that has read `most` rows and has found fewer
    /// events than the limit stops, and says where.
    pub async fn event_page(&self, query: &EventQuery, most: usize) -> Result<EventPage, Fault> {
        let end_of_search = |events| Ok(EventPage { events, stopped_at: None });
        let own = self.with_own_bids(query).await?;
        let query = own.as_ref().unwrap_or(query);
        if own.as_ref().is_some_and(|own| own.bids.is_empty()) {
            return end_of_search(Vec::new());
        }
        let Some(mut range) = self.range(query).await? else { return end_of_search(Vec::new()) };
        let labelled = self.few_bids_with(query).await?;
        let sources = Source::of(query, labelled.as_ref());
        if sources.is_empty() {
            return end_of_search(Vec::new());
        }
        let (limit, mut events, mut have_read) = (query.limit as usize, Vec::new(), 0);
        let mut count = limit.clamp(LEAST_ROWS, MOST_ROWS);
        loop {
            count = count.min(most.saturating_sub(have_read).max(LEAST_ROWS));
            let rows = self.candidates(&sources, &range, query.newest_first, count).await?;
            have_read += rows.len();
            let is_end = rows.len() < count;
            let Some(last) = rows.last().map(|event| event.place) else { return end_of_search(events) };
            let rows = self.filter(query, labelled.as_ref(), rows).await?;
            for event in rows.into_iter().take(limit - events.len()) {
                events.push(event.read()?);
            }
            if is_end || events.len() == limit {
                return end_of_search(events);
            }
            if have_read >= most {
                return Ok(EventPage { events, stopped_at: Some(last) });
            }
            range.continue_after(last, query.newest_first);
            count = (count * 4).min(MOST_ROWS);
        }
    }

    /// Returns a query of an account for bids with its own bids only: it finds nothing by the others, and each bid is a search of its
    /// own. None if the query is not one for an account and bids.
    async fn with_own_bids(&self, query: &EventQuery) -> Result<Option<EventQuery>, Fault> {
        let Some(account) = query.account.as_ref().filter(|_| !query.bids.is_empty()) else {
            return Ok(None);
        };
        let numbers: Vec<u64> = query.bids.iter().map(|bid| bid.0).collect();
        let mut select = Select::new("SELECT b.bid FROM bids b");
        select.one_of(" WHERE b.bid IN ", &numbers).add(" AND b.tenant = ?", &[&account.as_str()]);
        let rows = select.all(&self.tables.reads, "finding the bids of an account").await?;
        let bids = rows.iter().map(|row| BidId(number(row, 0))).collect();
        Ok(Some(EventQuery { bids, ..query.clone() }))
    }

    /// Returns the last `limit` events of a bid, its nodes and its claims, oldest first.
    pub async fn bid_history(&self, bid: BidId, limit: u32) -> Result<Vec<EventRow>, Fault> {
        self.history(EventQuery { bids: [bid].into(), limit, ..EventQuery::default() }).await
    }

    /// Returns the last `limit` events of an allocation and the claims on it, oldest first.
    pub async fn allocation_history(
        &self,
        allocation: AllocationId,
        limit: u32,
    ) -> Result<Vec<EventRow>, Fault> {
        self.history(EventQuery { allocations: [allocation].into(), limit, ..EventQuery::default() }).await
    }

    async fn history(&self, query: EventQuery) -> Result<Vec<EventRow>, Fault> {
        let mut events = self.events(&EventQuery { newest_first: true, ..query }).await?;
        events.reverse();
        Ok(events)
    }

    /// Returns the places in which the query looks; None if there are none.
    async fn range(&self, query: &EventQuery) -> Result<Option<Range>, Fault> {
        // Bids and charges are kept longer than events.
        let first_kept = self.tables.extent().await?.first_event - 1;
        let mut range = Range { first: (first_kept, 0), end: None, from: query.from, to: query.to };
        if let Some(place) = query.after {
            range.continue_after(place, query.newest_first);
        }
        if let Some(from) = query.from {
            let Some(first) = self.first_place_from(from).await? else { return Ok(None) };
            range.first = range.first.max(first);
        }
        if let Some(to) = query.to
            && let Some(end) = self.first_place_from(to).await?
        {
            range.end = Some(range.end.map_or(end, |known| known.min(end)));
        }
        Ok(Some(range))
    }

    /// Returns the place of the first event at a time or later: time never falls from one event to the next.
    async fn first_place_from(&self, at: Micros) -> Result<Option<EventPlace>, Fault> {
        let mut select = Select::new("SELECT e.seq, e.idx FROM events e");
        select.add(" WHERE e.at >= ? ORDER BY e.at, e.seq, e.idx LIMIT 1", &[&at]);
        let rows = select.all(&self.tables.reads, "finding a time among the events").await?;
        Ok(rows.first().map(|row| (number(row, 0), number(row, 1) as u32)))
    }

    /// Returns the bids with the query's labels, if they are few.
    async fn few_bids_with(&self, query: &EventQuery) -> Result<Option<BTreeSet<u64>>, Fault> {
        let Some((key, value)) = query.labels.first_key_value() else { return Ok(None) };
        let mut select = Select::new("SELECT DISTINCT b.bid FROM bid_labels b");
        select.add(" WHERE b.key = ? AND b.value = ?", &[key, value]);
        select.labelled("b.bid", &query.labels).add(" LIMIT ?", &[&(FEW + 1)]);
        let rows = select.all(&self.tables.reads, "finding bids by label").await?;
        let few = rows.len() <= FEW as usize;
        Ok(few.then(|| rows.iter().map(|row| number(row, 0)).collect()))
    }

    /// Returns the first events of a range that one of the sources has, at most `count`.
    async fn candidates(
        &self,
        sources: &[Source],
        range: &Range,
        newest_first: bool,
        count: usize,
    ) -> Result<Vec<StoredEvent>, Fault> {
        let order = if newest_first { "DESC" } else { "ASC" };
        let mut select = Select::new("SELECT");
        select.columns("u", EVENTS).add(" FROM (", &[]);
        for (n, source) in sources.iter().enumerate() {
            select.add(if n > 0 { " UNION ALL SELECT * FROM (" } else { "SELECT * FROM (" }, &[]);
            source.select(&mut select, range, order, count);
            select.add(&format!(") s{n}"), &[]);
        }
        select.add(&format!(") u ORDER BY u.seq {order}, u.idx {order} LIMIT ?"), &[&(count as u64)]);
        select.has_many_forms();
        let rows = select.all(&self.tables.reads, "reading events").await?;
        let read = move || rows.iter().map(StoredEvent::of).collect();
        self.tables.reads.apart(read).await
    }

    /// Returns those of the candidates that the query asks for, each once.
    async fn filter(
        &self,
        query: &EventQuery,
        labelled: Option<&BTreeSet<u64>>,
        mut events: Vec<StoredEvent>,
    ) -> Result<Vec<StoredEvent>, Fault> {
        // An account may be several parties of an event.
        events.dedup_by_key(|event| event.place);
        let looked_up;
        let labelled = match labelled {
            Some(few) => few,
            None if query.labels.is_empty() => &BTreeSet::new(),
            None => {
                let bids = events.iter().flat_map(|event| bidders(&event.parties)).map(|party| party.bid.0);
                looked_up = bids_with_labels(&self.tables.reads, &query.labels, bids.collect()).await?;
                &looked_up
            }
        };
        let looking = self.bids_looking_in(&query.markets, &events).await?;
        events.retain(|event| {
            let looks_in = |bid: BidId| looking.contains(&bid.0);
            query.matches(&event.facts(), looks_in, |bid| labelled.contains(&bid.0))
        });
        Ok(events)
    }

    /// Returns the holders of events without a single market that search in one of these markets.
    async fn bids_looking_in(
        &self,
        markets: &BTreeSet<MarketName>,
        events: &[StoredEvent],
    ) -> Result<BTreeSet<u64>, Fault> {
        let mut looking = BTreeSet::new();
        if markets.is_empty() {
            return Ok(looking);
        }
        let several = events.iter().filter(|event| event.market.is_none());
        let bids: BTreeSet<u64> =
            several.filter_map(|event| event.parties.holder.as_ref()).map(|party| party.bid.0).collect();
        let bids: Vec<u64> = bids.into_iter().collect();
        for bids in bids.chunks(LEAST_ROWS) {
            for row in self.bids_of_numbers(bids).await? {
                let names = texts(&row, "bids", "markets")?;
                let instance_type: Option<&str> = row.get("instance_type");
                let looks_in = |market: &MarketName| {
                    names.iter().any(|name| name == market.as_str())
                        || instance_type == Some(market.parts().0)
                };
                if markets.iter().any(looks_in) {
                    looking.insert(number(&row, "bid"));
                }
            }
        }
        Ok(looking)
    }
}

/// An event as the table has it, with its message not yet read.
#[derive(Debug)]
struct StoredEvent {
    place: EventPlace,
    at: Micros,
    kind: Option<EventKind>,
    market: Option<String>,
    allocation: Option<AllocationId>,
    parties: Parties,
    message: Vec<u8>,
}

impl StoredEvent {
    fn of(row: &AnyRow) -> Result<StoredEvent, Fault> {
        let name = |column| row.get::<Option<&str>, _>(column).map(AccountName::new);
        let party = |account, bid| {
            let bid = optional_number(row, bid).map(BidId);
            name(account).zip(bid).map(|(account, bid)| Party { account, bid })
        };
        Ok(StoredEvent {
            place: (number(row, "seq"), number(row, "idx") as u32),
            at: time(row, "at"),
            kind: EventKind::of_word(row.get("kind")),
            market: row.get("market"),
            allocation: optional_number(row, "allocation").map(AllocationId),
            parties: Parties {
                holder: party("tenant", "bid"),
                claimant: party("claimant", "claimant_bid"),
                former: party("former_claimant", "former_claimant_bid"),
                provider: name("provider"),
                account: name("sender"),
            },
            message: row.get("message"),
        })
    }

    fn facts(&self) -> EventFacts<'_> {
        EventFacts {
            kind: self.kind,
            market: self.market.as_deref(),
            allocation: self.allocation,
            parties: &self.parties,
        }
    }

    /// Reads the message.
    fn read(self) -> Result<EventRow, Fault> {
        let event = v1::Event::decode(&self.message[..])
            .map_err(|error| Fault::Row { table: "events", what: error.to_string() })?;
        let (seq, index) = self.place;
        Ok(EventRow { seq: Seq(seq), index, at: self.at, parties: self.parties, event })
    }
}
