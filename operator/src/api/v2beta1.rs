//! `BidNode` in the version v2beta1: several instance types and regions, and a maximal bid as decimal text.
//!
//! Version v1 is the one that is stored. `conversion.rs` says how the two are made of each other.

use super::bidnode::{LABEL_VALUE, QUALIFIED_NAME, is_zero, label_value_schema};
use super::{BidNodeStatus, BidStrategy, Disruption, NodeTaint};
use kube::{CustomResource, KubeSchema};
use kubebid_client::Dollars;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The number of instance types of a BidNode, at most.
pub const INSTANCE_TYPES_MAX: usize = 8;
/// The number of regions of a BidNode, at most.
pub const REGIONS_MAX: usize = 16;
/// The lowest maximal bid, in micro-dollars.
const MAX_BID_MICROS_MIN: u64 = 10_000;
/// The highest maximal bid, in micro-dollars.
const MAX_BID_MICROS_MAX: u64 = 1_000_000_000_000;
/// The largest number of nodes, and of GPUs that pods request.
const NODES_MAX: u32 = 1_000;
/// The largest weight of a BidNode.
const WEIGHT_MAX: u32 = 100;
/// Pattern of a maximal bid: at most six digits after the point.
const MAX_BID: &str = "^[0-9]{1,7}([.][0-9]{1,6})?$";
/// Pattern of a length of time.
const TIME_SPAN: &str = "^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h)){1,4}$";

