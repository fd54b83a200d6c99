//! Reads of markets: a list of them, instance types, present prices, depth, past prices.
//!
//! Present numbers come from the views, without SQL and without a lock in the views (docs/lock-freedom.md
//! lists what the request around them locks). Only the entry price for several nodes and the depth are
//! asked of the exchange.

use super::billing::{known, period};
use super::{Api, LOOKED_AT};
use crate::auth::caller::Caller;
use crate::events::message::price_numbers;
use crate::readmodel::rows::PricePoint;
use crate::runtime::views::{MarketView, Markets};
use crate::store;
use crate::wire::cursor::Cursor;
use crate::wire::status::{ApiError, Code};
use crate::wire::{market, page, text};
use kubebid_core::units::{MarketId, MarketName, Micros, Seq};
use kubebid_core::{Auction, MarketState, Reject};
use kubebid_proto::v1;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

impl Api {
    /// Returns the markets that have not ended with their present numbers if callers without a credential may see them.
    pub(crate) fn public_markets(&self) -> Option<Vec<v1::Market>> {
        let markets =
            || self.engine().views().markets().not_ended().map(|view| market::market(&view)).collect();
        self.0.public_markets.then(markets)
    }

    /// ListMarkets: returns a page of markets with their rules, supply and prices.
    pub async fn list_markets(
        &self,
        caller: &Caller,
        request: v1::ListMarketsRequest,
    ) -> Result<v1::ListMarketsResponse, ApiError> {
        let size = page::size(request.page_size);
        let after: Option<u32> = page::after(&request.page_token)?;
        self.applied_up_to(caller, request.min_seq).await?;
        let seq = self.engine().applied();
        let markets = self.engine().views().markets();
        let asked = |view: &MarketView| {
            let (instance_type, region) = view.name.parts();
            after.is_none_or(|after| view.market.0 > after)
                && (request.include_ended || view.state != MarketState::Ended)
                && (request.instance_type.is_empty() || request.instance_type == instance_type)
                && (request.region.is_empty() || request.region == region)
        };
        let mut found: Vec<_> = markets.iter().filter(|view| asked(view)).take(size as usize + 1).collect();
        let end = page::truncate(&mut found, size, |view| view.market.0);
        let found = found.iter().map(|view| (view.market.0, market::market(view)));
        let (markets, next_page_token) = page::fit(found, end);
        Ok(v1::ListMarketsResponse {
            seq,
            markets,
            next_page_token,
            cursor: Cursor::after(self.engine().journal_id(), seq).to_string(),
            journal: self.engine().journal_id().to_string(),
        })
    }

    /// ListInstanceTypes: returns a page of instance types: the described ones, and those that only
    /// have markets.
    pub async fn list_instance_types(
        &self,
        caller: &Caller,
        request: v1::ListInstanceTypesRequest,
    ) -> Result<v1::ListInstanceTypesResponse, ApiError> {
        let size = page::size(request.page_size);
        let after: String = page::after(&request.page_token)?.unwrap_or_default();
        text::text("page_token", &after, text::NOTE)?;
        text::text("name", &request.name, text::NOTE)?;
        self.applied_up_to(caller, request.min_seq).await?;
        let seq = self.engine().applied();
        let rows = self.engine().store().rows();
        let described = if request.name.is_empty() {
            rows.instance_types(&after, size + 1).await?
        } else {
            rows.instance_type(&request.name).await?.into_iter().collect()
        };
        let markets = self.engine().views().markets();
        let mut entries: Vec<_> = entries(described, &markets)
            .into_values()
            .filter(|entry| {
                let name = entry.instance_type.as_ref().map_or("", |known| &known.name[..]);
                name > &after[..] && (request.name.is_empty() || request.name == name)
            })
            .collect();
        let name = |entry: &v1::list_instance_types_response::Entry| {
            entry.instance_type.as_ref().map(|known| known.name.clone()).unwrap_or_default()
        };
        let end = page::truncate(&mut entries, size, name);
        let entries = entries.into_iter().map(|entry| (name(&entry), entry));
        let (entries, next_page_token) = page::fit(entries, end);
        Ok(v1::ListInstanceTypesResponse { seq, entries, next_page_token })
    }

