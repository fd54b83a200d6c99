//! Queries of price changes, and of when markets were opened.

use std::ops::Range;

use sqlx::Row;
use sqlx::any::AnyRow;

use super::schema::{MARKETS, PRICE_CHANGES};
use crate::readmodel::ReadModel;
use crate::readmodel::bars::Bars;
use crate::readmodel::rows::{PriceBar, PricePoint};
use crate::store::Fault;
use crate::store::rows::{number, optional_number, time};
use crate::store::select::Select;
use kubebid_core::money::Price;
use kubebid_core::numbers::Numbers;
use kubebid_core::units::{MarketName, Micros, Seq};

/// The most changes that one statement returns while bars are built.
const PAGE: u32 = 5_000;

/// Some bars of a market's prices, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct BarPage {
    /// The bars that were found.
    pub bars: Vec<PriceBar>,
    /// True if the search ended before its limit and before the last change.
    pub stopped: bool,
}

impl ReadModel {
    /// Returns when the market was opened; None if the tables do not have it.
    pub async fn market_opened_at(&self, market: &MarketName) -> Result<Option<Micros>, Fault> {
        let mut select = Select::new("SELECT");
        select.columns("m", MARKETS).add(" FROM markets m WHERE m.market = ?", &[&market.as_str()]);
        let rows = select.all(&self.tables.reads, "reading a market").await?;
        Ok(rows.first().map(|row| time(row, "opened_at")))
    }

    /// Returns the market's numbers from `since` up to the command `seq`, beginning with those in
    /// force at `since`.
    pub(crate) async fn prices_since(
        &self,
        market: &MarketName,
        since: Micros,
        seq: Seq,
    ) -> Result<Vec<(Micros, Numbers)>, Fault> {
        let before = self.price_before(market, since).await?;
        let mut select = select_changes();
        select.add(" WHERE p.market = ? AND p.at >= ? AND p.seq <= ?", &[&market.as_str(), &since, &seq.0]);
        select.add(" ORDER BY p.at, p.seq, p.idx", &[]);
        let rows = select.all(&self.tables.reads, "reading prices").await?;
        let before = before.filter(|point| point.seq <= seq);
        Ok(before.into_iter().chain(rows.iter().map(read)).map(|point| (point.at, point.numbers)).collect())
    }

    /// Reads changes of the market's numbers in `from..to`, those after the place `after`.
    pub async fn price_points(
        &self,
        market: &MarketName,
        from: Micros,
        to: Option<Micros>,
        after: Option<PricePoint>,
        limit: u32,
    ) -> Result<Vec<PricePoint>, Fault> {
        let mut select = select_changes();
        select.add(" WHERE p.market = ? AND p.at >= ?", &[&market.as_str(), &from]);
        if let Some(to) = to {
            select.add(" AND p.at < ?", &[&to]);
        }
        if let Some(PricePoint { at, seq, index, .. }) = after {
            select.add(" AND (p.at, p.seq, p.idx) > (?, ?, ?)", &[&at, &seq.0, &index]);
        }
        select.add(" ORDER BY p.at, p.seq, p.idx LIMIT ?", &[&limit]);
        let rows = select.all(&self.tables.reads, "reading prices").await?;
        Ok(rows.iter().map(read).collect())
    }

    /// Returns the market price in bars of equal length, beginning with the bar that contains `from`.
    /// Bars before the market was opened are left out. The last one ends at `to`, which should not be
    /// later than the market's time.
    pub async fn price_bars(
        &self,
        market: &MarketName,
        from: Micros,
        to: Micros,
        bar: Micros,
        limit: u32,
    ) -> Result<Vec<PriceBar>, Fault> {
        Ok(self.price_bar_page(market, from..to, bar, limit, usize::MAX).await?.bars)
    }

    /// Works like [`ReadModel::price_bars`]. A search that has examined `most` changes and has a
    /// complete bar stops.
    pub async fn price_bar_page(
        &self,
        market: &MarketName,
        span: Range<Micros>,
        bar: Micros,
        limit: u32,
        looked_at_most: usize,
    ) -> Result<BarPage, Fault> {
        assert!(bar.0 > 0, "a bar has a length");
        let Range { start: from, end: to } = span;
        let none = BarPage { bars: Vec::new(), stopped: false };
        let Some(opened_at) = self.market_opened_at(market).await? else { return Ok(none) };
        let kept_from = self.tables.extent().await?.prices_from;
        let mut opened_at = opened_at.max(kept_from);
        let start = Micros(from.max(opened_at).0 / bar.0 * bar.0);
        let before = self.price_before(market, start).await?;
        if before.is_none() && opened_at == kept_from {
            // The price before the first kept change is not known.
            let first = self.price_points(market, start, Some(to), None, 1).await?;
            let Some(first) = first.first() else { return Ok(none) };
            opened_at = opened_at.max(first.at);
        }
        let mut bars =
            Bars::new(start.max(opened_at), to, bar, limit, before.map(|point| point.numbers.market_price));
        let (mut after, mut looked_at) = (None, 0);
        let many = looked_at_most.clamp(1, PAGE as usize) as u32;
        loop {
            let points = self.price_points(market, start, Some(to), after, many).await?;
            for point in &points {
                bars.change(point.at, point.numbers.market_price);
            }
            if bars.is_full() || points.len() < many as usize {
                return Ok(BarPage { bars: bars.finish(), stopped: false });
            }
            looked_at += points.len();
            if looked_at >= looked_at_most && bars.has_any() {
                return Ok(BarPage { bars: bars.complete(), stopped: true });
            }
            after = points.last().copied();
        }
    }

    async fn price_before(&self, market: &MarketName, at: Micros) -> Result<Option<PricePoint>, Fault> {
        let mut select = select_changes();
        select.add(" WHERE p.market = ? AND p.at < ?", &[&market.as_str(), &at]);
        select.add(" ORDER BY p.at DESC, p.seq DESC, p.idx DESC LIMIT 1", &[]);
        let rows = select.all(&self.tables.reads, "reading prices").await?;
        Ok(rows.first().map(read))
    }
}

fn select_changes() -> Select {
    let mut select = Select::new("SELECT");
    select.columns("p", PRICE_CHANGES).add(" FROM price_changes p", &[]);
    select
}

fn read(row: &AnyRow) -> PricePoint {
    let price = |column| optional_number(row, column).map(Price);
    PricePoint {
        seq: Seq(number(row, "seq")),
        index: row.get::<i64, _>("idx") as u32,
        at: time(row, "at"),
        numbers: Numbers {
            market_price: Price(number(row, "market_price_micros")),
            entry_price: price("entry_price_micros"),
            floor: price("floor_micros"),
            lowest_accepted: price("lowest_accepted_micros"),
            highest_losing: Price(number(row, "highest_losing_micros")),
        },
    }
}
