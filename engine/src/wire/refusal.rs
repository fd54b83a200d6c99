//! Explains a refused command: the code, the field, and a sentence with the values that were wrong.

use super::echo::quoted;
use super::status::{ApiError, Code};
use crate::events::visibility::as_missing;
use kubebid_core::command::PlaceBid;
use kubebid_core::event::Scope;
use kubebid_core::units::{BidId, MarketName};
use kubebid_core::{Auction, Command, Exchange, MarketRules, Price, Reject};

/// Explains a refusal. `exchange` is as it was after the command, which has changed nothing.
pub fn refusal(exchange: &Exchange, command: &Command, reject: Reject) -> ApiError {
    let reject = as_missing(command, reject);
    let error = ApiError::new(Code::Market(reject));
    let error = match sentence(exchange, command, reject) {
        Some(said) => error.saying(said),
        None => error,
    };
    match (command, reject) {
        (Command::PlaceBid(bid), Reject::UnknownMarket | Reject::BadMarkets) => {
            error.at(if bid.markets.is_some() { "markets" } else { "instance_type" })
        }
        _ => error,
    }
}

/// Explains the values. `None` means that the sentence of the table in `status.rs` is enough.
fn sentence(exchange: &Exchange, command: &Command, reject: Reject) -> Option<String> {
    match (reject, command) {
        (
            Reject::UnknownMarket,
            Command::OpenMarket { market, .. }
            | Command::ChangeRules { market, .. }
            | Command::PutOffer { market, .. },
        ) => Some(format!("there is no market {}", quoted(market.as_str()))),
        (Reject::MarketExists, Command::OpenMarket { market, .. }) => {
            Some(format!("{market} is open already"))
        }
        (Reject::BadReserve, Command::PutOffer { market, reserve, .. }) => {
            let rules = rules_of(exchange, market)?;
            Some(off_tick("reserve_micros", *reserve, rules.tick, market))
        }
        (Reject::UnknownUnit, Command::WithdrawUnit { unit, .. } | Command::ReportUnitLost { unit, .. }) => {
            Some(format!("you offer no unit {}", quoted(&unit.to_string())))
        }
        (
            Reject::UnknownAllocation,
            Command::ReleaseAllocation { allocation, .. } | Command::ReportReady { allocation, .. },
        ) => Some(format!("you have no allocation {allocation}")),
        (
            Reject::Ended,
            Command::ReleaseAllocation { allocation, .. } | Command::ReportReady { allocation, .. },
        ) => Some(format!("allocation {allocation} has ended")),
        (Reject::UnknownBid, Command::AmendBid { bid, .. } | Command::CancelBid { bid, .. }) => {
            Some(format!("you have no bid {bid}"))
        }
        (Reject::Closed, Command::AmendBid { bid, .. } | Command::CancelBid { bid, .. }) => {
            Some(format!("bid {bid} is closed"))
        }
        (_, Command::PlaceBid(bid)) => of_place_bid(exchange, bid, reject),
        (_, Command::AmendBid { bid, ceiling, max_nodes, .. }) => {
            of_amend_bid(exchange, *bid, *ceiling, *max_nodes, reject)
        }
        _ => None,
    }
}

fn of_place_bid(exchange: &Exchange, bid: &PlaceBid, reject: Reject) -> Option<String> {
    let &PlaceBid { ceiling, min_nodes, max_nodes, .. } = bid;
    if reject == Reject::UnknownMarket {
        let unknown = bid.markets.iter().flatten().find(|market| exchange.market_id(market).is_none())?;
        return Some(format!("there is no market {}", quoted(unknown.as_str())));
    }
    if reject == Reject::BadNodes {
        let must = "1 <= min_nodes <= max_nodes must hold";
        return Some(format!("min_nodes {min_nodes} and max_nodes {max_nodes}: {must}"));
    }
    if reject == Reject::Expired {
        let (at, now) = (bid.expire_at?, exchange.now());
        return Some(format!("expire_at_us {at} is not in the future: the market's time is {now}"));
    }
    of_numbers(exchange, &markets_of(exchange, bid), Some(ceiling), Some(max_nodes), reject)
}

fn of_amend_bid(
    exchange: &Exchange,
    id: BidId,
    ceiling: Option<Price>,
    max_nodes: Option<u32>,
    reject: Reject,
) -> Option<String> {
    let bid = exchange.view_bid(id)?;
    if reject == Reject::BelowHeld {
        let (nodes, live, least) = (max_nodes?, bid.live.len(), bid.min_nodes);
        return Some(format!(
            "max_nodes {nodes} is below the {live} live nodes or min_nodes {least}; release nodes by name"
        ));
    }
    if reject == Reject::Protected {
        let from = bid.ceiling;
        return Some(format!(
            "the ceiling of bid {id} is not lowered from {from} while a node of it is protected"
        ));
    }
    if reject == Reject::BelowReserve {
        return Some(format!("ceiling_micros {} is below the reserve of a node of bid {id}", ceiling?));
    }
    let markets: Vec<MarketName> = match &bid.scope {
        Scope::Markets(markets) => {
            markets.iter().map(|market| exchange.names().market(*market).clone()).collect()
        }
        Scope::InstanceType(kind) => of_type(exchange, kind.as_str()),
    };
    of_numbers(exchange, &markets, ceiling, max_nodes, reject)
}

/// Explains a number by the first market whose rules it breaks.
fn of_numbers(
    exchange: &Exchange,
    markets: &[MarketName],
    ceiling: Option<Price>,
    max_nodes: Option<u32>,
    reject: Reject,
) -> Option<String> {
    let mut all = markets.iter().filter_map(|market| Some((market, rules_of(exchange, market)?)));
    match (reject, ceiling, max_nodes) {
        (Reject::NotATick, Some(Price::ZERO), _) => Some("ceiling_micros is 0".to_owned()),
        (Reject::NotATick, Some(ceiling), _) => {
            let (market, rules) = all.find(|(_, rules)| !ceiling.is_multiple_of(rules.tick))?;
            Some(off_tick("ceiling_micros", ceiling, rules.tick, market))
        }
        (Reject::CeilingTooHigh, Some(ceiling), _) => {
            let (market, rules) = all.find(|(_, rules)| ceiling.0 > rules.ceiling_max)?;
            let most = rules.ceiling_max;
            Some(format!("ceiling_micros {ceiling} is above the ceiling_max {most} of {market}"))
        }
        (Reject::TooManyNodes, _, Some(nodes)) => {
            let (market, rules) = all.find(|(_, rules)| u64::from(nodes) > rules.bid_nodes_max)?;
            let most = rules.bid_nodes_max;
            Some(format!("max_nodes {nodes} is more than the bid_nodes_max {most} of {market}"))
        }
        _ => None,
    }
}

fn off_tick(field: &str, price: Price, tick: u64, market: &MarketName) -> String {
    format!("{field} {price} is not a multiple of the tick {tick} of {market}")
}

fn rules_of<'a>(exchange: &'a Exchange, market: &MarketName) -> Option<&'a MarketRules> {
    exchange.market_id(market).map(|id| exchange.market_rules(id))
}

fn markets_of(exchange: &Exchange, bid: &PlaceBid) -> Vec<MarketName> {
    match (&bid.markets, &bid.instance_type) {
        (Some(markets), _) => markets.clone(),
        (None, Some(kind)) => of_type(exchange, kind.as_str()),
        (None, None) => Vec::new(),
    }
}

fn of_type(exchange: &Exchange, kind: &str) -> Vec<MarketName> {
    exchange.names().markets.iter().filter(|market| market.parts().0 == kind).cloned().collect()
}