    /// GetMarketPrice: returns the five numbers and the reference price of a market.
    pub async fn get_market_price(
        &self,
        caller: &Caller,
        request: v1::GetMarketPriceRequest,
    ) -> Result<v1::GetMarketPriceResponse, ApiError> {
        if request.market.is_empty() == request.instance_type.is_empty() {
            return Err(ApiError::new(Code::Market(Reject::BadMarkets)).at("market"));
        }
        let nodes = request.nodes.unwrap_or(1);
        if nodes == 0 {
            return Err(ApiError::bad_field("nodes", "must be 1 or more"));
        }
        self.applied_up_to(caller, request.min_seq).await?;
        let mut seq = self.engine().applied();
        let markets = self.engine().views().markets();
        let views: Vec<Arc<MarketView>> = if request.market.is_empty() {
            markets.of_type(&request.instance_type).collect()
        } else {
            vec![self.market_view(&markets, &request.market)?]
        };
        let prices = if nodes == 1 {
            views.iter().map(|view| market::price(view)).collect()
        } else {
            let prices = self.prices_for(caller, &views, nodes).await?;
            seq = prices.first().map_or(seq, |price: &v1::MarketPrice| price.seq);
            prices
        };
        let references = views.iter().filter_map(|view| view.reference_price).min();
        let floors = prices.iter().filter_map(|price| price.numbers?.floor_micros).min();
        Ok(v1::GetMarketPriceResponse {
            seq,
            prices,
            reference_price_micros: references.map(|price| price.0),
            floor_micros: floors,
        })
    }

    /// GetDepth: returns the demand and the supply of a market by price level, without identities.
    pub async fn get_depth(
        &self,
        caller: &Caller,
        request: v1::GetDepthRequest,
    ) -> Result<v1::GetDepthResponse, ApiError> {
        let levels = page::size(request.levels) as usize;
        self.applied_up_to(caller, request.min_seq).await?;
        let id = self.market_view(&self.engine().views().markets(), &request.market)?.market;
        let whose = (!caller.sees_all()).then(|| caller.account.clone());
        let asked = self
            .engine()
            .ask(move |exchange| (exchange.seq(), exchange.depth_for(id, whose.as_ref(), levels)));
        let (seq, depth) = asked.await?;
        Ok(v1::GetDepthResponse {
            seq: seq.0,
            market: request.market,
            demand: depth.demand.iter().map(market::demand_level).collect(),
            supply: depth.supply.iter().map(market::supply_level).collect(),
        })
    }

    /// ListPriceHistory: returns a page of price changes, or of price bars of a given length.
    pub async fn list_price_history(
        &self,
        caller: &Caller,
        request: v1::ListPriceHistoryRequest,
    ) -> Result<v1::ListPriceHistoryResponse, ApiError> {
        let size = page::size(request.page_size);
        let name = self.market_view(&self.engine().views().markets(), &request.market)?.name.clone();
        if request.bar_us > 0 && !(Micros::SECOND.0..=Micros::DAY.0).contains(&request.bar_us) {
            return Err(ApiError::bad_field("bar_us", "is from a second to a day, or 0"));
        }
        let (from, to) = period(request.from_us, request.to_us)?;
        let _turn = self.turn_to_read(caller, request.min_seq).await?;
        let seq = self.engine().projected();
        let from = from.unwrap_or_default();
        let (mut points, mut bars) = (Vec::new(), Vec::new());
        let next_page_token;
        if request.bar_us == 0 {
            let after: Option<PointEnd> = page::after(&request.page_token)?;
            let after = after.map(PointEnd::place);
            let mut rows = self.engine().read_model().price_points(&name, from, to, after, size + 1).await?;
            let end = page::truncate(&mut rows, size, PointEnd::of);
            let rows = rows.iter().map(|point| (PointEnd::of(point), market::past(&name, point)));
            (points, next_page_token) = page::fit(rows, end);
        } else {
            let now = self.market_now().await?;
            let to = to.map_or(now, |to| to.min(now));
            let after: Option<u64> = page::after(&request.page_token)?;
            let from = after.map_or(from, |start| Micros(known(start)).after(Micros(request.bar_us)));
            let (mut rows, mut stopped) = (Vec::new(), false);
            if from < to {
                let (bar, projections) = (Micros(request.bar_us), self.engine().read_model());
                let page = projections.price_bar_page(&name, from..to, bar, size + 1, LOOKED_AT).await?;
                (rows, stopped) = (page.bars, page.stopped);
            }
            let end = page::truncate(&mut rows, size, |bar| bar.start.0);
            // A search that stopped at the most changes that one request may examine is continued there.
            let end = end.or_else(|| rows.last().filter(|_| stopped).map(|bar| bar.start.0));
            (bars, next_page_token) = page::fit(rows.iter().map(|bar| (bar.start.0, market::bar(bar))), end);
        }
        Ok(v1::ListPriceHistoryResponse { seq, points, bars, next_page_token })
    }

