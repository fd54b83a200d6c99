//! Parses commands as JSON objects, strictly.

use super::schema::*;
use super::unique::parse_unique;
use kubebid_core::Price;
use kubebid_core::command::{
    CancelMode, Command, FundChange, OnPreemption, PlaceBid, RestingUnits, StampedCommand, TimeInForce,
};
use kubebid_core::units::{AccountName, AllocationId, BidId, ClientKey, InstanceType, MarketName};
use kubebid_core::units::{Micros, UnitName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;

/// Longer keys are refused here, at the edge (R16).
const KEY_BYTES_MAX: usize = 128;

/// The error of a line that is no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCommand {
    /// The field with the error, if it is one field.
    pub field: Option<String>,
    /// The reason.
    pub message: String,
}

impl fmt::Display for BadCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "field `{field}`: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for BadCommand {}

fn bad(field: Option<&str>, message: impl fmt::Display) -> BadCommand {
    BadCommand { field: field.map(str::to_owned), message: message.to_string() }
}

/// Reads one command. Words that the rules refuse themselves (a time in force, a rule) pass; anything
/// else that is not as it should be is an error: a missing or unknown field, a number that is negative,
/// fractional or too large.
pub fn parse_command(line: &str) -> Result<StampedCommand, BadCommand> {
    let value = parse_unique(line).map_err(|error| bad(error.field.as_deref(), error.message))?;
    let Value::Object(mut object) = value else { return Err(bad(None, "it is no JSON object")) };
    let mut head = Map::new();
    for field in ["at_us", "command", "key"] {
        if let Some(value) = object.remove(field) {
            head.insert(field.to_owned(), value);
        }
    }
    let head: Head = fields(head)?;
    if head.key.as_ref().is_some_and(|key| key.len() > KEY_BYTES_MAX) {
        return Err(bad(Some("key"), format_args!("longer than {KEY_BYTES_MAX} bytes")));
    }
    Ok(StampedCommand {
        at: Micros(head.at_us),
        key: head.key.as_deref().map(ClientKey::new),
        command: parse_body(line, &head.command, object)?,
    })
}

/// Converts an object to a struct of fields; errors name the field.
fn fields<T: DeserializeOwned>(object: Map<String, Value>) -> Result<T, BadCommand> {
    serde_path_to_error::deserialize(Value::Object(object)).map_err(|error| {
        let path = error.path().to_string();
        bad((path != ".").then_some(path.as_str()), error.inner())
    })
}

/// Reads a market and its rules. The rules come from the line itself, which has their order.
fn fields_and_rules(line: &str, object: Map<String, Value>) -> Result<Rules, BadCommand> {
    #[derive(Deserialize)]
    struct InOrder {
        rules: RuleList,
    }
    let Rules { market, .. } = fields(object)?;
    let InOrder { rules } = serde_json::from_str(line).map_err(|e| bad(None, e))?;
    Ok(Rules { market, rules })
}