/// Nodes of one of several instance types, bid for at the KubeBid auction.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "kubebid.io",
    version = "v2beta1",
    kind = "BidNode",
    namespaced,
    shortname = "bn",
    status = "BidNodeStatus",
    derive = "PartialEq",
    doc = "Nodes of one of several instance types, bid for at the KubeBid auction.",
    scale(
        spec_replicas_path = ".spec.nodes.min",
        status_replicas_path = ".status.activeNodes",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Instances", type_ = "string", json_path = ".spec.instanceTypes"),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        json_path = ".status.activeNodes",
        description = "Nodes that are ready"
    ),
    printcolumn(
        name = "Price",
        type_ = "number",
        json_path = ".status.averagePrice",
        description = "Mean price of the nodes per node-hour"
    ),
    printcolumn(
        name = "Bid",
        type_ = "number",
        json_path = ".status.bidPrice",
        description = "The highest ceiling that is bid, per node-hour"
    ),
    printcolumn(
        name = "Cost",
        type_ = "number",
        json_path = ".status.cost",
        description = "What all its nodes have cost so far"
    ),
    printcolumn(name = "Currency", type_ = "string", json_path = ".status.currency"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Regions", type_ = "string", json_path = ".spec.regions", priority = 1),
    printcolumn(name = "MaxBid", type_ = "string", json_path = ".spec.maxBid", priority = 1),
    validation = Rule::new("self.metadata.name.size() <= 52")
        .message("the name must have at most 52 characters: the names of nodes begin with it"),
    validation = Rule::new("!self.spec.gang || self.metadata.name.size() <= 42")
        .message("the name of a gang must have at most 42 characters: the names of its nodes have the number of an allocation too")
)]
#[x_kube(
    validation = Rule::new(format!(
        "!has(self.maxHourlyCost) || ![self.maxBid, self.maxHourlyCost].all(it, it.matches('{MAX_BID}')) \
         || double(self.nodes.min) * double(self.maxBid) <= double(self.maxHourlyCost)"
    )).message("nodes.min nodes at maxBid must cost at most maxHourlyCost").field_path(".maxHourlyCost"),
    validation = Rule::new("oldSelf.instanceTypes.all(it, it in self.instanceTypes)")
        .message("instanceTypes can be widened only: make another BidNode for fewer").field_path(".instanceTypes"),
    validation = Rule::new("self.instanceTypes[0] == oldSelf.instanceTypes[0]")
        .message("the first of instanceTypes stays the first, because v1 shows it: add others after it")
        .field_path(".instanceTypes"),
    validation = Rule::new(
        "!has(self.regions) || self.regions.size() == 0 || has(oldSelf.regions) && oldSelf.regions.size() > 0 \
         && oldSelf.regions.all(it, it in self.regions)"
    ).message("regions can be widened only, and no regions are all: make another BidNode for fewer")
        .field_path(".regions"),
    validation = Rule::new(
        "!has(self.regions) || self.regions.size() == 0 || !has(oldSelf.regions) || oldSelf.regions.size() == 0 \
         || self.regions[0] == oldSelf.regions[0]"
    ).message("the first of regions stays the first, because v1 shows it: add others after it")
        .field_path(".regions"),
    validation = Rule::new("!self.gang || self.nodes.min >= 2")
        .message("a gang has two nodes or more: set nodes.min to their number").field_path(".nodes.min"),
    validation = Rule::new("!self.gang || self.nodes.min == self.nodes.max")
        .message("a gang has all of its nodes or none: set nodes.max to nodes.min").field_path(".nodes.max"),
    validation = Rule::new("!self.gang || self.nodes.minRequestedGpus == 0")
        .message("a gang is bid for whatever pods request: leave nodes.minRequestedGpus out")
        .field_path(".nodes.minRequestedGpus"),
    validation = Rule::new("self.gang == oldSelf.gang")
        .message("gang cannot be changed: make another BidNode").field_path(".gang"),
    validation = Rule::new("!oldSelf.gang || self.nodes.min == oldSelf.nodes.min")
        .message("the number of nodes of a gang cannot be changed: make another BidNode").field_path(".nodes.min"),
)]
#[serde(rename_all = "camelCase")]
pub struct BidNodeSpec {
    /// The types of which each node has one, whichever the market gives first. Types can be added after the first, and never
    /// removed. Clients of v1 see the first.
    #[serde(deserialize_with = "instance_types")]
    #[schemars(
        length(min = 1, max = INSTANCE_TYPES_MAX),
        inner(length(min = 1, max = 63), regex(pattern = LABEL_VALUE)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub instance_types: Vec<String>,
    /// The regions of which each node has one. An empty list means any region that has one of the types. Regions can be added
    /// after the first, and not removed one by one. Clients of v1 see the first.
    #[serde(default, deserialize_with = "regions", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = REGIONS_MAX),
        inner(length(min = 1, max = 63), regex(pattern = LABEL_VALUE)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub regions: Vec<String>,
    /// The highest price to pay, in USD per node-hour, as decimal text with at most 6 places, as in "2.50": from "0.01" to
    /// "1000000".
    #[schemars(with = "String", length(max = 14), extend("pattern" = MAX_BID))]
    #[x_kube(
        validation = Rule::new(format!(
            "!self.matches('{MAX_BID}') || double(self) >= 0.01 && double(self) <= 1000000.0"
        )).message("maxBid must be from \"0.01\" to \"1000000\"")
    )]
    pub max_bid: MaxBid,
    /// The number of nodes.
    #[serde(default)]
    pub nodes: Nodes,
    /// The most that all nodes together may cost, in USD per hour, as decimal text: there are never more nodes than it divided by
    /// `maxBid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = 14), extend("pattern" = MAX_BID))]
    #[x_kube(
        validation = Rule::new(format!(
            "!self.matches('{MAX_BID}') || double(self) >= 0.01 && double(self) <= 1000000.0"
        )).message("maxHourlyCost must be from \"0.01\" to \"1000000\"")
    )]
    pub max_hourly_cost: Option<MaxBid>,
    /// The place among BidNodes that a pod fits: the one with the highest weight bids for it, then the one with the lowest
    /// expected price.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 100))]
    pub weight: u32,
    /// The bound on nodes that the operator gives up by its own decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<Disruption>,
    /// True for nodes that are of use only together, as for a job that runs on all of them: either all `nodes.min` nodes are had,
    /// in one market at first, or none. `nodes.max` is the same number. It cannot be changed.
    #[serde(default)]
    pub gang: bool,
    /// The trade-off between price and interruptions.
    #[serde(default)]
    pub strategy: BidStrategy,
    /// The labels of the nodes. A node has them before any pod is bound to it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = label_value_schema()))]
    #[x_kube(
        validation = Rule::new(
            r"self.all(key, !key.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|kubebid[.]io)/'))"
        ).message("labels of kubernetes.io, k8s.io, kubebid.io and their subdomains are reserved"),
        validation = Rule::new(format!(
            "self.all(key, key.matches('{QUALIFIED_NAME}') && key.indexOf('/') <= 253)"
        )).message("a label's key is a name of at most 63 letters, digits, '-', '_' and '.', after a DNS name and a '/' or not")
    )]
    pub labels: BTreeMap<String, String>,
    /// The taints of the nodes. A node has them before any pod is bound to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["key", "effect"]
    ))]
    pub taints: Vec<NodeTaint>,
    /// The times after which nodes are given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
}

