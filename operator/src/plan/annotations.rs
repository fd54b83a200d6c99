//! Reads the annotations of a BidNode that have a value.

use crate::api::{
    ANNOTATION_ABANDON, ANNOTATION_DRAIN_WITHIN, ANNOTATION_EMPTY_AFTER, ANNOTATION_UNHEALTHY_AFTER, BidNode,
};
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt as _;
use std::time::Duration;

/// Returns the length of time that an annotation gives; the default if there is none, or if it is no length of time.
pub fn duration(bidnode: &BidNode, annotation: &str, default: SignedDuration) -> SignedDuration {
    bidnode.annotations().get(annotation).and_then(|text| parse(text)).unwrap_or(default)
}

fn parse(text: &str) -> Option<SignedDuration> {
    // An empty text is parsed as no time at all.
    let parsed =
        text.parse::<kube::core::Duration>().ok().filter(|it| !text.is_empty() && !it.is_negative())?;
    SignedDuration::try_from(Duration::from(parsed)).ok()
}

/// Returns the first annotation of a BidNode with a value that does not count, as a clause. The default counts instead.
pub fn invalid(bidnode: &BidNode) -> Option<String> {
    let annotations = bidnode.annotations();
    let spans = [ANNOTATION_EMPTY_AFTER, ANNOTATION_UNHEALTHY_AFTER, ANNOTATION_DRAIN_WITHIN];
    let no_span = spans.iter().find_map(|name| {
        let text = annotations.get(*name).filter(|text| parse(text).is_none())?;
        Some(format!(
            "annotation {name} is {text:?}, which is no length of time as in 10m: the default counts"
        ))
    });
    no_span.or_else(|| {
        let text =
            annotations.get(ANNOTATION_ABANDON).filter(|text| !matches!(text.as_str(), "true" | "false"))?;
        Some(format!("annotation {ANNOTATION_ABANDON} is {text:?}: only \"true\" counts"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bidnode(annotation: &str, value: &str) -> BidNode {
        let object = json!({
            "apiVersion": "kubebid.io/v1", "kind": "BidNode",
            "metadata": {"name": "gpu", "annotations": {annotation: value}},
            "spec": {"instanceType": "h100-8x", "maxBid": 3.0},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_value_that_does_not_count_is_named() {
        let default = SignedDuration::from_mins(10);
        for (text, is) in [("90s", Some(90)), ("0s", Some(0)), ("ten", None), ("-5m", None), ("", None)] {
            let bidnode = bidnode(ANNOTATION_EMPTY_AFTER, text);
            let expected = is.map_or(default, SignedDuration::from_secs);
            assert_eq!(duration(&bidnode, ANNOTATION_EMPTY_AFTER, default), expected, "{text}");
            assert_eq!(invalid(&bidnode).is_none(), is.is_some(), "{text}");
        }
        let said = invalid(&bidnode(ANNOTATION_DRAIN_WITHIN, "ten")).unwrap();
        assert!(said.starts_with("annotation kubebid.io/drain-within is \"ten\", which is no"), "{said}");
        assert!(invalid(&bidnode(ANNOTATION_ABANDON, "yes")).is_some());
        assert_eq!(invalid(&bidnode(ANNOTATION_ABANDON, "true")), None);
    }
}
