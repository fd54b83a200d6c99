//! Conversion of BidNodes between v1, which is stored, and v2beta1, which is the hub: it can say all that v1 can say.
//!
//! The operator reads v1 and converts in process ([`hub`]), so it needs no webhook.

use crate::api::v2beta1::{self, Drain, MaxBid, Nodes, TimeSpan};
use crate::api::{
    ANNOTATION_DRAIN_WITHIN, ANNOTATION_EMPTY_AFTER, ANNOTATION_UNHEALTHY_AFTER, BidNode, BidNodeSpec, GROUP,
    micros, usd,
};
use kube::{Resource as _, ResourceExt as _};
use kubebid_webhook::conversion::{CONVERSION_DATA, Conversions, Converter, Version};
use std::collections::BTreeMap;
use std::sync::LazyLock;

impl Version for v2beta1::BidNode {
    type Hub = v2beta1::BidNode;

    fn to_hub(self) -> v2beta1::BidNode {
        self
    }

    fn from_hub(hub: v2beta1::BidNode) -> Self {
        hub
    }

    fn is_valid(&self) -> bool {
        self.spec.is_valid()
    }
}

impl Version for BidNode {
    type Hub = v2beta1::BidNode;

    fn to_hub(self) -> v2beta1::BidNode {
        let BidNode { mut metadata, spec, status } = self;
        let annotations = metadata.annotations.get_or_insert_default();
        let mut drain = Drain::default();
        for (name, span) in spans(&mut drain) {
            *span = take_span(annotations, name);
        }
        let spec = v2beta1::BidNodeSpec {
            instance_types: vec![spec.instance_type],
            regions: Vec::from_iter(spec.region),
            max_bid: MaxBid::from_micros(micros(spec.max_bid)),
            nodes: Nodes {
                min: spec.min_nodes,
                max: spec.max_nodes,
                min_requested_gpus: spec.min_requested_gpus,
            },
            max_hourly_cost: spec.max_hourly_cost.map(|cost| MaxBid::from_micros(micros(cost))),
            weight: spec.weight,
            disruption: spec.disruption,
            gang: spec.gang,
            strategy: spec.bid_strategy,
            labels: spec.node_selector,
            taints: spec.taints,
            drain: (drain != Drain::default()).then_some(drain),
        };
        v2beta1::BidNode { metadata, spec, status }
    }

    fn from_hub(hub: v2beta1::BidNode) -> Self {
        let v2beta1::BidNode { mut metadata, spec, status } = hub;
        let mut drain = spec.drain.unwrap_or_default();
        let annotations = metadata.annotations.get_or_insert_default();
        for (name, span) in spans(&mut drain) {
            if let Some(span) = span.take() {
                annotations.insert(name.to_owned(), span.into());
            }
        }
        let spec = BidNodeSpec {
            instance_type: spec.instance_types.into_iter().next().unwrap_or_default(),
            region: spec.regions.into_iter().next(),
            max_bid: usd(spec.max_bid.micros()),
            min_nodes: spec.nodes.min,
            max_nodes: spec.nodes.max,
            min_requested_gpus: spec.nodes.min_requested_gpus,
            max_hourly_cost: spec.max_hourly_cost.map(|cost| usd(cost.micros())),
            weight: spec.weight,
            disruption: spec.disruption,
            gang: spec.gang,
            bid_strategy: spec.strategy,
            node_selector: spec.labels,
            taints: spec.taints,
        };
        BidNode { metadata, spec, status }
    }
}

/// Returns the lengths of time of v2beta1 with the annotations that they are in v1.
fn spans(drain: &mut Drain) -> [(&'static str, &mut Option<TimeSpan>); 3] {
    [
        (ANNOTATION_DRAIN_WITHIN, &mut drain.within),
        (ANNOTATION_EMPTY_AFTER, &mut drain.empty_after),
        (ANNOTATION_UNHEALTHY_AFTER, &mut drain.not_ready_after),
    ]
}

/// Takes a length of time out of the annotations. What is none stays there.
fn take_span(annotations: &mut BTreeMap<String, String>, name: &str) -> Option<TimeSpan> {
    let span = annotations.get(name)?.clone().try_into().ok()?;
    annotations.remove(name);
    Some(span)
}

/// Returns the converter of BidNodes.
fn converter() -> Converter<v2beta1::BidNode> {
    Converter::new().version::<BidNode>().version::<v2beta1::BidNode>()
}

/// Returns the conversions.
pub fn conversions() -> Conversions {
    Conversions::new().kind(converter())
}

/// Returns what a stored BidNode says in v2beta1, with the fields that v1 cannot say. Its lengths of time are annotations of the
/// stored object, where the operator reads them.
///
/// These fields are in an annotation, which no schema checks: the [`Converter`] says which of them count.
pub fn hub(bidnode: &BidNode) -> v2beta1::BidNode {
    static CONVERTER: LazyLock<Converter<v2beta1::BidNode>> = LazyLock::new(converter);
    let plain = || bidnode.clone().to_hub();
    let prefix = format!("{GROUP}/{CONVERSION_DATA}");
    if !bidnode.annotations().keys().any(|key| key.starts_with(&prefix)) {
        return plain();
    }
    let restored = serde_json::to_value(bidnode)
        .ok()
        .and_then(|object| CONVERTER.convert(object, &v2beta1::BidNode::api_version(&())).ok())
        .and_then(|object| serde_json::from_value::<v2beta1::BidNode>(object).ok());
    restored.unwrap_or_else(plain)
}