/// The number of nodes of a BidNode.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.min <= self.max").message("nodes.min must be at most nodes.max").field_path(".min")
)]
pub struct Nodes {
    /// The number of nodes to have always.
    #[serde(default = "default_min")]
    #[schemars(range(min = 0, max = 1000))]
    pub min: u32,
    /// The number of nodes to have at most, if pods need them.
    #[serde(default = "default_max")]
    #[schemars(range(min = 1, max = 1000))]
    pub max: u32,
    /// The number of GPUs that the pods for a node must request together, so that the node is bid for; 0 for any number. It
    /// applies to nodes beyond `min`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub min_requested_gpus: u32,
}

fn default_min() -> u32 {
    1
}

fn default_max() -> u32 {
    1
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes { min: default_min(), max: default_max(), min_requested_gpus: 0 }
    }
}

/// The times after which nodes are given up.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// The longest time for the pods of a node that is given up without a notice to leave, as in `15m`. Without it the
    /// operator's `--drain-within`, which is 15 minutes by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = 40), extend("pattern" = TIME_SPAN))]
    pub within: Option<TimeSpan>,
    /// The time for which a node beyond `nodes.min` may stay empty, as in `10m`, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = 40), extend("pattern" = TIME_SPAN))]
    pub empty_after: Option<TimeSpan>,
    /// The time for which a node may be not ready before it is replaced, as in `5m`, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = 40), extend("pattern" = TIME_SPAN))]
    pub not_ready_after: Option<TimeSpan>,
}

/// A maximal bid in USD per node-hour, or a maximal cost per hour, as it is written. Two that are written differently differ, also if their amounts do
/// not.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(try_from = "String", into = "String")]
pub struct MaxBid {
    text: String,
    micros: u64,
}

impl MaxBid {
    /// Returns the maximal bid of an amount in micro-dollars, in the shortest way to write it.
    pub fn from_micros(micros: u64) -> MaxBid {
        let (whole, part) = (micros / 1_000_000, format!("{:06}", micros % 1_000_000));
        let text = match part.trim_end_matches('0') {
            "" => whole.to_string(),
            part => format!("{whole}.{part}"),
        };
        MaxBid { text, micros }
    }

    /// Returns the amount in micro-dollars.
    pub fn micros(&self) -> u64 {
        self.micros
    }

    /// Returns true if the schema accepts it: it has no more digits than that, no sign of a currency, and an amount in range.
    fn is_valid(&self) -> bool {
        let whole = self.text.split('.').next().unwrap_or_default();
        (1..=7).contains(&whole.len())
            && !whole.starts_with('$')
            && (MAX_BID_MICROS_MIN..=MAX_BID_MICROS_MAX).contains(&self.micros)
    }
}

impl fmt::Display for MaxBid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl TryFrom<String> for MaxBid {
    type Error = String;

