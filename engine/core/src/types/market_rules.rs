//! The rules of a market: names, defaults and bounds, in one table.

use std::ops::RangeInclusive;

use crate::types::reject::Reject;
use crate::types::units::Micros;

/// The rules of a market. A journaled command sets them, so that a replay has the rules of the day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarketRules {
    /// The smallest price step. Every price is a multiple of it, and it never changes after the
    /// market is opened.
    pub tick: u64,
    /// The increment that a challenger must offer above the ceiling it displaces, in 1/10000 of that ceiling.
    pub increment_bps: u64,
    /// The highest ceiling that a bid may have, in micro-dollars per node-hour.
    pub ceiling_max: u64,
    /// The highest `max_nodes` that a bid may have.
    pub bid_nodes_max: u64,
    /// The time for which a node is protected after it is ready, in microseconds (R4).
    pub min_runtime: Micros,
    /// The shortest time between a notice and its deadline, in microseconds (R5, R11).
    pub notice: Micros,
    /// The time in which a node must become ready, in microseconds; greater than 0 (R11).
    pub start_timeout: Micros,
    /// The least time billed for a released node, and the time billed for a claim given up, in microseconds (R15).
    pub min_charge: Micros,
    /// The marketplace's share of a debit, in 1/10000 of it (R15).
    pub fee_bps: u64,
    /// The price rule (R8).
    pub pricing: Pricing,
}

/// The rule by which held nodes are priced (R8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pricing {
    /// The price is `min(L, max(R, H))`.
    HighestLosing,
    /// The price is L if no free unit has a reserve of at most L, and else as with `HighestLosing`.
    LowestAccepted,
}

impl Default for MarketRules {
    fn default() -> Self {
        MarketRules {
            tick: 100,
            increment_bps: 500,
            ceiling_max: 1_000_000_000_000,
            bid_nodes_max: 1000,
            min_runtime: Micros::seconds(3600),
            notice: Micros::seconds(300),
            start_timeout: Micros::seconds(900),
            min_charge: Micros::seconds(300),
            fee_bps: 0,
            pricing: Pricing::HighestLosing,
        }
    }
}

/// The most units that one offer may have. The exchange keeps each of them.
pub const OFFER_UNITS_MAX: u64 = 100_000;

/// The limits that keep sums within their types: a thousand years, and a billion dollars per hour.
const SPAN_MAX: u64 = 1000 * 366 * Micros::DAY.0;
const PRICE_MAX: u64 = 1_000_000_000_000_000;

/// The names of all rules, as commands and answers use them.
pub const RULE_NAMES: [&str; 10] = [
    "tick",
    "increment_bps",
    "ceiling_max",
    "bid_nodes_max",
    "min_runtime_us",
    "notice_us",
    "start_timeout_us",
    "min_charge_us",
    "fee_bps",
    "pricing",
];

impl MarketRules {
    /// Returns these rules with `changes` applied. Unknown names are refused before bad values.
    pub fn with(&self, changes: &[RuleChange]) -> Result<MarketRules, Reject> {
        if changes.iter().any(|change| !RULE_NAMES.contains(&&*change.name)) {
            return Err(Reject::UnknownRule);
        }
        let mut rules = self.clone();
        for change in changes {
            rules.set(change).ok_or(Reject::BadRule)?;
        }
        Ok(rules)
    }

    /// Returns the numbers that a rule allows; None for a name without a number.
    pub fn range(name: &str) -> Option<RangeInclusive<u64>> {
        Some(match name {
            "tick" | "ceiling_max" => 1..=PRICE_MAX,
            "increment_bps" => 0..=1_000_000,
            "bid_nodes_max" => 1..=u64::from(u32::MAX),
            "min_runtime_us" | "notice_us" | "min_charge_us" => 0..=SPAN_MAX,
            "start_timeout_us" => 1..=SPAN_MAX,
            "fee_bps" => 0..=10_000,
            _ => return None,
        })
    }

    fn set(&mut self, change: &RuleChange) -> Option<()> {
        let number = || match (&change.value, Self::range(&change.name)) {
            (RuleValue::Number(n), Some(range)) if range.contains(n) => Some(*n),
            (RuleValue::Number(_) | RuleValue::Word(_), _) => None,
        };
        let span = || number().map(Micros);
        match &*change.name {
            "tick" => self.tick = number()?,
            "increment_bps" => self.increment_bps = number()?,
            "ceiling_max" => self.ceiling_max = number()?,
            "bid_nodes_max" => self.bid_nodes_max = number()?,
            "min_runtime_us" => self.min_runtime = span()?,
            "notice_us" => self.notice = span()?,
            "start_timeout_us" => self.start_timeout = span()?,
            "min_charge_us" => self.min_charge = span()?,
            "fee_bps" => self.fee_bps = number()?,
            "pricing" => {
                self.pricing = match &change.value {
                    RuleValue::Word(word) if &**word == "HighestLosing" => Pricing::HighestLosing,
                    RuleValue::Word(word) if &**word == "LowestAccepted" => Pricing::LowestAccepted,
                    RuleValue::Word(_) | RuleValue::Number(_) => return None,
                }
            }
            other => unreachable!("{other} is not in RULE_NAMES"),
        }
        Some(())
    }
}

/// A new value for one market rule, by name. The core knows the names and the allowed values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleChange {
    /// One of [`RULE_NAMES`]; any other is refused.
    pub name: Box<str>,
    /// The new value of the rule.
    pub value: RuleValue,
}

impl RuleChange {
    /// Returns a change of the rule `name` to a number.
    pub fn number(name: &str, value: u64) -> RuleChange {
        RuleChange { name: name.into(), value: RuleValue::Number(value) }
    }
}

/// The value of one market rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleValue {
    /// A number, in the unit of the rule: micro-dollars per node-hour, nodes, 1/10000, or microseconds.
    Number(u64),
    /// A word, as in `HighestLosing`: the value of `pricing`.
    Word(Box<str>),
}
