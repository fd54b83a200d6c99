//! Commands as JSON objects: parsing them strictly, and writing them the same way.

use kubebid_core::Price;
use kubebid_core::command::{CancelMode, Command, OnPreemption, PlaceBid, RuleChange, RuleValue};
use kubebid_core::command::{Stamped, TimeInForce};
use kubebid_core::units::{AccountName, AllocationId, BidId, ClientKey, InstanceType, MarketName};
use kubebid_core::units::{Micros, UnitName};
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// Longer keys are refused here, at the edge (R16).
const KEY_BYTES_MAX: usize = 128;

/// What is wrong with a line that is no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCommand {
    /// The field, where one is to blame.
    pub field: Option<String>,
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

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    market: String,
    rules: RuleList,
}

/// An object of rules, in the order in which they were written.
#[derive(Debug)]
struct RuleList(Vec<RuleChange>);

impl Serialize for RuleList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for RuleChange { name, value } in &self.0 {
            match value {
                RuleValue::Number(number) => map.serialize_entry(name, number)?,
                RuleValue::Word(word) => map.serialize_entry(name, word)?,
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for RuleList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RuleVisitor)
    }
}

struct RuleVisitor;

impl<'de> Visitor<'de> for RuleVisitor {
    type Value = RuleList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of rules")
    }

    /// A value that is neither a whole number nor a word is passed on as its text, for the market to
    /// refuse.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RuleList, A::Error> {
        let mut rules = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            let value = match value {
                Value::String(word) => RuleValue::Word(word.into()),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value
                    .as_u64()
                    .map_or_else(|| RuleValue::Word(value.to_string().into()), RuleValue::Number),
            };
            rules.push(RuleChange { name: name.into(), value });
        }
        Ok(RuleList(rules))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Put {
    provider: String,
    market: String,
    capacity: u64,
    reserve: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfUnit {
    provider: String,
    unit: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    tenant: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    markets: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_type: Option<String>,
    ceiling: u64,
    #[serde(default = "one")]
    min_nodes: u32,
    max_nodes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tif: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expire_at_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_preemption: Option<String>,
}

fn one() -> u32 {
    1
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amend {
    tenant: String,
    bid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_nodes: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    tenant: String,
    bid: u64,
    mode: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Release {
    tenant: String,
    allocation: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ready {
    allocation: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    at_us: u64,
    command: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

#[derive(Debug, Serialize)]
struct Line<B> {
    #[serde(flatten)]
    head: Head,
    #[serde(flatten)]
    body: B,
}

/// Reads one command. Words that the rules refuse themselves (a time in force, a rule) pass; anything
/// else that is not as it should be is an error: a missing or unknown field, a number that is negative,
/// fractional or too large.
pub fn parse_command(line: &str) -> Result<Stamped, BadCommand> {
    let mut object: Map<String, Value> = serde_json::from_str(line).map_err(|e| bad(None, e))?;
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
    Ok(Stamped {
        at: Micros(head.at_us),
        key: head.key.as_deref().map(ClientKey::new),
        command: parse_body(line, &head.command, object)?,
    })
}

/// An object as this kind of thing; errors name the field.
fn fields<T: DeserializeOwned>(object: Map<String, Value>) -> Result<T, BadCommand> {
    serde_path_to_error::deserialize(Value::Object(object)).map_err(|error| {
        let path = error.path().to_string();
        bad((path != ".").then_some(path.as_str()), error.inner())
    })
}

/// The rules come from the line itself, where they have their order.
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
        _ => return Err(bad(Some("command"), format_args!("there is no command `{name}`"))),
    })
}

fn parse_bid(bid: Place) -> PlaceBid {
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

/// Writes a command as [`parse_command`] reads it.
pub fn format_command(stamped: &Stamped) -> String {
    match &stamped.command {
        Command::OpenMarket { market, rules } => line_of(stamped, "OpenMarket", rules_of(market, rules)),
        Command::ChangeRules { market, rules } => line_of(stamped, "ChangeRules", rules_of(market, rules)),
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
    }
}

fn line_of(stamped: &Stamped, command: &str, body: impl Serialize) -> String {
    let key = stamped.key.as_ref().map(|key| key.as_str().to_owned());
    let head = Head { at_us: stamped.at.0, command: command.to_owned(), key };
    serde_json::to_string(&Line { head, body }).expect("a struct of plain fields")
}

fn rules_of(market: &MarketName, rules: &[RuleChange]) -> Rules {
    Rules { market: market.to_string(), rules: RuleList(rules.to_vec()) }
}

fn format_bid(bid: &PlaceBid) -> Place {
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
    Place {
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
