//! Explains a refused command: the code, the field, and a sentence with the values that were wrong.

use super::echo::quoted;
use super::status::{ApiError, Code};
use crate::events::visibility::as_missing;
use kubebid_core::command::{
    FUND_MAX, FundChange, PlaceBid, RENEWAL_RANGE, RestingUnits, RuleChange, RuleValue, TimeInForce,
};
use kubebid_core::market_rules::OFFER_UNITS_MAX;
use kubebid_core::units::BidId;
use kubebid_core::views::RefusalDetail;
use kubebid_core::{Command, MarketRules, Price, Reject};

/// Explains a refusal. `detail` is the value of the exchange that the command contradicts.
pub(crate) fn refusal(command: &Command, reject: Reject, detail: &RefusalDetail) -> ApiError {
    let reject = as_missing(command, reject);
    let error = ApiError::new(Code::Market(reject));
    let error = match sentence(command, reject, detail) {
        Some(said) => error.saying(said),
        None => error,
    };
    match (command, reject) {
        (Command::PlaceBid(bid), Reject::BadNodes) if bid.max_nodes == 0 => error.at("max_nodes"),
        (Command::PlaceBid(PlaceBid { time_in_force: TimeInForce::Gtt, .. }), Reject::BadTif) => {
            error.at("expire_at_us")
        }
        (Command::PlaceBid(bid), Reject::UnknownMarket | Reject::BadMarkets | Reject::MarketClosed) => {
            error.at(if bid.markets.is_some() { "markets" } else { "instance_type" })
        }
        (Command::Fund { change: FundChange::Add(_), .. }, Reject::BadAmount) => error.at("add_micros"),
        (Command::Fund { change: FundChange::Set(_), .. }, Reject::BadAmount) => error.at("set_micros"),
        (Command::SetBudget { .. }, Reject::BadAmount) => error.at("monthly_micros"),
        (Command::SetRenewal { .. }, Reject::BadRule) => error.at("renewal_us"),
        _ => error,
    }
}

/// Returns a sentence about the values. `None` means that the sentence of the table in `status.rs` is
/// enough.
fn sentence(command: &Command, reject: Reject, detail: &RefusalDetail) -> Option<String> {
    match (reject, command) {
        (
            Reject::UnknownMarket,
            Command::OpenMarket { market, .. }
            | Command::ChangeRules { market, .. }
            | Command::CloseMarket { market }
            | Command::PutOffer { market, .. }
            | Command::ResumeUnits { units: RestingUnits::AllIn(market), .. },
        ) => Some(format!("there is no market {}", quoted(market.as_str()))),
        (Reject::MarketExists, Command::OpenMarket { market, .. }) => {
            Some(format!("{market} is open already"))
        }
        (Reject::MarketClosed, Command::CloseMarket { market }) => {
            Some(format!("{market} is closed already"))
        }
        (Reject::MarketClosed, Command::PutOffer { market, .. }) => {
            Some(format!("{market} is closed: the capacity of an offer there may only shrink"))
        }
        (Reject::BadRule, Command::OpenMarket { rules, .. } | Command::ChangeRules { rules, .. }) => {
            of_rules(rules)
        }
        (Reject::BadReserve, Command::PutOffer { reserve, .. }) => {
            of_price("reserve_micros", *reserve, detail)
        }
        (Reject::BadCapacity, Command::PutOffer { market, capacity: 0, .. }) => {
            Some(format!("nothing is offered in {market}: the capacity of a new offer is 1 or more"))
        }
        (Reject::BadCapacity, Command::PutOffer { capacity, .. }) => {
            Some(format!("the capacity of an offer is {OFFER_UNITS_MAX} at most, not {capacity}"))
        }
        (
            Reject::UnknownUnit,
            Command::WithdrawUnit { unit, .. }
            | Command::ReportUnitLost { unit, .. }
            | Command::ResumeUnits { units: RestingUnits::One(unit), .. },
        ) if unit.provider.as_str().is_empty() => {
            Some("a unit is written as in h100-8x/eu-west:acme#1".to_owned())
        }
        (
            Reject::UnknownUnit,
            Command::WithdrawUnit { unit, .. }
            | Command::ReportUnitLost { unit, .. }
            | Command::ResumeUnits { units: RestingUnits::One(unit), .. },
        ) => Some(format!("you offer no unit {}", quoted(&unit.to_string()))),
        (Reject::NotResting, Command::ResumeUnits { units: RestingUnits::One(unit), .. }) => {
            Some(format!("{unit} does not rest: there is nothing to resume"))
        }
        (Reject::NotAGang, Command::CancelBid { bid, .. }) => Some(format!(
            "bid {bid} waits for no more than one node at once: only a bid with a minimum above 1 is regrouped"
        )),
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
        (Reject::BadAmount, Command::Fund { change, .. }) => of_funds(*change),
        (Reject::BadAmount, Command::SetBudget { monthly, .. }) => {
            Some(format!("monthly_micros is from 0 to {FUND_MAX}, not {}", (*monthly)?))
        }
        (Reject::BadRule, Command::SetRenewal { renewal }) => {
            let (least, most) = (RENEWAL_RANGE.start().0, RENEWAL_RANGE.end().0);
            Some(format!("renewal_us is from {least} to {most}, not {}", renewal.0))
        }
        (_, Command::PlaceBid(bid)) => of_place_bid(bid, reject, detail),
        (_, Command::AmendBid { bid, ceiling, max_nodes, .. }) => {
            of_amend_bid(*bid, *ceiling, *max_nodes, reject, detail)
        }
        _ => None,
    }
}

