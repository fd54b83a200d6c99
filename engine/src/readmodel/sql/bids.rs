//! Queries of bids and offers.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::Row;
use sqlx::any::AnyRow;

use super::events::{StoredPack, those_with};
use crate::readmodel::ReadModel;
use crate::readmodel::packs::{PACK, RUN};
use crate::readmodel::placed::{PlacedBids, Touched};
use crate::readmodel::queries::BidQuery;
use crate::readmodel::rows::{BidRow, OfferRow};
use crate::store::Fault;
use crate::store::rows::number;
use crate::store::select::Select;
use kubebid_core::money::Price;
use kubebid_core::units::{BidId, Micros};

/// Bids whose state is asked for at once.
const LEAST: usize = 64;
const MANY: usize = 1024;
/// Rows of bids, or packs, in one answer of the database: at first, and then four times as many each time.
const FIRST: u64 = 4;
const MOST: u64 = 64;

/// Some bids of a query, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct BidPage {
    pub bids: Vec<BidRow>,
    /// The bid up to which the search has looked, if it ended before its limit and before the last bid.
    pub stopped_at: Option<u64>,
}

impl ReadModel {
    pub async fn bid(&self, bid: BidId) -> Result<Option<BidRow>, Fault> {
        match self.bidder(bid).await? {
            Some(tenant) => self.bid_of(&tenant, bid).await,
            None => Ok(None),
        }
    }

    /// Reads a bid of a tenant. One of another tenant is looked for and not found as one that does not exist.
    pub async fn bid_of(&self, tenant: &str, bid: BidId) -> Result<Option<BidRow>, Fault> {
        let mut select = placed();
        select.add(" AND account = ? AND run <= ? ORDER BY run DESC LIMIT 1", &[&tenant, &bid.0]);
        let mut bids = self.placed(select).await?;
        bids.retain(|row| row.bid == bid);
        self.bring_up_to_date(&mut bids).await?;
        Ok(bids.pop())
    }

    /// Returns the first bids of a query up to its limit, however many have to be looked at.
    pub async fn bids(&self, query: &BidQuery) -> Result<Vec<BidRow>, Fault> {
        Ok(self.bid_page(query, usize::MAX).await?.bids)
    }

    /// Returns the first bids of a query up to its limit. A search that has looked at so many bids without finding as
    /// many as that stops, and says where.
    pub async fn bid_page(&self, query: &BidQuery, looked_at_most: usize) -> Result<BidPage, Fault> {
        let (limit, mut found, mut looked_at) = (query.limit as usize, Vec::new(), 0);
        let (mut behind, mut many) = (Some(query.after), FIRST);
        while let Some(after) = behind.take().filter(|_| found.len() < limit) {
            let (mut bids, next) = match &query.account {
                Some(account) => self.bids_of(account, after, many).await?,
                None => self.bids_behind(after, many).await?,
            };
            looked_at += bids.len();
            let last = bids.last().map(|row| row.bid.0);
            bids.retain(|row| row.bid.0 > query.after && is_named(query, row));
            let mut bids = &mut bids[..];
            while !bids.is_empty() && found.len() < limit {
                // Those of a page are of one moment, but where some are left out.
                let (now, later) = bids.split_at_mut(limit.clamp(LEAST, MANY).min(bids.len()));
                bids = later;
                self.bring_up_to_date(now).await?;
                let labelled = match &query.labels {
                    none if none.is_empty() => None,
                    labels => {
                        let bids = now.iter().map(|row| row.bid.0).collect();
                        Some(those_with(&self.tables.reads, labels, bids).await?)
                    }
                };
                let wanted = now.iter().filter(|row| {
                    (query.states.is_empty() || query.states.contains(&row.state))
                        && (!query.unmet_only || row.unmet > 0)
                        && labelled.as_ref().is_none_or(|labelled| labelled.contains(&row.bid.0))
                });
                found.extend(wanted.take(limit - found.len()).cloned());
                looked_at += now.len();
                if looked_at >= looked_at_most && found.len() < limit {
                    return Ok(BidPage { bids: found, stopped_at: now.last().map(|row| row.bid.0) });
                }
            }
            if looked_at >= looked_at_most
                && found.len() < limit
                && next.is_some()
                && last > Some(query.after)
            {
                return Ok(BidPage { bids: found, stopped_at: last });
            }
            behind = next;
            many = (many * 4).min(MOST);
        }
        Ok(BidPage { bids: found, stopped_at: None })
    }

    /// Bids of a tenant from the run on that `after` is in, those of so many runs; and behind what to go on.
    async fn bids_of(
        &self,
        tenant: &str,
        after: u64,
        many: u64,
    ) -> Result<(Vec<BidRow>, Option<u64>), Fault> {
        let mut select = placed();
        select.add(" AND account = ? AND run > ?", &[&tenant, &after.saturating_sub(RUN)]);
        select.add(" ORDER BY run LIMIT ?", &[&many]);
        let rows = select.all(&self.tables.reads, "listing bids").await?;
        let more = rows.len() as u64 == many;
        // What begins behind it is behind its run.
        let next = rows.last().filter(|_| more).map(|row| number(row, "run") + RUN);
        Ok((self.tables.reads.apart(move || read_placed(&rows)).await?, next))
    }

