//! Bids and offers.

use sqlx::Row;
use sqlx::any::AnyRow;

use super::super::rows::{number, optional_number};
use super::super::{Fault, sought};
use super::select::Select;
use super::words::Word;
use crate::projections::Projections;
use crate::projections::queries::BidQuery;
use crate::projections::rows::{BidRow, OfferRow};
use kubebid_core::money::Price;
use kubebid_core::units::{BidId, Micros, Seq};

impl Projections {
    pub async fn bid(&self, bid: BidId) -> Result<Option<BidRow>, Fault> {
        let rows = sqlx::query("SELECT * FROM bids WHERE bid = $1")
            .bind(sought(bid.0))
            .fetch_optional(&self.tables.pool)
            .await
            .map_err(Fault::database("reading a bid"))?;
        rows.map(|row| read(&row)).transpose()
    }

    pub async fn bids(&self, query: &BidQuery) -> Result<Vec<BidRow>, Fault> {
        let mut select = Select::new("SELECT b.* FROM bids b WHERE");
        select.add(" b.bid > ?", &[&query.after]);
        if let Some(account) = &query.account {
            select.add(" AND b.tenant = ?", &[account]);
        }
        if let Some(market) = &query.market {
            let name = market.as_str();
            select.add(
                " AND (b.market = ? OR b.instance_type = ? OR EXISTS (
                     SELECT 1 FROM bid_markets m WHERE m.market = ? AND m.bid = b.bid))",
                &[&name, &market.parts().0, &name],
            );
        }
        let states: Vec<&str> = query.states.iter().map(|state| state.word()).collect();
        select.one_of(" AND b.state IN ", &states, "");
        if query.unmet_only {
            select.add(" AND b.unmet > 0", &[]);
        }
        select.labelled("b.bid", &query.labels);
        select.add(" ORDER BY b.bid LIMIT ?", &[&query.limit]);
        let rows = select.all(&self.tables.pool, "listing bids").await?;
        rows.iter().map(read).collect()
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
        let rows = select.all(&self.tables.pool, "listing offers").await?;
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

fn read(row: &AnyRow) -> Result<BidRow, Fault> {
    let (market, several): (Option<String>, Option<String>) = (row.get("market"), row.get("markets"));
    let several = several.map(|list| {
        serde_json::from_str(&list).map_err(|e| Fault::Row { table: "bids", what: format!("markets: {e}") })
    });
    let several: Option<Vec<String>> = several.transpose()?;
    let close_reason: Option<String> = row.get("close_reason");
    Ok(BidRow {
        bid: BidId(number(row, "bid")),
        tenant: row.get("tenant"),
        markets: several.unwrap_or_else(|| market.into_iter().collect()),
        instance_type: row.get("instance_type"),
        ceiling: Price(number(row, "ceiling")),
        min_nodes: number(row, "min_nodes") as u32,
        max_nodes: number(row, "max_nodes") as u32,
        time_in_force: Word::read("bids", row.get("tif"))?,
        expire_at: optional_number(row, "expire_at").map(Micros),
        closes_on_preemption: row.get::<&str, _>("on_preemption") == "CLOSE",
        client_key: row.get("client_key"),
        bid_seq: Seq(number(row, "bid_seq")),
        placed_at: Micros(number(row, "placed_at")),
        state: Word::read("bids", row.get("state"))?,
        close_reason: close_reason.map(|word| Word::read("bids", &word)).transpose()?,
        closed_at: optional_number(row, "closed_at").map(Micros),
        held: number(row, "held") as u32,
        under_notice: number(row, "under_notice") as u32,
        claimed: number(row, "claimed") as u32,
        unmet: number(row, "unmet") as u32,
    })
}
