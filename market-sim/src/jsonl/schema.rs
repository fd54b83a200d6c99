//! The fields of commands as JSON objects.

use kubebid_core::command::{RuleChange, RuleValue};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rules {
    pub(super) market: String,
    pub(super) rules: RuleList,
}

/// An object of rules, in the order in which they were written.
#[derive(Debug)]
pub(super) struct RuleList(pub(super) Vec<RuleChange>);

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

    /// Reads rules in order. A value that is neither a whole number nor a word is passed on as its text, for the
    /// market to refuse.
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
pub(super) struct Close {
    pub(super) market: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Put {
    pub(super) provider: String,
    pub(super) market: String,
    pub(super) capacity: u64,
    pub(super) reserve: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfUnit {
    pub(super) provider: String,
    pub(super) unit: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resume {
    pub(super) provider: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) market: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlaceBidFields {
    pub(super) tenant: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) markets: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instance_type: Option<String>,
    pub(super) ceiling: u64,
    #[serde(default = "one")]
    pub(super) min_nodes: u32,
    pub(super) max_nodes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tif: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expire_at_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) on_preemption: Option<String>,
}

fn one() -> u32 {
    1
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Amend {
    pub(super) tenant: String,
    pub(super) bid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ceiling: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_nodes: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cancel {
    pub(super) tenant: String,
    pub(super) bid: u64,
    pub(super) mode: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Release {
    pub(super) tenant: String,
    pub(super) allocation: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ready {
    pub(super) allocation: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Funding {
    pub(super) account: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) add: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) set: Option<i64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unlimited: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Budget {
    pub(super) account: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) monthly: Option<i64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) roll_over: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Renewal {
    pub(super) renewal_us: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) at_us: u64,
    pub(super) command: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Line<B> {
    #[serde(flatten)]
    pub(super) head: Head,
    #[serde(flatten)]
    pub(super) body: B,
}
