//! Writes commands as JSON objects, in the form in which they are read.

use super::schema::*;
use kubebid_core::command::{
    CancelMode, Command, FundChange, OnPreemption, PlaceBid, RestingUnits, RuleChange, StampedCommand,
    TimeInForce,
};
use kubebid_core::units::MarketName;
use serde::Serialize;

/// Writes a command as [`parse_command`](super::parse_command) reads it.
pub fn format_command(stamped: &StampedCommand) -> String {
    match &stamped.command {
        Command::OpenMarket { market, rules } => line_of(stamped, "OpenMarket", rules_of(market, rules)),
        Command::ChangeRules { market, rules } => line_of(stamped, "ChangeRules", rules_of(market, rules)),
        Command::CloseMarket { market } => {
            line_of(stamped, "CloseMarket", Close { market: market.to_string() })
        }
        Command::PutOffer { provider, market, capacity, reserve } => {
            let (provider, market) = (provider.to_string(), market.to_string());
            line_of(stamped, "PutOffer", Put { provider, market, capacity: *capacity, reserve: reserve.0 })
        }
        Command::WithdrawUnit { provider, unit } => line_of(
            stamped,
            "WithdrawUnit",
            OfUnit { provider: provider.to_string(), unit: unit.to_string() },
        ),
        Command::ReportUnitLost { provider, unit } => line_of(
            stamped,
            "ReportUnitLost",
            OfUnit { provider: provider.to_string(), unit: unit.to_string() },
        ),
        Command::ResumeUnits { provider, units } => {
            let (unit, market) = match units {
                RestingUnits::One(unit) => (Some(unit.to_string()), None),
                RestingUnits::AllIn(market) => (None, Some(market.to_string())),
            };
            line_of(stamped, "ResumeUnits", Resume { provider: provider.to_string(), unit, market })
        }
        Command::PlaceBid(bid) => line_of(stamped, "PlaceBid", format_bid(bid)),
        Command::AmendBid { tenant, bid, ceiling, max_nodes } => {
            let ceiling = ceiling.map(|ceiling| ceiling.0);
            let fields = Amend { tenant: tenant.to_string(), bid: bid.0, ceiling, max_nodes: *max_nodes };
            line_of(stamped, "AmendBid", fields)
        }
        Command::CancelBid { tenant, bid, mode } => {
            let mode = match mode {
                CancelMode::Keep => "KEEP",
                CancelMode::Release => "RELEASE",
                CancelMode::Regroup => "REGROUP",
                CancelMode::Unknown(other) => other,
            };
            let fields = Cancel { tenant: tenant.to_string(), bid: bid.0, mode: mode.to_owned() };
            line_of(stamped, "CancelBid", fields)
        }
        Command::ReleaseAllocation { tenant, allocation } => {
            let fields = Release { tenant: tenant.to_string(), allocation: allocation.0 };
            line_of(stamped, "ReleaseAllocation", fields)
        }
        Command::ReportReady { allocation, by } => {
            let by = by.as_ref().map(|by| by.to_string());
            line_of(stamped, "ReportReady", Ready { allocation: allocation.0, by })
        }
        Command::AdvanceTime => line_of(stamped, "AdvanceTime", Nothing {}),
        Command::Fund { account, change } => {
            let (add, set, unlimited) = match change {
                FundChange::Add(amount) => (Some(*amount), None, false),
                FundChange::Set(amount) => (None, Some(*amount), false),
                FundChange::Unlimited => (None, None, true),
            };
            line_of(stamped, "Fund", Funding { account: account.to_string(), add, set, unlimited })
        }
        Command::SetBudget { account, monthly, roll_over } => {
            let (monthly, roll_over) = (*monthly, *roll_over);
            line_of(stamped, "SetBudget", Budget { account: account.to_string(), monthly, roll_over })
        }
        Command::SetRenewal { renewal } => line_of(stamped, "SetRenewal", Renewal { renewal_us: renewal.0 }),
    }
}

fn line_of(stamped: &StampedCommand, command: &str, body: impl Serialize) -> String {
    let key = stamped.key.as_ref().map(|key| key.as_str().to_owned());
    let head = Head { at_us: stamped.at.0, command: command.to_owned(), key };
    serde_json::to_string(&Line { head, body }).expect("a struct of plain fields")
}

fn rules_of(market: &MarketName, rules: &[RuleChange]) -> Rules {
    Rules { market: market.to_string(), rules: RuleList(rules.to_vec()) }
}

fn format_bid(bid: &PlaceBid) -> PlaceBidFields {
    let tif = match &bid.time_in_force {
        TimeInForce::Gtc => "GTC",
        TimeInForce::Gtt => "GTT",
        TimeInForce::Ioc => "IOC",
        TimeInForce::Unknown(other) => other,
    };
    let on_preemption = match &bid.on_preemption {
        OnPreemption::Requeue => "REQUEUE",
        OnPreemption::Close => "CLOSE",
        OnPreemption::Unknown(other) => other,
    };
    PlaceBidFields {
        tenant: bid.tenant.to_string(),
        markets: bid.markets.as_ref().map(|names| names.iter().map(|name| name.to_string()).collect()),
        instance_type: bid.instance_type.as_ref().map(|kind| kind.to_string()),
        ceiling: bid.ceiling.0,
        min_nodes: bid.min_nodes,
        max_nodes: bid.max_nodes,
        tif: Some(tif.to_owned()),
        expire_at_us: bid.expire_at.map(|at| at.0),
        on_preemption: Some(on_preemption.to_owned()),
    }
}
