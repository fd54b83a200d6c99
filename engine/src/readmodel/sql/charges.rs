//! Queries of charges, their segments, and running nodes.

use std::collections::BTreeMap;

use sqlx::Row;
use sqlx::any::AnyRow;

use super::allocations::select_allocations;
use super::schema::{CHARGE_SEGMENTS, CHARGES};
use super::words::Word;
use crate::readmodel::ReadModel;
use crate::readmodel::queries::ChargeQuery;
use crate::readmodel::rows::{ChargeRow, Mark, RunningRow, Segment};
use crate::store::Fault;
use crate::store::rows::{number, time};
use crate::store::select::Select;
use kubebid_core::event::ChargeReason;
use kubebid_core::money::{Amount, Price};
use kubebid_core::units::{AllocationId, BidId, Micros, Seq};

/// The most allocations in one statement.
const MANY: usize = 1_000;

/// The allocation and, for a claim on it, the place of the charge; zeros otherwise.
type Key = (u64, u64, u64);

/// Some rows of a query, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct BilledPage<T> {
    /// The rows that were found.
    pub rows: Vec<T>,
    /// True if the search stopped before its limit because the rows have many segments.
    pub stopped: bool,
}

impl ReadModel {
    /// Reads the first charges of a query up to its limit, however many segments they have.
    pub async fn charges(&self, query: &ChargeQuery) -> Result<Vec<ChargeRow>, Fault> {
        Ok(self.charge_page(query, u64::MAX).await?.rows)
    }

    /// Reads the first charges of a query up to its limit, and only so many of them that they have about `most`
    /// segments together, but at least one.
    pub async fn charge_page(&self, query: &ChargeQuery, most: u64) -> Result<BilledPage<ChargeRow>, Fault> {
        let mut select = Select::new("SELECT");
        select.columns("c", CHARGES).add(" FROM (", &[]);
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
        select.add(") c ORDER BY c.seq, c.idx LIMIT ?", &[&query.limit]);
        let rows = select.all(&self.tables.reads, "listing charges").await?;
        let mut charges = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let mut stopped = false;
        if !query.brief {
            stopped = limit_segments(&mut charges, most, |charge| (charge.from, charge.to));
            let allocations: Vec<u64> = charges.iter().map(|charge| charge.allocation.0).collect();
            let mut segments = self.segments(&allocations).await?;
            for charge in &mut charges {
                let of_claim = charge.reason == ChargeReason::ClaimDropped;
                let key = if of_claim { (charge.seq.0, charge.index.into()) } else { (0, 0) };
                let found = segments.remove(&(charge.allocation.0, key.0, key.1)).unwrap_or_default();
                charge.segments = found.into_iter().map(|(segment, _)| segment).collect();
            }
        }
        Ok(BilledPage { rows: charges, stopped })
    }

    /// Reads the nodes that are being billed, after the allocation `after`, up to the limit of the query. The fields
    /// `from`, `to` and `after` of the query have no effect.
    pub async fn running(&self, query: &ChargeQuery, after: AllocationId) -> Result<Vec<RunningRow>, Fault> {
        Ok(self.running_page(query, after, Micros(0), u64::MAX).await?.rows)
    }

    /// Works like [`ReadModel::running`], and reads only so many nodes that they have about `most` segments together
    /// at the time `now`, but at least one.
    pub async fn running_page(
        &self,
        query: &ChargeQuery,
        after: AllocationId,
        now: Micros,
        most: u64,
    ) -> Result<BilledPage<RunningRow>, Fault> {
        let mut select = select_allocations();
        select.add(" FROM allocations a WHERE a.state = 'ACTIVE'", &[]);
        select.add(" AND a.ended_at IS NULL AND a.allocation > ?", &[&after.0]);
        match &query.account {
            None => {}
            Some(account) if query.bid.is_some() || !query.labels.is_empty() => {
                select.add(" AND a.tenant = ?", &[account]);
            }
            Some(account) => {
                select.add(" AND (a.tenant = ? OR a.provider = ?)", &[account, account]);
            }
        }
        if let Some(market) = &query.market {
            select.add(" AND a.market = ?", &[market]);
        }
        if let Some(bid) = query.bid {
            select.add(" AND a.bid = ?", &[&bid.0]);
        }
        if let Some(allocation) = query.allocation {
            select.add(" AND a.allocation = ?", &[&allocation.0]);
        }
        select.labelled("a.bid", &query.labels);
        select.add(" ORDER BY a.allocation LIMIT ?", &[&query.limit]);
        let mut rows = select.all(&self.tables.reads, "listing running nodes").await?;
        let stopped = !query.brief && limit_segments(&mut rows, most, |row| (time(row, "ready_at"), now));
        let allocations: Vec<u64> = rows.iter().map(|row| number(row, "allocation")).collect();
        let mut segments = self.segments(&allocations).await?;
        let running = rows.iter().map(|row| {
            let allocation = number(row, "allocation");
            let ready_at = time(row, "ready_at");
            let found = segments.remove(&(allocation, 0, 0)).unwrap_or_default();
            let mark = found.last().map_or(Mark::start(ready_at), |(_, mark)| *mark);
            let segments = found.into_iter().map(|(segment, _)| segment);
            RunningRow {
                allocation: AllocationId(allocation),
                bid: BidId(number(row, "bid")),
                tenant: row.get("tenant"),
                provider: row.get("provider"),
                unit: row.get("unit"),
                market: row.get("market"),
                ready_at,
                segments: if query.brief { Vec::new() } else { segments.collect() },
                mark,
            }
        });
        Ok(BilledPage { rows: running.collect(), stopped })
    }