fn of_funds(change: FundChange) -> Option<String> {
    match change {
        FundChange::Add(amount) => {
            Some(format!("add_micros is from -{FUND_MAX} to {FUND_MAX}, not {amount}"))
        }
        FundChange::Set(amount) => Some(format!("set_micros is from 0 to {FUND_MAX}, not {amount}")),
        FundChange::Unlimited => None,
    }
}

/// Returns a sentence about the first rule that does not allow its value.
fn of_rules(rules: &[RuleChange]) -> Option<String> {
    for RuleChange { name, value } in rules {
        if let (RuleValue::Number(number), Some(range)) = (value, MarketRules::range(name))
            && !range.contains(number)
        {
            return Some(format!(
                "the rule {name} is from {} to {}, not {number}",
                range.start(),
                range.end()
            ));
        }
    }
    rules
        .iter()
        .any(|rule| &*rule.name == "tick")
        .then(|| "the tick of an open market never changes".to_owned())
}

fn of_place_bid(bid: &PlaceBid, reject: Reject, detail: &RefusalDetail) -> Option<String> {
    let &PlaceBid { ceiling, min_nodes, max_nodes, .. } = bid;
    match (reject, detail) {
        (Reject::UnknownMarket, RefusalDetail::UnknownMarket(market)) => {
            Some(format!("there is no market {}", quoted(market.as_str())))
        }
        (Reject::MarketClosed, RefusalDetail::ClosedMarket(market)) => {
            Some(format!("{market} is closed: it takes no new bids"))
        }
        (Reject::BadNodes, _) if max_nodes == 0 => {
            Some("max_nodes is 0: a bid wants 1 node at least".to_owned())
        }
        (Reject::BadNodes, _) => {
            let must = "1 <= min_nodes <= max_nodes must hold";
            Some(format!("min_nodes {min_nodes} and max_nodes {max_nodes}: {must}"))
        }
        (Reject::Expired, RefusalDetail::Now(now)) => {
            let at = bid.expire_at?;
            Some(format!("expire_at_us {at} is not in the future: the market's time is {now}"))
        }
        _ => of_numbers(Some(ceiling), Some(max_nodes), reject, detail),
    }
}

fn of_amend_bid(
    bid: BidId,
    ceiling: Option<Price>,
    max_nodes: Option<u32>,
    reject: Reject,
    detail: &RefusalDetail,
) -> Option<String> {
    match (reject, detail) {
        (Reject::BelowHeld, RefusalDetail::HeldNodes { live, min_nodes }) => {
            let nodes = max_nodes?;
            Some(format!(
                "max_nodes {nodes} is below the {live} live nodes or min_nodes {min_nodes}; release nodes by name"
            ))
        }
        (Reject::Protected, RefusalDetail::Ceiling(from)) => Some(format!(
            "the ceiling of bid {bid} is not lowered from {from} while a node of it is protected"
        )),
        (Reject::Protected, RefusalDetail::LockedCeiling { ceiling, until }) => Some(format!(
            "the ceiling of bid {bid} was raised under notice: it is not lowered from {ceiling} before the time {until}"
        )),
        (Reject::BelowReserve, _) => {
            Some(format!("ceiling_micros {} is below the reserve of a node of bid {bid}", ceiling?))
        }
        _ => of_numbers(ceiling, max_nodes, reject, detail),
    }
}

/// Returns a sentence about a number and the rule of a market that it breaks.
fn of_numbers(
    ceiling: Option<Price>,
    max_nodes: Option<u32>,
    reject: Reject,
    detail: &RefusalDetail,
) -> Option<String> {
    match (reject, detail) {
        (Reject::NotATick, _) if ceiling == Some(Price::ZERO) => Some(
            "ceiling_micros is 0: it is the most that you pay per node-hour, in micro-dollars".to_owned(),
        ),
        (Reject::NotATick, _) => of_price("ceiling_micros", ceiling?, detail),
        (_, RefusalDetail::CeilingMax { market, ceiling_max }) => {
            let ceiling = ceiling?;
            Some(format!("ceiling_micros {ceiling} is above the ceiling_max {ceiling_max} of {market}"))
        }
        (_, RefusalDetail::BidNodesMax { market, bid_nodes_max }) => {
            let nodes = max_nodes?;
            Some(format!("max_nodes {nodes} is more than the bid_nodes_max {bid_nodes_max} of {market}"))
        }
        _ => None,
    }
}

fn of_price(field: &str, price: Price, detail: &RefusalDetail) -> Option<String> {
    let RefusalDetail::Tick { market, tick } = detail else { return None };
    Some(format!("{field} {price} is not a multiple of the tick {tick} of {market}"))
}