    fn try_from(text: String) -> Result<MaxBid, String> {
        let amount: Dollars = text.parse().map_err(|error| format!("{text:?}: {error}"))?;
        Ok(MaxBid { text, micros: amount.0 })
    }
}

impl From<MaxBid> for String {
    fn from(max_bid: MaxBid) -> String {
        max_bid.text
    }
}

/// A length of time as in `90s` or `1h30m`, as it is written.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(try_from = "String", into = "String")]
pub struct TimeSpan(String);

impl TryFrom<String> for TimeSpan {
    type Error = String;

    fn try_from(text: String) -> Result<TimeSpan, String> {
        if is_span(&text) {
            Ok(TimeSpan(text))
        } else {
            Err(format!("{text:?} is no length of time: write it as in 90s or 15m"))
        }
    }
}

impl From<TimeSpan> for String {
    fn from(span: TimeSpan) -> String {
        span.0
    }
}

/// Returns true if the schema accepts a text as a length of time: up to four times a number and a unit. A text of more than 40
/// characters is too long.
fn is_span(text: &str) -> bool {
    let mut rest = text;
    let mut parts = 0;
    while !rest.is_empty() {
        let Some(after) = without_span_part(rest) else { return false };
        (rest, parts) = (after, parts + 1);
    }
    (1..=4).contains(&parts) && text.len() <= 40
}

/// Returns the text after its first number and unit, as in `1.5h`.
fn without_span_part(text: &str) -> Option<&str> {
    let without_digits = |text: &'_ str, most: usize| {
        let rest = text.trim_start_matches(|it: char| it.is_ascii_digit());
        (1..=most).contains(&(text.len() - rest.len())).then_some(text.len() - rest.len())
    };
    let text = &text[without_digits(text, 6)?..];
    let text = match text.strip_prefix('.') {
        Some(fraction) => &fraction[without_digits(fraction, 3)?..],
        None => text,
    };
    ["ms", "s", "m", "h"].iter().find_map(|unit| text.strip_prefix(unit))
}

impl BidNodeSpec {
    /// Returns true if names, amounts and numbers are as the schema demands. A kept field of a stored object is checked by no
    /// schema.
    pub(crate) fn is_valid(&self) -> bool {
        let Nodes { min, max, min_requested_gpus } = self.nodes;
        self.instance_types.iter().chain(&self.regions).all(|name| is_name(name))
            && self.max_bid.is_valid()
            && min <= max
            && (1..=NODES_MAX).contains(&max)
            && min_requested_gpus <= NODES_MAX
            && self.max_hourly_cost.as_ref().is_none_or(MaxBid::is_valid)
            && self.weight <= WEIGHT_MAX
            && (!self.gang || min >= 2 && min == max && min_requested_gpus == 0)
    }
}

/// Returns true if the schema accepts a text as the name of an instance type or of a region.
fn is_name(text: &str) -> bool {
    let is_edge = |it: char| it.is_ascii_alphanumeric();
    text.len() <= 63
        && text.starts_with(is_edge)
        && text.ends_with(is_edge)
        && text.chars().all(|it| it.is_ascii_alphanumeric() || "-_.".contains(it))
}

/// Reads the types of a BidNode. A kept field of a stored object is checked by no schema, hence here.
fn instance_types<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = set(deserializer, INSTANCE_TYPES_MAX)?;
    if names.is_empty() { Err(serde::de::Error::custom("no instance type")) } else { Ok(names) }
}

/// Reads the regions of a BidNode.
fn regions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    set(deserializer, REGIONS_MAX)
}

fn set<'de, D: Deserializer<'de>>(deserializer: D, length_max: usize) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    if names.len() > length_max {
        return Err(serde::de::Error::custom(format!("more than {length_max} names")));
    }
    if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
        return Err(serde::de::Error::custom("a name twice"));
    }
    Ok(names)
}
