//! Queries of allocations.

use sqlx::Row;
use sqlx::any::AnyRow;

use super::schema::{ALLOCATION_STATE, ALLOCATIONS};
use super::words::Word;
use crate::readmodel::ReadModel;
use crate::readmodel::queries::AllocationQuery;
use crate::readmodel::rows::{AllocationRow, NoticeRow};
use crate::store::Fault;
use crate::store::rows::{number, optional_number, optional_time, time};
use crate::store::select::Select;
use kubebid_core::money::Price;
use kubebid_core::units::{AllocationId, BidId};

impl ReadModel {
    /// Reads an allocation by its number; None if the tables do not have it.
    pub async fn allocation(&self, allocation: AllocationId) -> Result<Option<AllocationRow>, Fault> {
        self.allocation_of(None, allocation).await
    }

    /// Reads an allocation, if `party` is its tenant or its provider. Without a party, reads every
    /// allocation.
    pub async fn allocation_of(
        &self,
        party: Option<&str>,
        allocation: AllocationId,
    ) -> Result<Option<AllocationRow>, Fault> {
        let mut select = select_allocations();
        select.add(" FROM allocations a WHERE a.allocation = ?", &[&allocation.0]);
        if let Some(party) = party {
            select.add(" AND (a.tenant = ? OR a.provider = ?)", &[&party, &party]);
        }
        let rows = select.all(&self.tables.reads, "reading an allocation").await?;
        rows.first().map(read).transpose()
    }

    /// Reads a page of allocations.
    pub async fn allocations(&self, query: &AllocationQuery) -> Result<Vec<AllocationRow>, Fault> {
        let mut select = select_allocations();
        select.add(" FROM (", &[]);
        match &query.account {
            None => side(&mut select, query, None),
            Some(account) if query.bid.is_some() || !query.labels.is_empty() => {
                side(&mut select, query, Some(("tenant", account)));
            }
            Some(account) => {
                select.add("SELECT * FROM (", &[]);
                side(&mut select, query, Some(("tenant", account)));
                select.add(") t UNION SELECT * FROM (", &[]);
                side(&mut select, query, Some(("provider", account)));
                select.add(") p", &[]);
            }
        }
        select.add(") a ORDER BY a.allocation LIMIT ?", &[&query.limit]);
        let rows = select.all(&self.tables.reads, "listing allocations").await?;
        rows.iter().map(read).collect()
    }
}

pub(super) fn select_allocations() -> Select {
    let mut select = Select::new("SELECT");
    select.columns("a", ALLOCATIONS).add(",", &[]).columns("a", ALLOCATION_STATE);
    select
}

/// Selects the allocations of an account on one side; each side has its own index.
fn side(select: &mut Select, query: &AllocationQuery, account: Option<(&str, &String)>) {
    select.add("SELECT a.* FROM allocations a WHERE a.allocation > ?", &[&query.after]);
    if let Some((column, account)) = account {
        select.add(&format!(" AND a.{column} = ?"), &[account]);
    }
    if let Some(bid) = query.bid {
        select.add(" AND a.bid = ?", &[&bid.0]);
    }
    if let Some(market) = &query.market {
        select.add(" AND a.market = ?", &[market]);
    }
    if let Some(unit) = &query.unit {
        select.add(" AND a.unit = ?", &[unit]);
    }
    let states: Vec<&str> = query.states.iter().map(|state| state.word()).collect();
    select.one_of(" AND a.state IN ", &states);
    if query.under_notice_only {
        select.add(" AND a.notice_reason IS NOT NULL AND a.ended_at IS NULL", &[]);
    }
    select.labelled("a.bid", &query.labels);
    select.add(" ORDER BY a.allocation LIMIT ?", &[&query.limit]);
}

fn read(row: &AnyRow) -> Result<AllocationRow, Fault> {
    let reason: Option<String> = row.get("notice_reason");
    let reason = reason.map(|word| Word::read("allocations", &word)).transpose()?;
    let notice = reason.map(|reason| NoticeRow {
        reason,
        started_at: time(row, "notice_started_at"),
        deadline: time(row, "notice_deadline"),
    });
    let end_reason: Option<String> = row.get("end_reason");
    Ok(AllocationRow {
        allocation: AllocationId(number(row, "allocation")),
        bid: BidId(number(row, "bid")),
        tenant: row.get("tenant"),
        unit: row.get("unit"),
        market: row.get("market"),
        provider: row.get("provider"),
        state: Word::read("allocations", row.get("state"))?,
        allocated_at: time(row, "allocated_at"),
        start_by: time(row, "start_by"),
        ready_at: optional_time(row, "ready_at"),
        protected_until: time(row, "protected_until"),
        notice,
        ended_at: optional_time(row, "ended_at"),
        end_reason: end_reason.map(|word| Word::read("allocations", &word)).transpose()?,
        last_price: optional_number(row, "last_price_micros").map(Price),
    })
}
