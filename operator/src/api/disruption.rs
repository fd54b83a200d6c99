//! `disruption` of a BidNode: how many of its nodes the operator may give up at a time by its own decision.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Pattern of a percentage.
const PERCENT: &str = "^([0-9]|[1-9][0-9]|100)%$";

/// The bound on nodes that the operator gives up by its own decision.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Disruption {
    /// The most nodes that are given up at a time because they are empty, were not ready for too long, double another node, or
    /// because the engine does not know their bids: a number, or a percentage of all nodes, rounded down, but at least one unless
    /// it is `0%`. Absent for 20%. Notices of the market, `minNodes` and `maxNodes` that people lower, and deletions are not bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<DisruptionLimit>,
}

impl Disruption {
    /// Returns the most nodes of this number that may be given up at a time.
    pub fn most(disruption: Option<&Disruption>, nodes: usize) -> usize {
        let limit = disruption.and_then(|it| it.nodes.as_ref()).unwrap_or(&DisruptionLimit::Percent(20));
        match limit {
            DisruptionLimit::Nodes(most) => *most as usize,
            DisruptionLimit::Percent(0) => 0,
            DisruptionLimit::Percent(percent) => (nodes * usize::from(*percent) / 100).max(1),
        }
    }
}

/// A number of nodes, or a percentage of all nodes.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(try_from = "Written", into = "Written")]
pub enum DisruptionLimit {
    /// A number of nodes, at most 1,000.
    Nodes(u32),
    /// A percentage from 0 to 100.
    Percent(u8),
}

/// A number or a percentage as it is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u32),
    Text(String),
}

impl TryFrom<Written> for DisruptionLimit {
    type Error = String;

    fn try_from(written: Written) -> Result<DisruptionLimit, String> {
        let wrong = |text: &dyn fmt::Display| {
            format!("{text} is neither a number from 0 to 1000 nor a percentage from 0% to 100%")
        };
        match written {
            Written::Number(nodes @ ..=1000) => Ok(DisruptionLimit::Nodes(nodes)),
            Written::Number(nodes) => Err(wrong(&nodes)),
            Written::Text(text) => {
                let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<u8>().ok());
                // Another way to write the same percentage would not survive a conversion.
                let percent = percent.filter(|percent| *percent <= 100 && text == format!("{percent}%"));
                percent.map(DisruptionLimit::Percent).ok_or_else(|| wrong(&text))
            }
        }
    }
}

impl From<DisruptionLimit> for Written {
    fn from(it: DisruptionLimit) -> Written {
        match it {
            DisruptionLimit::Nodes(nodes) => Written::Number(nodes),
            DisruptionLimit::Percent(percent) => Written::Text(format!("{percent}%")),
        }
    }
}

impl JsonSchema for DisruptionLimit {
    fn schema_name() -> Cow<'static, str> {
        "DisruptionLimit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 0,
            "maximum": 1000,
            "pattern": PERCENT,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_bound_is_a_number_or_a_percentage() {
        let most = |nodes: Value, of: usize| {
            let disruption: Result<Disruption, _> = serde_json::from_value(json!({"nodes": nodes}));
            disruption.ok().map(|it| Disruption::most(Some(&it), of))
        };
        assert_eq!(Disruption::most(None, 3), 1);
        assert_eq!(Disruption::most(Some(&Disruption::default()), 10), 2);
        let cases = [
            (json!(0), Some(0)),
            (json!(3), Some(3)),
            (json!("4"), None),
            (json!("04%"), None),
            (json!("0%"), Some(0)),
            (json!("1%"), Some(1)),
            (json!("55%"), Some(5)),
            (json!("100%"), Some(10)),
            (json!("101%"), None),
            (json!(1001), None),
            (json!(-1), None),
            (json!("ten"), None),
        ];
        for (nodes, expected) in cases {
            assert_eq!(most(nodes.clone(), 10), expected, "{nodes}");
        }
    }
}
