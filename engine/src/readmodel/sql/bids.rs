//! Queries of bids and offers.

use std::collections::BTreeSet;

use sqlx::Row;
use sqlx::any::AnyRow;

use super::schema::{BID_STATE, BIDS, OFFERS};
use super::tables::bids::CLOSE;
use super::words::Word;
use crate::readmodel::ReadModel;
use crate::readmodel::queries::BidQuery;
use crate::readmodel::rows::{BidRow, OfferRow};
use crate::store::reads::Reads;
use crate::store::rows::{number, optional_time, texts, time};
use crate::store::select::Select;
use crate::store::{Fault, Labels};
use kubebid_core::money::Price;
use kubebid_core::units::{BidId, Seq};

/// The least number of rows that one statement of a search reads. The first statement reads as many as
/// the limit, each further one four times as many as the one before.
pub(super) const LEAST_ROWS: usize = 64;
/// The most rows that one statement reads.
pub(super) const MOST_ROWS: usize = 4_096;
/// The most bids in one statement that looks up labels.
const LABELLED: usize = 500;

/// Some bids of a query, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct BidPage {
    /// The bids that were found.
    pub bids: Vec<BidRow>,
    /// The last bid that the search examined, if it stopped before its limit and before the last bid.
    pub stopped_at: Option<u64>,
}

impl ReadModel {
    /// Reads a bid by its number; None if the tables do not have it.
    pub async fn bid(&self, bid: BidId) -> Result<Option<BidRow>, Fault> {
        self.bid_where(bid, None).await
    }

    /// Returns a bid of a tenant. A bid of another tenant looks like one that does not exist.
    pub async fn bid_of(&self, tenant: &str, bid: BidId) -> Result<Option<BidRow>, Fault> {
        self.bid_where(bid, Some(tenant)).await
    }

    async fn bid_where(&self, bid: BidId, tenant: Option<&str>) -> Result<Option<BidRow>, Fault> {
        let mut select = select_bids();
        select.add(" WHERE b.bid = ?", &[&bid.0]);
        if let Some(tenant) = tenant {
            select.add(" AND b.tenant = ?", &[&tenant]);
        }
        let rows = select.all(&self.tables.reads, "reading a bid").await?;
        rows.first().map(read).transpose()
    }

    /// Returns the first bids of a query up to its limit, however many rows it reads.
    pub async fn bids(&self, query: &BidQuery) -> Result<Vec<BidRow>, Fault> {
        Ok(self.bid_page(query, usize::MAX).await?.bids)
    }

    /// Returns the first bids of a query up to its limit. A search that has read `most` rows and has found fewer bids
    /// than the limit stops, and says where.
    pub async fn bid_page(&self, query: &BidQuery, most: usize) -> Result<BidPage, Fault> {
        let (limit, mut bids, mut after, mut have_read) = (query.limit as usize, Vec::new(), query.after, 0);
        let mut count = limit.clamp(LEAST_ROWS, MOST_ROWS);
        loop {
            count = count.min(most.saturating_sub(have_read).max(LEAST_ROWS));
            let mut select = select_bids();
            select.add(" WHERE b.bid > ?", &[&after]);
            if let Some(account) = &query.account {
                select.add(" AND b.tenant = ?", &[account]);
            }
            select.add(" ORDER BY b.bid LIMIT ?", &[&(count as u64)]);
            let rows = select.all(&self.tables.reads, "listing bids").await?;
            have_read += rows.len();
            let is_end = rows.len() < count;
            let read = move || rows.iter().map(read).collect::<Result<Vec<_>, _>>();
            let rows = self.tables.reads.apart(read).await?;
            after = rows.last().map_or(after, |row| row.bid.0);
            let mut found: Vec<BidRow> = rows.into_iter().filter(|row| matches(query, row)).collect();
            if !query.labels.is_empty() {
                let numbers = found.iter().map(|row| row.bid.0).collect();
                let labelled = bids_with_labels(&self.tables.reads, &query.labels, numbers).await?;
                found.retain(|row| labelled.contains(&row.bid.0));
            }
            found.truncate(limit - bids.len());
            bids.extend(found);
            if is_end || bids.len() == limit {
                return Ok(BidPage { bids, stopped_at: None });
            }
            if have_read >= most {
                return Ok(BidPage { bids, stopped_at: Some(after) });
            }
            count = (count * 4).min(MOST_ROWS);
        }
    }