    /// Returns the numbers of markets, with the entry price for several nodes, each as of the command that it names. Who
    /// sells in a market, or may be anybody, gets the price for one node: that for more would tell a provider the ceilings
    /// of those who hold its units.
    async fn prices_for(
        &self,
        caller: &Caller,
        views: &[Arc<MarketView>],
        nodes: u32,
    ) -> Result<Vec<v1::MarketPrice>, ApiError> {
        let ids: Vec<MarketId> = views.iter().map(|view| view.market).collect();
        let account = caller.account.clone();
        let asked = self.engine().ask_each(ids, move |exchange, id| {
            let (numbers, supply) = exchange.market_numbers(id);
            let may_sell = account.as_str().is_empty() || exchange.offer_of(id, &account).is_some();
            let nodes = if may_sell { 1 } else { nodes };
            (exchange.seq(), exchange.now(), numbers, supply, (nodes, exchange.entry_price(id, nodes)))
        });
        let numbers = asked.await?;
        let prices = views.iter().zip(numbers).map(|(view, (seq, at, numbers, supply, (nodes, entry)))| {
            let numbers = v1::PriceNumbers {
                entry_price_micros: entry.map(|entry| entry.0),
                ..price_numbers(&numbers)
            };
            v1::MarketPrice {
                numbers: Some(numbers),
                entry_nodes: nodes,
                supply: Some(market::supply(&supply)),
                seq: seq.0,
                at_us: at.0,
                ..market::price(view)
            }
        });
        Ok(prices.collect())
    }

    pub(super) fn market_view(&self, markets: &Markets, name: &str) -> Result<Arc<MarketView>, ApiError> {
        let unknown = || ApiError::new(Code::Market(Reject::UnknownMarket));
        markets.get(&MarketName::new(name)).ok_or_else(unknown)
    }
}

/// Returns the described instance types, and those that are known only from markets.
fn entries(
    described: Vec<store::InstanceType>,
    markets: &Markets,
) -> BTreeMap<String, v1::list_instance_types_response::Entry> {
    // If the page is full, the types after its end belong to the next page.
    let mut entries = BTreeMap::new();
    for known in described {
        let instance_type = v1::InstanceType {
            name: known.name.clone(),
            allocatable: known.allocatable,
            node_labels: known.node_labels,
            on_demand_price_micros: known.on_demand_price_micros,
        };
        let entry = v1::list_instance_types_response::Entry {
            instance_type: Some(instance_type),
            markets: Vec::new(),
        };
        entries.insert(known.name, entry);
    }
    for view in markets.not_ended() {
        let name = view.name.parts().0.to_owned();
        let entry = entries.entry(name.clone()).or_insert_with(|| v1::list_instance_types_response::Entry {
            instance_type: Some(v1::InstanceType { name, ..Default::default() }),
            markets: Vec::new(),
        });
        entry.markets.push(view.name.to_string());
    }
    entries
}

/// The last entry of a page of price changes.
#[derive(Clone, Copy, Debug)]
struct PointEnd {
    at: u64,
    seq: u64,
    index: u32,
}

impl PointEnd {
    fn of(point: &PricePoint) -> PointEnd {
        PointEnd { at: point.at.0, seq: point.seq.0, index: point.index }
    }

    /// Returns the place after this entry.
    fn place(self) -> PricePoint {
        let numbers = kubebid_core::numbers::Numbers::default();
        PricePoint { at: Micros(known(self.at)), seq: Seq(known(self.seq)), index: self.index, numbers }
    }
}

impl fmt::Display for PointEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.at, self.seq, self.index)
    }
}

impl FromStr for PointEnd {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<PointEnd, Self::Err> {
        let mut parts = text.splitn(3, '.');
        let mut part = || parts.next().unwrap_or_default();
        Ok(PointEnd { at: part().parse()?, seq: part().parse()?, index: part().parse()? })
    }
}
