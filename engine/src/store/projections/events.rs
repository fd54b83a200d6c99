//! Events: where they are is looked up in the index, which of them are wanted is seen when their packs are read.

mod search;
mod wanted;

use std::collections::BTreeSet;

use sqlx::{AnyPool, Row};

use super::super::rows::number;
use super::super::{Fault, Labels};
use super::select::Select;
use crate::projections::Projections;
use crate::projections::packs::{PACK, Pack, Packed};
use crate::projections::queries::EventQuery;
use crate::projections::rows::EventRow;
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
const MOST: usize = 256;

/// A pack of the table.
#[derive(Debug)]
pub(super) struct StoredPack {
    pub(super) run: u64,
    pub(super) first_seq: u64,
    pack: Pack,
}

impl StoredPack {
    pub(super) fn events(&self) -> impl Iterator<Item = Packed<'_>> {
        self.pack.events(self.first_seq)
    }

    /// Those that a statement finds.
    pub(super) async fn all(select: Select, pool: &AnyPool) -> Result<Vec<StoredPack>, Fault> {
        let rows = select.all(pool, "reading events").await?;
        let packs = rows.iter().map(|row| {
            let pack =
                Pack::read(row.get("body")).map_err(|what| Fault::Row { table: "event_packs", what })?;
            Ok(StoredPack { run: number(row, "run"), first_seq: number(row, "first_seq"), pack })
        });
        packs.collect()
    }
}

impl Projections {
    pub async fn events(&self, query: &EventQuery) -> Result<Vec<EventRow>, Fault> {
        let pool = &self.tables.pool;
        let few = if query.labels.is_empty() { None } else { few_with(pool, &query.labels).await? };
        let asks = !query.labels.is_empty() && few.is_none();
        let Some(mut search) = Search::begin(pool, query, few.as_ref()).await? else { return Ok(Vec::new()) };
        let wanted = Wanted::new(query, few);
        let (limit, mut found, mut many) = (query.limit as usize, Vec::new(), FIRST);
        while found.len() < limit {
            let packs = search.next(pool, many).await?;
            if packs.is_empty() {
                break;
            }
            let mut events = Vec::new();
            for pack in &packs {
                let first = events.len();
                events.extend(pack.events().filter(|event| wanted.has(event)));
                if query.newest_first {
                    events[first..].reverse();
                }
            }
            if asks {
                let bids = events.iter().flat_map(Packed::bidders).flatten().map(|(_, bid)| bid);
                let labelled = those_with(pool, &query.labels, bids.collect()).await?;
                let wanted = Wanted::new(query, Some(labelled));
                events.retain(|event| wanted.has(event));
            }
            for event in events.into_iter().take(limit - found.len()) {
                let broken =
                    |error: prost::DecodeError| Fault::Row { table: "event_packs", what: error.to_string() };
                found.push(event.row().map_err(broken)?);
            }
            many = (many * 4).min(MOST);
        }
        Ok(found)
    }

    /// The last `limit` events of a bid, its nodes and its claims, oldest first.
    pub async fn bid_history(&self, bid: BidId, limit: u32) -> Result<Vec<EventRow>, Fault> {
        self.history(EventQuery { bids: vec![bid], limit, ..EventQuery::default() }).await
    }

    /// The last `limit` events of an allocation and the claims on it, oldest first.
    pub async fn allocation_history(
        &self,
        allocation: AllocationId,
        limit: u32,
    ) -> Result<Vec<EventRow>, Fault> {
        self.history(EventQuery { allocations: vec![allocation], limit, ..EventQuery::default() }).await
    }

    async fn history(&self, query: EventQuery) -> Result<Vec<EventRow>, Fault> {
        let mut events = self.events(&EventQuery { newest_first: true, ..query }).await?;
        events.reverse();
        Ok(events)
    }

    /// Who placed a bid.
    pub(super) async fn bidder(&self, bid: BidId) -> Result<Option<String>, Fault> {
        let mut select = Select::new("SELECT * FROM event_packs");
        select.add(" WHERE first_seq > ? AND first_seq <= ?", &[&bid.0.saturating_sub(PACK), &bid.0]);
        select.add(" ORDER BY first_seq DESC LIMIT 1", &[]);
        let packs = StoredPack::all(select, &self.tables.pool).await?;
        let mut placed = packs.iter().flat_map(StoredPack::events).filter_map(|event| event.placed());
        Ok(placed.find(|(_, number)| *number == bid.0).map(|(tenant, _)| tenant.to_owned()))
    }
}

/// The bids with these labels, where they are few.
async fn few_with(pool: &AnyPool, labels: &Labels) -> Result<Option<BTreeSet<u64>>, Fault> {
    let mut select = Select::new("SELECT DISTINCT b.bid FROM bid_labels b WHERE true");
    if let Some((key, value)) = labels.first_key_value() {
        select.add(" AND b.key = ? AND b.value = ?", &[key, value]);
    }
    select.labelled("b.bid", labels).add(" LIMIT ?", &[&(FEW + 1)]);
    let rows = select.all(pool, "finding bids by label").await?;
    let few = rows.len() <= FEW as usize;
    Ok(few.then(|| rows.iter().map(|row| number(row, 0)).collect()))
}

/// Those of the bids that have these labels.
pub(super) async fn those_with(
    pool: &AnyPool,
    labels: &Labels,
    bids: BTreeSet<u64>,
) -> Result<BTreeSet<u64>, Fault> {
    let bids: Vec<u64> = bids.into_iter().collect();
    let mut found = BTreeSet::new();
    for bids in bids.chunks(MANY) {
        let mut select = Select::new("SELECT DISTINCT b.bid FROM bid_labels b");
        select.one_of(" WHERE b.bid IN ", bids, "").labelled("b.bid", labels);
        let rows = select.all(pool, "reading labels").await?;
        found.extend(rows.iter().map(|row| number(row, 0)));
    }
    Ok(found)
}
