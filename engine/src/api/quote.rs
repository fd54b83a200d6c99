//! QuoteBid.

use super::Api;
use crate::auth::caller::Caller;
use crate::wire::refusal::refusal;
use crate::wire::status::ApiError;
use crate::wire::{bid, command};
use kubebid_core::command::PlaceBid;
use kubebid_core::units::{AccountName, MarketId};
use kubebid_core::views::Unfilled;
use kubebid_core::{Auction, Command, Exchange, Price, Reject};
use kubebid_proto::v1;
use v1::quote_bid_response::Quote;

impl Api {
    pub async fn quote_bid(
        &self,
        caller: &Caller,
        request: v1::QuoteBidRequest,
    ) -> Result<v1::QuoteBidResponse, ApiError> {
        self.applied_up_to(caller, request.min_seq).await?;
        let asked = request.ceiling_micros.map(Price);
        let nodes = request.nodes.unwrap_or(1);
        let mut like = v1::PlaceBidRequest {
            markets: request.markets,
            instance_type: request.instance_type,
            ceiling_micros: asked.map_or(0, |ceiling| ceiling.0),
            max_nodes: nodes,
            ..v1::PlaceBidRequest::default()
        };
        let (_, like, _) = command::place_bid(&caller.account, &mut like, &mut None)?;
        let tenant = like.tenant.clone();
        let asked_of = self.0.engine.ask(move |exchange| {
            let markets = markets(exchange, &like, asked).map_err(|reject| {
                let error = refusal(exchange, &Command::PlaceBid(like.clone()), reject);
                if error.field.as_deref() == Some("max_nodes") || reject == Reject::BadNodes {
                    let message = error.message.replace("max_nodes", "nodes");
                    return error.saying(message).at("nodes");
                }
                error
            })?;
            Ok::<_, ApiError>((exchange.seq().0, markets))
        });
        let (seq, markets) = asked_of.await??;
        let quoted = self
            .0
            .engine
            .ask_each(markets, move |exchange, market| quote(exchange, market, &tenant, asked, nodes));
        let mut quotes = quoted.await?;
        // Stable: the first market comes first.
        quotes.sort_by_key(|quote| quote.entry_price_micros.unwrap_or(u64::MAX));
        Ok(v1::QuoteBidResponse { seq, quotes })
    }
}

/// Returns the markets of such a bid, after the checks of PlaceBid that concern a quote, in their order.
fn markets(exchange: &Exchange, like: &PlaceBid, asked: Option<Price>) -> Result<Vec<MarketId>, Reject> {
    let named =
        like.markets.iter().flatten().map(|name| exchange.market_id(name).ok_or(Reject::UnknownMarket));
    let named = named.collect::<Result<Vec<_>, _>>()?;
    let markets = match (&like.markets, &like.instance_type) {
        (Some(_), None) if named.iter().enumerate().all(|(n, market)| !named[..n].contains(market)) => named,
        (None, Some(kind)) => {
            let all = exchange.names().markets.iter().filter(|name| name.parts().0 == kind.as_str());
            all.filter_map(|name| exchange.market_id(name)).collect()
        }
        (Some(_), None | Some(_)) | (None, None) => return Err(Reject::BadMarkets),
    };
    if like.max_nodes == 0 {
        return Err(Reject::BadNodes);
    }
    let rules = || markets.iter().map(|market| exchange.market_rules(*market));
    if rules().any(|rules| u64::from(like.max_nodes) > rules.bid_nodes_max) {
        return Err(Reject::TooManyNodes);
    }
    if let Some(ceiling) = asked {
        if ceiling == Price::ZERO || rules().any(|rules| !ceiling.is_multiple_of(rules.tick)) {
            return Err(Reject::NotATick);
        }
        if rules().any(|rules| ceiling.0 > rules.ceiling_max) {
            return Err(Reject::CeilingTooHigh);
        }
    }
    Ok(markets)
}

fn quote(
    exchange: &Exchange,
    market: MarketId,
    tenant: &AccountName,
    asked: Option<Price>,
    nodes: u32,
) -> Quote {
    let entry = exchange.entry_price(market, nodes);
    let (numbers, _) = exchange.market_numbers(market);
    let sells =
        || exchange.account_id(tenant).and_then(|tenant| exchange.view_offer(market, tenant)).is_some();
    let reason = asked.and_then(|ceiling| {
        if sells() { Some(Unfilled::OwnSupply) } else { obstacle(exchange, market, ceiling, nodes, entry) }
    });
    Quote {
        market: exchange.names().market(market).to_string(),
        entry_price_micros: entry.map(|price| price.0),
        market_price_micros: numbers.market_price.0,
        floor_micros: numbers.floor.map(|price| price.0),
        unfilled_reason: reason.map(|reason| bid::unfilled(reason).into()),
    }
}

/// Why a new tenant's bid at this ceiling would not get its nodes at once.
fn obstacle(
    exchange: &Exchange,
    market: MarketId,
    ceiling: Price,
    nodes: u32,
    entry: Option<Price>,
) -> Option<Unfilled> {
    let affords = |price: Option<Price>| price.is_some_and(|price| price <= ceiling);
    if affords(entry) {
        return None;
    }
    let (numbers, _) = exchange.market_numbers(market);
    if numbers.floor.is_none() {
        return Some(Unfilled::NoSupply);
    }
    if !affords(numbers.floor) {
        return Some(Unfilled::BelowFloor);
    }
    if nodes > 1 && affords(exchange.entry_price(market, 1)) {
        return Some(Unfilled::MinimumNotMet);
    }
    // High enough for the lowest node, but for its protection (R4).
    let rules = exchange.market_rules(market);
    let waits = affords(numbers.lowest_accepted.map(|lowest| rules.needed(lowest)));
    Some(if waits { Unfilled::WaitingForProtectedNode } else { Unfilled::BelowNeededCeiling })
}
