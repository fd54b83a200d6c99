//! Plans the markets that a bid names: those of a set of instance types in a set of regions.

use crate::api::{BidNode, BidSlotSpec, BidSlotStatus};
use crate::conversion::hub;
use std::collections::BTreeSet;

/// The largest number of markets that the engine lets a bid name.
pub const MOST_MARKETS: usize = 100;

/// The instance types and regions in which a BidNode or a slot bids.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// The instance types, at least one.
    pub instance_types: Vec<String>,
    /// The regions; any region if there is none.
    pub regions: Vec<String>,
}

/// The markets that a bid names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedMarkets {
    /// The names of the markets, or an instance type alone for all its markets, also those that open later.
    pub names: Vec<String>,
    /// The number of open markets that are left out because a bid names at most [`MOST_MARKETS`].
    pub left_out: usize,
}

impl Scope {
    /// Returns the scope of a BidNode, also of one whose further types and regions v1 cannot say. No schema checks these types
    /// when a client writes v1: those that are not among the allowed ones are left out. `None` allows all.
    pub fn of_bidnode(bidnode: &BidNode, allowed: Option<&BTreeSet<String>>) -> Self {
        let spec = hub(bidnode).spec;
        let mut instance_types = spec.instance_types;
        instance_types.retain(|name| {
            *name == bidnode.spec.instance_type || allowed.is_none_or(|allowed| allowed.contains(name))
        });
        Scope { instance_types, regions: spec.regions }
    }

    /// Returns the scope of a BidNode as v1 says it, without what v1 keeps for v2beta1.
    pub fn of_v1(bidnode: &BidNode) -> Self {
        let spec = &bidnode.spec;
        Scope {
            instance_types: vec![spec.instance_type.clone()],
            regions: spec.region.iter().cloned().collect(),
        }
    }

    /// Returns the scope of a slot. One that has no lists was created for a single type.
    pub fn of_slot(slot: &BidSlotSpec) -> Self {
        if slot.instance_types.is_empty() {
            Scope {
                instance_types: vec![slot.instance_type.clone()],
                regions: slot.region.iter().cloned().collect(),
            }
        } else {
            Scope { instance_types: slot.instance_types.clone(), regions: slot.regions.clone() }
        }
    }

    /// Returns whether all markets of another scope are in this one.
    pub fn covers(&self, other: &Scope) -> bool {
        let has = |ours: &[String], theirs: &[String]| {
            let ours: BTreeSet<_> = ours.iter().collect();
            theirs.iter().all(|it| ours.contains(it))
        };
        let any_region = self.regions.is_empty();
        has(&self.instance_types, &other.instance_types)
            && (any_region || !other.regions.is_empty() && has(&self.regions, &other.regions))
    }

    /// Returns the markets that a bid in this scope names. `open` are the names of the open markets, the first opened first. One
    /// type in any region is named by its type. The order is that of the types, then of the regions, so that a market that opens
    /// later displaces none.
    pub fn named(&self, open: &[String]) -> NamedMarkets {
        if let ([instance_type], []) = (&self.instance_types[..], &self.regions[..]) {
            return NamedMarkets { names: vec![instance_type.clone()], left_out: 0 };
        }
        let mut names: Vec<String> =
            self.instance_types.iter().flat_map(|instance_type| self.of_type(instance_type, open)).collect();
        let left_out = names.len().saturating_sub(MOST_MARKETS);
        names.truncate(MOST_MARKETS);
        NamedMarkets { names, left_out }
    }

    /// Returns the instance types that a bid in this scope can win: those with an open market, or all if none is open.
    pub fn winnable_types(&self, open: &[String]) -> Vec<String> {
        let names = self.named(open).names;
        let is_named =
            |kind: &&String| names.iter().any(|name| name.split('/').next() == Some(kind.as_str()));
        let types: Vec<String> = self.instance_types.iter().filter(is_named).cloned().collect();
        if types.is_empty() { self.instance_types.clone() } else { types }
    }

    fn of_type(&self, instance_type: &str, open: &[String]) -> Vec<String> {
        let region_of = |market: &String| {
            let (kind, region) = market.split_once('/')?;
            (kind == instance_type).then(|| region.to_owned())
        };
        let there: Vec<String> = open.iter().filter_map(region_of).collect();
        let regions = if self.regions.is_empty() {
            there
        } else {
            self.regions.iter().filter(|region| there.contains(region)).cloned().collect()
        };
        regions.iter().map(|region| format!("{instance_type}/{region}")).collect()
    }
}

/// Returns the markets that the bid of a slot names. An older operator did not record them: its bids name the single type and
/// region.
pub fn bid_markets(slot: &BidSlotSpec, status: &BidSlotStatus) -> Vec<String> {
    if !status.bid_markets.is_empty() {
        return status.bid_markets.clone();
    }
    vec![match &slot.region {
        Some(region) => format!("{}/{region}", slot.instance_type),
        None => slot.instance_type.clone(),
    }]
}

