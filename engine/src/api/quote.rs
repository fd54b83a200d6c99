//! Quotes: what a bid would get at present and at which price, without placing it.

use super::Api;
use crate::auth::caller::Caller;
use crate::wire::refusal::refusal;
use crate::wire::status::ApiError;
use crate::wire::{bid, command};
use kubebid_core::units::Names;
use kubebid_core::views::MarketQuote;
use kubebid_core::{Command, Price, Reject};
use kubebid_proto::v1;
use v1::quote_bid_response::Quote;

impl Api {
    /// QuoteBid: says what a bid would get at present and at which price, without placing it.
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
            let markets = exchange.markets_to_quote(&like, asked);
            (exchange.seq().0, like, markets)
        });
        let (seq, like, markets) = asked_of.await?;
        let markets = markets.map_err(|(reject, detail)| {
            let error = refusal(&Command::PlaceBid(like), reject, &detail);
            if error.field.as_deref() == Some("max_nodes") || reject == Reject::BadNodes {
                let message = error.message.replace("max_nodes", "nodes");
                return error.saying(message).at("nodes");
            }
            error
        })?;
        let quoted = self
            .0
            .engine
            .ask_each(markets, move |exchange, market| exchange.quote_market(market, &tenant, asked, nodes));
        let mut quotes = quoted.await?;
        // The sort is stable, so that of equal prices the first market comes first.
        quotes.sort_by_key(|quote| quote.entry_price.unwrap_or(Price(u64::MAX)));
        let names = self.0.engine.views().names();
        let quotes = quotes.into_iter().map(|quote| message(&names, quote)).collect();
        Ok(v1::QuoteBidResponse { seq, quotes })
    }
}

fn message(names: &Names, quote: MarketQuote) -> Quote {
    Quote {
        market: names.market(quote.market).to_string(),
        entry_price_micros: quote.entry_price.map(|price| price.0),
        market_price_micros: quote.market_price.0,
        floor_micros: quote.floor.map(|price| price.0),
        unfilled_reason: quote.unfilled.map(|reason| bid::unfilled(reason).into()),
        nodes: quote.nodes,
        claimed: quote.claimed,
    }
}