    /// Returns the rows of some bids, in no order.
    pub(super) async fn bids_of_numbers(&self, bids: &[u64]) -> Result<Vec<AnyRow>, Fault> {
        let mut select = select_bids();
        select.one_of(" WHERE b.bid IN ", bids);
        select.all(&self.tables.reads, "reading bids").await
    }

    /// Returns offers as they were last put, by provider and market.
    pub async fn offers(
        &self,
        account: Option<&str>,
        market: Option<&str>,
        limit: u32,
    ) -> Result<Vec<OfferRow>, Fault> {
        let mut select = Select::new("SELECT");
        select.columns("o", OFFERS).add(" FROM offers o WHERE true", &[]);
        if let Some(account) = account {
            select.add(" AND o.provider = ?", &[&account]);
        }
        if let Some(market) = market {
            select.add(" AND o.market = ?", &[&market]);
        }
        select.add(" ORDER BY o.provider, o.market LIMIT ?", &[&limit]);
        let rows = select.all(&self.tables.reads, "listing offers").await?;
        let offers = rows.iter().map(|row| OfferRow {
            provider: row.get("provider"),
            market: row.get("market"),
            capacity: number(row, "capacity"),
            reserve: Price(number(row, "reserve_micros")),
            put_at: time(row, "put_at"),
        });
        Ok(offers.collect())
    }
}

fn select_bids() -> Select {
    let mut select = Select::new("SELECT");
    select.columns("b", BIDS).add(",", &[]).columns("b", BID_STATE).add(" FROM bids b", &[]);
    select
}

/// Returns true if a bid is one that the query asks for, apart from its labels.
fn matches(query: &BidQuery, row: &BidRow) -> bool {
    let looks_in_market = query.market.as_ref().is_none_or(|market| {
        row.markets.iter().any(|name| name == market.as_str())
            || row.instance_type.as_deref() == Some(market.parts().0)
    });
    looks_in_market
        && (query.states.is_empty() || query.states.contains(&row.state))
        && (!query.unmet_only || row.unmet > 0)
}

/// Returns those of the bids that have all of these labels.
pub(super) async fn bids_with_labels(
    reads: &Reads,
    labels: &Labels,
    bids: BTreeSet<u64>,
) -> Result<BTreeSet<u64>, Fault> {
    let bids: Vec<u64> = bids.into_iter().collect();
    let mut found = BTreeSet::new();
    for bids in bids.chunks(LABELLED) {
        let mut select = Select::new("SELECT DISTINCT b.bid FROM bid_labels b");
        select.one_of(" WHERE b.bid IN ", bids).labelled("b.bid", labels);
        let rows = select.all(reads, "reading labels").await?;
        found.extend(rows.iter().map(|row| number(row, 0)));
    }
    Ok(found)
}

fn read(row: &AnyRow) -> Result<BidRow, Fault> {
    let close_reason: Option<String> = row.get("close_reason");
    Ok(BidRow {
        bid: BidId(number(row, "bid")),
        tenant: row.get("tenant"),
        markets: texts(row, "bids", "markets")?,
        instance_type: row.get("instance_type"),
        ceiling: Price(number(row, "ceiling_micros")),
        min_nodes: number(row, "min_nodes") as u32,
        max_nodes: number(row, "max_nodes") as u32,
        time_in_force: Word::read("bids", row.get("time_in_force"))?,
        expire_at: optional_time(row, "expire_at"),
        closes_on_preemption: row.get::<&str, _>("on_preemption") == CLOSE,
        client_key: row.get("client_key"),
        bid_seq: Seq(number(row, "bid_seq")),
        placed_at: time(row, "placed_at"),
        state: Word::read("bids", row.get("state"))?,
        close_reason: close_reason.map(|word| Word::read("bids", &word)).transpose()?,
        closed_at: optional_time(row, "closed_at"),
        held: number(row, "held") as u32,
        under_notice: number(row, "under_notice") as u32,
        claimed: number(row, "claimed") as u32,
        unmet: number(row, "unmet") as u32,
    })
}