    /// Reads segments by what they belong to, oldest first, each with the mark at its end.
    async fn segments(&self, allocations: &[u64]) -> Result<BTreeMap<Key, Vec<(Segment, Mark)>>, Fault> {
        let mut found: BTreeMap<Key, Vec<(Segment, Mark)>> = BTreeMap::new();
        for allocations in allocations.chunks(MANY) {
            let mut select = Select::new("SELECT");
            select.columns("s", CHARGE_SEGMENTS).add(" FROM charge_segments s", &[]);
            select.one_of(" WHERE s.allocation IN ", allocations);
            select.add(" ORDER BY s.allocation, s.claim_seq, s.claim_idx, s.from_at", &[]);
            for row in select.all(&self.tables.reads, "reading charges").await? {
                let key = (number(&row, "allocation"), number(&row, "claim_seq"), number(&row, "claim_idx"));
                let mark = super::watermark::mark(&row);
                let segment = Segment {
                    from: time(&row, "from_at"),
                    to: mark.at,
                    fee: row.get("fee_micros"),
                    amount: Amount(number(&row, "amount_micros").into()),
                    mean_price: Price(number(&row, "mean_price_micros")),
                    min_charge: number(&row, "min_charge") == 1,
                };
                found.entry(key).or_default().push((segment, mark));
            }
        }
        Ok(found)
    }
}

/// Drops the rows after those that have about `most` segments together, except the first row. `billed` returns the
/// billed time of a row. Returns true if rows were dropped.
fn limit_segments<T>(rows: &mut Vec<T>, most: u64, billed: impl Fn(&T) -> (Micros, Micros)) -> bool {
    let mut segments = 0_u64;
    let fits = |row: &&T| {
        let (from, to) = billed(row);
        // A segment ends at every full hour.
        segments =
            segments.saturating_add(1 + (to.0 / Micros::HOUR.0).saturating_sub(from.0 / Micros::HOUR.0));
        segments <= most
    };
    let fitting = rows.iter().take_while(fits).count().max(1);
    let dropped = fitting < rows.len();
    rows.truncate(fitting);
    dropped
}

/// Selects the charges of an account on one side; each side has its own index.
fn side(select: &mut Select, query: &ChargeQuery, account: Option<(&str, &String)>) {
    select.add("SELECT c.* FROM charges c WHERE true", &[]);
    if let Some((column, account)) = account {
        select.add(&format!(" AND c.{column} = ?"), &[account]);
        // The payer of a claim may not know which node the claim was on.
        if column == "tenant" && query.allocation.is_some() {
            select.add(" AND c.own", &[]);
        }
    }
    if let Some(from) = query.from {
        select.add(" AND c.at >= ?", &[&from]);
    }
    if let Some(to) = query.to {
        select.add(" AND c.at < ?", &[&to]);
    }
    if let Some(market) = &query.market {
        select.add(" AND c.market = ?", &[market]);
    }
    if let Some(bid) = query.bid {
        select.add(" AND c.bid = ?", &[&bid.0]);
    }
    if let Some(allocation) = query.allocation {
        select.add(" AND c.allocation = ?", &[&allocation.0]);
    }
    if let Some((seq, index)) = query.after {
        select.add(" AND (c.seq, c.idx) > (?, ?)", &[&seq, &index]);
    }
    select.labelled("c.bid", &query.labels);
    select.add(" ORDER BY c.seq, c.idx LIMIT ?", &[&query.limit]);
}

fn read(row: &AnyRow) -> Result<ChargeRow, Fault> {
    Ok(ChargeRow {
        seq: Seq(number(row, "seq")),
        index: row.get::<i64, _>("idx") as u32,
        at: time(row, "at"),
        allocation: AllocationId(number(row, "allocation")),
        bid: BidId(number(row, "bid")),
        tenant: row.get("tenant"),
        provider: row.get("provider"),
        unit: row.get("unit"),
        market: row.get("market"),
        own: number(row, "own") == 1,
        reason: Word::read("charges", row.get("reason"))?,
        from: time(row, "from_at"),
        to: time(row, "to_at"),
        debit: Amount(number(row, "debit_micros").into()),
        fee: Amount(number(row, "fee_micros").into()),
        credit: Amount(number(row, "credit_micros").into()),
        segments: Vec::new(),
    })
}
