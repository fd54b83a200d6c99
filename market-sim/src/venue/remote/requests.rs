//! Converts commands into requests of the client.

use kubebid_client::v1::{self, cancel_bid_request, place_bid_request, resume_units_request::Units};
use kubebid_client::{Client, Error};
use kubebid_core::Command;
use kubebid_core::command::{
    CancelMode, OnPreemption, PlaceBid, RestingUnits, RuleChange, RuleValue, TimeInForce,
};

/// Sends any command but AdvanceTime, and returns its number.
pub(super) async fn send(client: &Client, command: &Command) -> Result<u64, Error> {
    let client_key = String::new();
    Ok(match command {
        Command::OpenMarket { market, rules } => {
            let request = v1::OpenMarketRequest { market: market.to_string(), rules: Some(rules_of(rules)) };
            client.open_market(request).await?.seq
        }
        Command::ChangeRules { market, rules } => {
            let request = v1::ChangeRulesRequest { market: market.to_string(), rules: Some(rules_of(rules)) };
            client.change_rules(request).await?.seq
        }
        Command::CloseMarket { market } => {
            client.close_market(v1::CloseMarketRequest { market: market.to_string() }).await?.seq
        }
        Command::PutOffer { market, capacity, reserve, provider: _ } => {
            let capacity = u32::try_from(*capacity).unwrap_or(u32::MAX);
            let (market, reserve_micros) = (market.to_string(), reserve.0);
            let request = v1::PutOfferRequest { market, capacity, reserve_micros, client_key };
            client.put_offer(request).await?.seq
        }
        Command::WithdrawUnit { unit, provider: _ } => {
            client.withdraw_unit(v1::WithdrawUnitRequest { unit: unit.to_string(), client_key }).await?.seq
        }
        Command::ReportUnitLost { unit, provider: _ } => {
            let request = v1::ReportUnitLostRequest { unit: unit.to_string(), client_key };
            client.report_unit_lost(request).await?.seq
        }
        Command::ResumeUnits { units, provider: _ } => {
            let units = Some(match units {
                RestingUnits::One(unit) => Units::Unit(unit.to_string()),
                RestingUnits::AllIn(market) => Units::Market(market.to_string()),
            });
            client.resume_units(v1::ResumeUnitsRequest { client_key, units }).await?.seq
        }
        Command::PlaceBid(bid) => client.place_bid(bid_of(bid)).await?.seq,
        Command::AmendBid { bid, ceiling, max_nodes, tenant: _ } => {
            let (ceiling_micros, max_nodes) = (ceiling.map(|ceiling| ceiling.0), *max_nodes);
            let request = v1::AmendBidRequest { bid: bid.0, ceiling_micros, max_nodes, client_key };
            client.amend_bid(request).await?.seq
        }
        Command::CancelBid { bid, mode, tenant: _ } => {
            let mode = match mode {
                CancelMode::Keep => cancel_bid_request::Mode::Keep,
                CancelMode::Release => cancel_bid_request::Mode::Release,
                CancelMode::Regroup => cancel_bid_request::Mode::Regroup,
                CancelMode::Unknown(_) => cancel_bid_request::Mode::Unspecified,
            };
            let request = v1::CancelBidRequest { bid: bid.0, mode: mode as i32, client_key };
            client.cancel_bid(request).await?.seq
        }
        Command::ReleaseAllocation { allocation, tenant: _ } => {
            let request = v1::ReleaseAllocationRequest { allocation: allocation.0, client_key };
            client.release_allocation(request).await?.seq
        }
        Command::ReportReady { allocation, by: _ } => {
            let request = v1::ReportReadyRequest { allocation: allocation.0, client_key, access: None };
            client.report_ready(request).await?.seq
        }
        Command::AdvanceTime => unreachable!("the administrator moves the clock"),
        Command::Fund { .. } | Command::SetBudget { .. } | Command::SetRenewal { .. } => {
            unreachable!("no simulation changes funds")
        }
    })
}

fn bid_of(bid: &PlaceBid) -> v1::PlaceBidRequest {
    let time_in_force = match bid.time_in_force {
        TimeInForce::Gtc => place_bid_request::TimeInForce::Gtc,
        TimeInForce::Gtt => place_bid_request::TimeInForce::Gtt,
        TimeInForce::Ioc => place_bid_request::TimeInForce::Ioc,
        TimeInForce::Unknown(_) => place_bid_request::TimeInForce::Unspecified,
    };
    let on_preemption = match bid.on_preemption {
        OnPreemption::Requeue => place_bid_request::OnPreemption::Requeue,
        OnPreemption::Close => place_bid_request::OnPreemption::Close,
        OnPreemption::Unknown(_) => place_bid_request::OnPreemption::Unspecified,
    };
    v1::PlaceBidRequest {
        markets: bid.markets.iter().flatten().map(ToString::to_string).collect(),
        instance_type: bid.instance_type.as_ref().map(ToString::to_string).unwrap_or_default(),
        ceiling_micros: bid.ceiling.0,
        min_nodes: Some(bid.min_nodes),
        max_nodes: bid.max_nodes,
        time_in_force: time_in_force as i32,
        expire_at_us: bid.expire_at.map(|at| at.0),
        on_preemption: on_preemption as i32,
        ..v1::PlaceBidRequest::default()
    }
}

/// Converts rules. Rules that the wire does not have are left out; the engine has all of the core's.
fn rules_of(changes: &[RuleChange]) -> v1::MarketRules {
    let mut rules = v1::MarketRules::default();
    for RuleChange { name, value } in changes {
        match (&**name, value) {
            ("tick", RuleValue::Number(n)) => rules.tick_micros = Some(*n),
            ("increment_bps", RuleValue::Number(n)) => rules.increment_bps = u32::try_from(*n).ok(),
            ("ceiling_max", RuleValue::Number(n)) => rules.ceiling_max_micros = Some(*n),
            ("bid_nodes_max", RuleValue::Number(n)) => rules.bid_nodes_max = u32::try_from(*n).ok(),
            ("min_runtime_us", RuleValue::Number(n)) => rules.min_runtime_us = Some(*n),
            ("notice_us", RuleValue::Number(n)) => rules.notice_us = Some(*n),
            ("start_timeout_us", RuleValue::Number(n)) => rules.start_timeout_us = Some(*n),
            ("min_charge_us", RuleValue::Number(n)) => rules.min_charge_us = Some(*n),
            ("fee_bps", RuleValue::Number(n)) => rules.fee_bps = u32::try_from(*n).ok(),
            ("pricing", RuleValue::Word(word)) if &**word == "LowestAccepted" => {
                rules.pricing = Some(v1::market_rules::Pricing::LowestAccepted as i32);
            }
            ("pricing", RuleValue::Word(_)) => {
                rules.pricing = Some(v1::market_rules::Pricing::HighestLosing as i32);
            }
            _ => {}
        }
    }
    rules
}