    /// The bids that were placed in packs from the one on that `after` is in, so many packs; and behind what to
    /// go on.
    async fn bids_behind(&self, after: u64, many: u64) -> Result<(Vec<BidRow>, Option<u64>), Fault> {
        let mut select = Select::new("SELECT * FROM event_packs");
        select.add(" WHERE first_seq > ?", &[&after.saturating_sub(PACK)]);
        select.add(" ORDER BY first_seq LIMIT ?", &[&many]);
        let packs = StoredPack::all(select, &self.tables.reads).await?;
        let (mut tenants, mut bids) = (BTreeMap::<u64, BTreeSet<&str>>::new(), BTreeSet::new());
        for pack in &packs {
            for (tenant, bid) in pack.events().filter_map(|event| event.placed()) {
                tenants.entry(pack.run).or_default().insert(tenant);
                bids.insert(bid);
            }
        }
        let mut found = Vec::new();
        for (run, tenants) in tenants {
            let tenants: Vec<&str> = tenants.into_iter().collect();
            for tenants in tenants.chunks(MANY) {
                let mut select = placed();
                select.add(" AND run = ?", &[&run]).one_of(" AND account IN ", tenants, "");
                found.extend(self.placed(select).await?);
            }
        }
        found.retain(|row| bids.contains(&row.bid.0));
        found.sort_unstable_by_key(|row| row.bid);
        let more = packs.len() as u64 == many;
        let next = packs.last().filter(|_| more).map(|pack| pack.first_seq + PACK);
        Ok((found, next))
    }

    /// Bids as they were behind their runs.
    async fn placed(&self, select: Select) -> Result<Vec<BidRow>, Fault> {
        let rows = select.all(&self.tables.reads, "reading bids").await?;
        self.tables.reads.apart(move || read_placed(&rows)).await
    }

    /// Gives bids the state that they have at the watermark.
    async fn bring_up_to_date(&self, bids: &mut [BidRow]) -> Result<(), Fault> {
        if bids.is_empty() {
            return Ok(());
        }
        // What a bid is like says the last run that touched it, and why it closed the one in which it did.
        let mut select = Select::new(
            "SELECT b.column1,
                    (SELECT r.state FROM bid_runs r WHERE r.bid = b.column1 AND r.state IS NOT NULL
                     ORDER BY r.run DESC LIMIT 1),
                    (SELECT r.state FROM bid_runs r WHERE r.bid = b.column1 AND r.closed = 1 LIMIT 1)
             FROM",
        );
        let numbers: Vec<u64> = bids.iter().map(|row| row.bid.0).collect();
        select.values(&numbers).add(" b", &[]);
        let rows = select.all(&self.tables.reads, "reading the states of bids").await?;
        let states: BTreeMap<u64, &AnyRow> = rows.iter().map(|row| (number(row, 0), row)).collect();
        for bid in bids {
            let row = states[&bid.bid.0];
            for state in [row.get::<Option<&[u8]>, _>(2), row.get(1)].into_iter().flatten() {
                Touched::change(bid, state).map_err(|what| Fault::Row { table: "bid_runs", what })?;
            }
        }
        Ok(())
    }

    /// Offers as they were last put, by provider and market.
    pub async fn offers(
        &self,
        account: Option<&str>,
        market: Option<&str>,
        limit: u32,
    ) -> Result<Vec<OfferRow>, Fault> {
        let mut select = Select::new("SELECT * FROM offers WHERE true");
        if let Some(account) = account {
            select.add(" AND provider = ?", &[&account]);
        }
        if let Some(market) = market {
            select.add(" AND market = ?", &[&market]);
        }
        select.add(" ORDER BY provider, market LIMIT ?", &[&limit]);
        let rows = select.all(&self.tables.reads, "listing offers").await?;
        let offers = rows.iter().map(|row| OfferRow {
            provider: row.get("provider"),
            market: row.get("market"),
            capacity: number(row, "capacity"),
            reserve: Price(number(row, "reserve")),
            put_at: Micros(number(row, "put_at")),
        });
        Ok(offers.collect())
    }
}

/// It names the market that is asked for, or is of its instance type.
fn is_named(query: &BidQuery, row: &BidRow) -> bool {
    query.market.as_ref().is_none_or(|market| {
        row.markets.iter().any(|name| name == market.as_str())
            || row.instance_type.as_deref() == Some(market.parts().0)
    })
}

/// Returns where bids were placed.
fn placed() -> Select {
    Select::new("SELECT account, run, placed FROM account_runs WHERE placed IS NOT NULL")
}

fn read_placed(rows: &[AnyRow]) -> Result<Vec<BidRow>, Fault> {
    let mut bids = Vec::new();
    for row in rows {
        let placed = PlacedBids::read(row.get("account"), row.get("placed"));
        bids.extend(placed.map_err(|what| Fault::Row { table: "account_runs", what })?);
    }
    Ok(bids)
}
