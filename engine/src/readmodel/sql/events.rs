//! Queries of events: the index finds the packs, and the filter reads them.

mod search;
mod wanted;

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlx::Row;
use sqlx::any::AnyRow;

use crate::readmodel::ReadModel;
use crate::readmodel::packs::{PACK, Pack, Packed};
use crate::readmodel::queries::EventQuery;
use crate::readmodel::rows::{EventRow, Place};
use crate::store::reads::Reads;
use crate::store::rows::number;
use crate::store::select::Select;
use crate::store::{Fault, Labels};
use kubebid_core::units::{AllocationId, BidId};
use search::Search;
use wanted::Wanted;

/// So many bids with labels are looked for by their numbers; where there are more, labels are looked up for the
/// bids that are found.
const FEW: u32 = 500;
/// Bids in one statement.
const MANY: usize = 500;
/// Packs in one answer of the database: at first, and then four times as many each time.
const FIRST: usize = 4;
const MOST: usize = 64;

/// A pack of the table.
#[derive(Debug)]
pub(super) struct StoredPack {
    pub(super) run: u64,
    pub(super) first_seq: u64,
    pack: Pack,
}

impl StoredPack {
    pub(super) fn events(&self) -> impl DoubleEndedIterator<Item = Packed<'_>> + ExactSizeIterator {
        self.pack.events(self.first_seq)
    }

    /// Returns those that a statement finds.
    pub(super) async fn all(select: Select, reads: &Reads) -> Result<Vec<StoredPack>, Fault> {
        let rows = select.all(reads, "reading events").await?;
        reads.apart(move || rows.iter().map(StoredPack::read).collect()).await
    }

    fn read(row: &AnyRow) -> Result<StoredPack, Fault> {
        let pack = Pack::read(row.get("body")).map_err(|what| Fault::Row { table: "event_packs", what })?;
        Ok(StoredPack { run: number(row, "run"), first_seq: number(row, "first_seq"), pack })
    }
}

/// Some events of a query, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct EventPage {
    pub events: Vec<EventRow>,
    /// The place up to which the search has looked, if it ended before its limit and before the last event.
    pub stopped_at: Option<Place>,
}

impl ReadModel {
    /// Returns the first events of a query up to its limit, however many have to be looked at.
    pub async fn events(&self, query: &EventQuery) -> Result<Vec<EventRow>, Fault> {
        Ok(self.event_page(query, usize::MAX).await?.events)
    }

    /// Returns the first events of a query up to its limit. A search that has looked at so many events without finding
    /// as many as that stops, and says where.
    pub async fn event_page(&self, query: &EventQuery, looked_at_most: usize) -> Result<EventPage, Fault> {
        let reads = &self.tables.reads;
        let few = if query.labels.is_empty() { None } else { few_with(reads, &query.labels).await? };
        let asks = !query.labels.is_empty() && few.is_none();
        let Some(mut search) = Search::begin(reads, query, few.as_ref()).await? else {
            return Ok(EventPage { events: Vec::new(), stopped_at: None });
        };
        let wanted = Arc::new(Wanted::new(query, few));
        let (limit, mut found, mut many) = (query.limit as usize, Vec::new(), FIRST);
        let mut looked_at = 0;
        while found.len() < limit {
            let packs = search.next(reads, many).await?;
            let Some(last) = packs.last() else { break };
            looked_at += packs.iter().map(|pack| pack.events().len()).sum::<usize>();
            let end = if query.newest_first { last.events().next() } else { last.events().next_back() };
            let end = end.map(|event| event.place());
            let (packs, mut wanted) = (Arc::new(packs), wanted.clone());
            if asks {
                let (packs, wanted_now) = (packs.clone(), wanted.clone());
                let bids = reads.apart(move || bids_among(&packs, &wanted_now)).await;
                wanted = Arc::new(Wanted::new(query, Some(those_with(reads, &query.labels, bids).await?)));
            }
            let most = limit - found.len();
            found.extend(reads.apart(move || pick(&packs, &wanted, most)).await?);
            // Packs before the place that was asked for come again: a page ends behind it, so that the next one moves on.
            let moves_on = |end: Place| match query.after {
                Some(after) if query.newest_first => end < after,
                Some(after) => end > after,
                None => true,
            };
            let is_behind = end.is_some_and(moves_on);
            if looked_at >= looked_at_most && found.len() < limit && is_behind {
                return Ok(EventPage { events: found, stopped_at: end });
            }
            many = (many * 4).min(MOST);
        }
        Ok(EventPage { events: found, stopped_at: None })
    }