/// Returns whether a bid that names these markets looks in all of the wanted ones.
pub fn names_all(names: &[String], wanted: &[String]) -> bool {
    let is_named = |market: &String| {
        let instance_type = market.split('/').next().unwrap_or_default();
        names.iter().any(|name| name == market || name == instance_type)
    };
    wanted.iter().all(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn scope(instance_types: &[&str], regions: &[&str]) -> Scope {
        Scope { instance_types: texts(instance_types), regions: texts(regions) }
    }

    const OPEN: [&str; 5] = ["h100/eu", "h100/us", "a100/us", "a100/ap", "l40s/eu"];

    #[track_caller]
    fn check(instance_types: &[&str], regions: &[&str], names: &[&str]) {
        let named = scope(instance_types, regions).named(&texts(&OPEN));
        assert_eq!(named, NamedMarkets { names: texts(names), left_out: 0 });
    }

    #[test]
    fn a_bid_names_the_open_markets_of_its_types_and_regions() {
        check(&["h100"], &[], &["h100"]);
        check(&["h100"], &["us"], &["h100/us"]);
        check(&["h100"], &["us", "eu", "ap"], &["h100/us", "h100/eu"]);
        check(&["a100", "h100"], &["us", "eu"], &["a100/us", "h100/us", "h100/eu"]);
        check(&["a100", "h100"], &[], &["a100/us", "a100/ap", "h100/eu", "h100/us"]);
        check(&["b200"], &["us"], &[]);
    }

    #[test]
    fn a_bid_names_a_hundred_markets_at_most_the_first_opened_first() {
        let open = |count: usize| (0..count).map(|region| format!("h100/{region}")).collect::<Vec<_>>();
        let both = scope(&["h100", "a100"], &[]);
        assert_eq!(both.named(&open(100)), NamedMarkets { names: open(100), left_out: 0 });
        assert_eq!(both.named(&open(103)), NamedMarkets { names: open(100), left_out: 3 });
        assert_eq!(scope(&["h100"], &[]).named(&open(103)).left_out, 0, "it is named by its type");
    }

    #[test]
    fn a_type_without_an_open_market_cannot_be_won() {
        let types = |instance_types: &[&str], regions: &[&str]| {
            scope(instance_types, regions).winnable_types(&texts(&OPEN))
        };
        assert_eq!(types(&["h100", "l40s", "b200"], &["eu"]), ["h100", "l40s"]);
        assert_eq!(types(&["h100", "l40s"], &["us"]), ["h100"]);
        assert_eq!(types(&["b200"], &[]), ["b200"]);
        assert_eq!(types(&["b200", "b300"], &[]), ["b200", "b300"]);
    }

    #[test]
    fn a_wider_scope_covers_a_narrower_one() {
        let covers = |wide: &Scope, narrow: &Scope| (wide.covers(narrow), narrow.covers(wide));
        let one = scope(&["h100"], &["eu"]);
        assert_eq!(covers(&scope(&["a100", "h100"], &["eu"]), &one), (true, false));
        assert_eq!(covers(&scope(&["h100"], &["us", "eu"]), &one), (true, false));
        assert_eq!(covers(&scope(&["h100"], &[]), &one), (true, false));
        assert_eq!(covers(&scope(&["a100"], &[]), &one), (false, false));
        let (there, back) =
            (scope(&["h100", "a100"], &["eu", "us"]), scope(&["a100", "h100"], &["us", "eu"]));
        assert_eq!(covers(&there, &back), (true, true), "the order does not matter");
    }

    #[test]
    fn a_slot_without_lists_has_its_single_type_and_region() {
        let slot = |text: &str| serde_json::from_str::<BidSlotSpec>(text).unwrap();
        let old = slot(r#"{"instanceType": "h100", "region": "eu"}"#);
        assert_eq!(Scope::of_slot(&old), scope(&["h100"], &["eu"]));
        assert_eq!(bid_markets(&old, &BidSlotStatus::default()), ["h100/eu"]);
        let anywhere = slot(r#"{"instanceType": "h100"}"#);
        assert_eq!(Scope::of_slot(&anywhere), scope(&["h100"], &[]));
        assert_eq!(bid_markets(&anywhere, &BidSlotStatus::default()), ["h100"]);
        let new = slot(r#"{"instanceType": "h100", "region": "eu", "instanceTypes": ["h100", "a100"]}"#);
        assert_eq!(Scope::of_slot(&new), scope(&["h100", "a100"], &[]));
        let status = BidSlotStatus { bid_markets: texts(&["h100/eu"]), ..BidSlotStatus::default() };
        assert_eq!(bid_markets(&new, &status), ["h100/eu"]);
    }

    #[test]
    fn a_type_alone_names_all_its_markets() {
        let all = |names: &[&str], wanted: &[&str]| names_all(&texts(names), &texts(wanted));
        assert!(all(&["h100"], &["h100"]) && all(&["h100"], &["h100/eu", "h100/us"]));
        assert!(all(&["h100/eu", "a100/us"], &["a100/us"]) && all(&["h100/eu"], &[]));
        assert!(!all(&["h100/eu"], &["h100"]) && !all(&["h100"], &["a100/us"]));
    }
}