fn parse_body(line: &str, name: &str, object: Map<String, Value>) -> Result<Command, BadCommand> {
    Ok(match name {
        "OpenMarket" => {
            let Rules { market, rules } = fields_and_rules(line, object)?;
            Command::OpenMarket { market: MarketName::new(&market), rules: rules.0 }
        }
        "ChangeRules" => {
            let Rules { market, rules } = fields_and_rules(line, object)?;
            Command::ChangeRules { market: MarketName::new(&market), rules: rules.0 }
        }
        "CloseMarket" => {
            let Close { market } = fields(object)?;
            Command::CloseMarket { market: MarketName::new(&market) }
        }
        "PutOffer" => {
            let Put { provider, market, capacity, reserve } = fields(object)?;
            Command::PutOffer {
                provider: AccountName::new(&provider),
                market: MarketName::new(&market),
                capacity,
                reserve: Price(reserve),
            }
        }
        "WithdrawUnit" => {
            let OfUnit { provider, unit } = fields(object)?;
            Command::WithdrawUnit { provider: AccountName::new(&provider), unit: UnitName::parse(&unit) }
        }
        "ReportUnitLost" => {
            let OfUnit { provider, unit } = fields(object)?;
            Command::ReportUnitLost { provider: AccountName::new(&provider), unit: UnitName::parse(&unit) }
        }
        "ResumeUnits" => {
            let Resume { provider, unit, market } = fields(object)?;
            let units = match (unit, market) {
                (Some(unit), None) => RestingUnits::One(UnitName::parse(&unit)),
                (None, Some(market)) => RestingUnits::AllIn(MarketName::new(&market)),
                (Some(_), Some(_)) | (None, None) => {
                    return Err(bad(Some("unit"), "name either one `unit` or a `market`"));
                }
            };
            Command::ResumeUnits { provider: AccountName::new(&provider), units }
        }
        "PlaceBid" => Command::PlaceBid(parse_bid(fields(object)?)),
        "AmendBid" => {
            let Amend { tenant, bid, ceiling, max_nodes } = fields(object)?;
            Command::AmendBid {
                tenant: AccountName::new(&tenant),
                bid: BidId(bid),
                ceiling: ceiling.map(Price),
                max_nodes,
            }
        }
        "CancelBid" => {
            let Cancel { tenant, bid, mode } = fields(object)?;
            let mode = match mode.as_str() {
                "KEEP" => CancelMode::Keep,
                "RELEASE" => CancelMode::Release,
                "REGROUP" => CancelMode::Regroup,
                _ => CancelMode::Unknown(mode.into()),
            };
            Command::CancelBid { tenant: AccountName::new(&tenant), bid: BidId(bid), mode }
        }
        "ReleaseAllocation" => {
            let Release { tenant, allocation } = fields(object)?;
            Command::ReleaseAllocation {
                tenant: AccountName::new(&tenant),
                allocation: AllocationId(allocation),
            }
        }
        "ReportReady" => {
            let Ready { allocation, by } = fields(object)?;
            Command::ReportReady {
                allocation: AllocationId(allocation),
                by: by.as_deref().map(AccountName::new),
            }
        }
        "AdvanceTime" => {
            let Nothing {} = fields(object)?;
            Command::AdvanceTime
        }
        "Fund" => {
            let Funding { account, add, set, unlimited } = fields(object)?;
            let change = match (add, set, unlimited) {
                (Some(amount), None, false) => FundChange::Add(amount),
                (None, Some(amount), false) => FundChange::Set(amount),
                (None, None, true) => FundChange::Unlimited,
                (None | Some(_), None | Some(_), _) => {
                    return Err(bad(Some("add"), "name one of `add`, `set` and `unlimited`"));
                }
            };
            Command::Fund { account: AccountName::new(&account), change }
        }
        "SetBudget" => {
            let Budget { account, monthly, roll_over } = fields(object)?;
            Command::SetBudget { account: AccountName::new(&account), monthly, roll_over }
        }
        "SetRenewal" => {
            let Renewal { renewal_us } = fields(object)?;
            Command::SetRenewal { renewal: Micros(renewal_us) }
        }
        _ => return Err(bad(Some("command"), format_args!("there is no command `{name}`"))),
    })
}

fn parse_bid(bid: PlaceBidFields) -> PlaceBid {
    PlaceBid {
        tenant: AccountName::new(&bid.tenant),
        markets: bid.markets.map(|names| names.iter().map(|name| MarketName::new(name)).collect()),
        instance_type: bid.instance_type.as_deref().map(InstanceType::new),
        ceiling: Price(bid.ceiling),
        min_nodes: bid.min_nodes,
        max_nodes: bid.max_nodes,
        time_in_force: match bid.tif.as_deref() {
            None | Some("GTC") => TimeInForce::Gtc,
            Some("GTT") => TimeInForce::Gtt,
            Some("IOC") => TimeInForce::Ioc,
            Some(other) => TimeInForce::Unknown(other.into()),
        },
        expire_at: bid.expire_at_us.map(Micros),
        on_preemption: match bid.on_preemption.as_deref() {
            None | Some("REQUEUE") => OnPreemption::Requeue,
            Some("CLOSE") => OnPreemption::Close,
            Some(other) => OnPreemption::Unknown(other.into()),
        },
    }
}