    /// The last `limit` events of a bid, its nodes and its claims, oldest first.
    pub async fn bid_history(&self, bid: BidId, limit: u32) -> Result<Vec<EventRow>, Fault> {
        self.history(EventQuery { bids: [bid].into(), limit, ..EventQuery::default() }).await
    }

    /// The last `limit` events of an allocation and the claims on it, oldest first.
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

    /// Returns who placed a bid.
    pub(super) async fn bidder(&self, bid: BidId) -> Result<Option<String>, Fault> {
        let mut select = Select::new("SELECT * FROM event_packs");
        select.add(" WHERE first_seq > ? AND first_seq <= ?", &[&bid.0.saturating_sub(PACK), &bid.0]);
        select.add(" ORDER BY first_seq DESC LIMIT 1", &[]);
        let packs = StoredPack::all(select, &self.tables.reads).await?;
        let mut placed = packs.iter().flat_map(StoredPack::events).filter_map(|event| event.placed());
        Ok(placed.find(|(_, number)| *number == bid.0).map(|(tenant, _)| tenant.to_owned()))
    }
}

/// The first events of packs that are wanted, `most` at most.
fn pick(packs: &[StoredPack], wanted: &Wanted, most: usize) -> Result<Vec<EventRow>, Fault> {
    let events = packs.iter().flat_map(|pack| {
        let events: Box<dyn Iterator<Item = Packed<'_>> + '_> =
            if wanted.newest_first() { Box::new(pack.events().rev()) } else { Box::new(pack.events()) };
        events
    });
    let rows = events.filter(|event| wanted.has(event)).take(most).map(|event| {
        event.row().map_err(|error| Fault::Row { table: "event_packs", what: error.to_string() })
    });
    rows.collect()
}

/// The bids of the events of packs that are wanted.
fn bids_among(packs: &[StoredPack], wanted: &Wanted) -> BTreeSet<u64> {
    let events = packs.iter().flat_map(StoredPack::events).filter(|event| wanted.has(event));
    events.flat_map(|event| event.bidders()).flatten().map(|(_, bid)| bid).collect()
}

/// The bids with these labels, where they are few.
async fn few_with(reads: &Reads, labels: &Labels) -> Result<Option<BTreeSet<u64>>, Fault> {
    let mut select = Select::new("SELECT DISTINCT b.bid FROM bid_labels b WHERE true");
    if let Some((key, value)) = labels.first_key_value() {
        select.add(" AND b.key = ? AND b.value = ?", &[key, value]);
    }
    select.labelled("b.bid", labels).add(" LIMIT ?", &[&(FEW + 1)]);
    let rows = select.all(reads, "finding bids by label").await?;
    let few = rows.len() <= FEW as usize;
    Ok(few.then(|| rows.iter().map(|row| number(row, 0)).collect()))
}

/// Returns those of the bids that have these labels.
pub(super) async fn those_with(
    reads: &Reads,
    labels: &Labels,
    bids: BTreeSet<u64>,
) -> Result<BTreeSet<u64>, Fault> {
    let bids: Vec<u64> = bids.into_iter().collect();
    let mut found = BTreeSet::new();
    for bids in bids.chunks(MANY) {
        let mut select = Select::new("SELECT DISTINCT b.bid FROM bid_labels b");
        select.one_of(" WHERE b.bid IN ", bids, "").labelled("b.bid", labels);
        let rows = select.all(reads, "reading labels").await?;
        found.extend(rows.iter().map(|row| number(row, 0)));
    }
    Ok(found)
}
