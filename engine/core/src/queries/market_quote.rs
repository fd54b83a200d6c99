//! Quotes for a bid that is not placed: what it would need in each of its markets.

use crate::command::{Command, PlaceBid};
use crate::exchange::Exchange;
use crate::queries::refusal_detail::RefusalDetail;
use crate::queries::unfilled::Unfilled;
use crate::types::money::Price;
use crate::types::reject::Reject;
use crate::types::units::{AccountName, MarketId};

/// The quote of one market.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarketQuote {
    /// The market.
    pub market: MarketId,
    /// The lowest ceiling that gets all of the nodes at once, in micro-dollars per node-hour; None if none does. An
    /// account that sells in the market gets none at any ceiling.
    pub entry_price: Option<Price>,
    /// The market price, in micro-dollars per node-hour.
    pub market_price: Price,
    /// The floor, in micro-dollars per node-hour; None if no unit stays there.
    pub floor: Option<Price>,
    /// The reason why the asked ceiling would not get its nodes at once, or why no ceiling does; None if it would, or
    /// none was asked.
    pub unfilled: Option<Unfilled>,
    /// The nodes that the asked ceiling gets or claims, and that the account can pay for; None if none was asked.
    pub nodes: Option<u32>,
    /// The part of these nodes that are claims; None if no ceiling was asked.
    pub claimed: Option<u32>,
    /// The nodes that the account's funds pay for at the asked ceiling, whatever the market has; None if the account is
    /// unlimited, or if no ceiling was asked.
    pub affordable: Option<u32>,
}

impl Exchange {
    /// Returns the markets of a bid that is to be quoted, after the checks of `PlaceBid` that concern a quote, in
    /// their order. `ceiling` is absent if the quote has none.
    ///
    /// # Errors
    /// The first check that fails, with the value that it was checked against.
    pub fn markets_to_quote(
        &self,
        bid: &PlaceBid,
        ceiling: Option<Price>,
    ) -> Result<Vec<MarketId>, (Reject, RefusalDetail)> {
        self.checked_markets(bid, ceiling).map_err(|reject| {
            let detail = self.reject_detail(&Command::PlaceBid(bid.clone()), reject);
            (reject, detail)
        })
    }

    fn checked_markets(&self, bid: &PlaceBid, ceiling: Option<Price>) -> Result<Vec<MarketId>, Reject> {
        let named = bid.markets.iter().flatten();
        let named = named.map(|name| self.market_id(name).ok_or(Reject::UnknownMarket));
        let named = named.collect::<Result<Vec<_>, _>>()?;
        let are_distinct = named.iter().enumerate().all(|(n, market)| !named[..n].contains(market));
        let markets = match (&bid.markets, &bid.instance_type) {
            (Some(_), None) if are_distinct => named,
            (None, Some(instance_type)) => {
                let mut markets = self.markets_of_type(instance_type.as_str());
                markets.retain(|market| self.is_open(*market));
                markets
            }
            (Some(_), None | Some(_)) | (None, None) => return Err(Reject::BadMarkets),
        };
        if markets.iter().any(|market| !self.is_open(*market)) {
            return Err(Reject::MarketClosed);
        }
        if bid.max_nodes == 0 {
            return Err(Reject::BadNodes);
        }
        let rules = || markets.iter().map(|market| self.market_rules(*market));
        if rules().any(|rules| u64::from(bid.max_nodes) > rules.bid_nodes_max) {
            return Err(Reject::TooManyNodes);
        }
        if let Some(ceiling) = ceiling {
            if ceiling == Price::ZERO || rules().any(|rules| !ceiling.is_multiple_of(rules.tick)) {
                return Err(Reject::NotATick);
            }
            if rules().any(|rules| ceiling.0 > rules.ceiling_max) {
                return Err(Reject::CeilingTooHigh);
            }
        }
        Ok(markets)
    }

    /// Returns the quote of a market for a new bid of an account.
    pub fn quote_market(
        &self,
        market: MarketId,
        tenant: &AccountName,
        ceiling: Option<Price>,
        nodes: u32,
    ) -> MarketQuote {
        let (numbers, _) = self.market_numbers(market);
        let sells = self.offer_of(market, tenant).is_some();
        // The entry price of several nodes would tell a provider the ceilings of those who hold its units.
        let entry_price = if sells { None } else { self.entry_price_of(market, nodes) };
        let affordable = ceiling.and_then(|ceiling| self.affordable_nodes(tenant, market, ceiling));
        let (unfilled, taken) = match ceiling {
            _ if sells => (Some(Unfilled::OwnSupply), ceiling.map(|_| (0, 0))),
            None => (None, None),
            Some(ceiling) => {
                let paid = affordable.unwrap_or(nodes).min(nodes);
                let unfilled = match self.quoted_obstacle(market, ceiling, nodes, entry_price) {
                    None if paid < nodes => Some(Unfilled::NoFunds),
                    Some(_) if paid == 0 => Some(Unfilled::NoFunds),
                    unfilled => unfilled,
                };
                (unfilled, Some(self.would_take(market, ceiling, paid)))
            }
        };
        MarketQuote {
            market,
            entry_price,
            market_price: numbers.market_price,
            floor: numbers.floor,
            unfilled,
            nodes: taken.map(|(nodes, _)| nodes),
            claimed: taken.map(|(_, claimed)| claimed),
            affordable,
        }
    }

    /// Returns the reason why a new tenant's bid with this ceiling would not get its nodes at once.
    fn quoted_obstacle(
        &self,
        market: MarketId,
        ceiling: Price,
        nodes: u32,
        entry_price: Option<Price>,
    ) -> Option<Unfilled> {
        let affords = |price: Option<Price>| price.is_some_and(|price| price <= ceiling);
        if affords(entry_price) {
            return None;
        }
        let (numbers, _) = self.market_numbers(market);
        if numbers.floor.is_none() {
            return Some(Unfilled::NoSupply);
        }
        if !affords(numbers.floor) {
            return Some(Unfilled::BelowFloor);
        }
        if nodes > 1 && affords(self.entry_price_of(market, 1)) {
            return Some(Unfilled::MinimumNotMet);
        }
        // The ceiling is high enough for the lowest node, which is protected (R4).
        let rules = self.market_rules(market);
        let waits = affords(numbers.lowest_accepted.map(|lowest| rules.needed(lowest)));
        Some(if waits { Unfilled::WaitingForProtectedNode } else { Unfilled::BelowNeededCeiling })
    }
}
