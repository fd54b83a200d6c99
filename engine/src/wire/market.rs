//! Converts markets, their numbers and their depth.

use crate::events::message::price_numbers;
use crate::readmodel::rows::{PriceBar, PricePoint};
use crate::runtime::views::MarketView;
use kubebid_core::market_rules::Pricing;
use kubebid_core::numbers::Supply;
use kubebid_core::units::MarketName;
use kubebid_core::views::{DemandLevel, SupplyLevel};
use kubebid_core::{MarketRules, MarketState, Price};
use kubebid_proto::v1;
use kubebid_proto::v1::get_depth_response as depth;
use kubebid_proto::v1::market::State;
use kubebid_proto::v1::market_rules::Pricing as PricingWord;

pub(crate) fn market(view: &MarketView) -> v1::Market {
    let (instance_type, region) = view.name.parts();
    v1::Market {
        market: view.name.to_string(),
        instance_type: instance_type.to_owned(),
        region: region.to_owned(),
        opened_at_us: view.opened_at.0,
        rules: Some(rules(&view.rules)),
        price: Some(price(view)),
        state: state(view.state).into(),
    }
}

fn state(state: MarketState) -> State {
    match state {
        MarketState::Open => State::Open,
        MarketState::Closing(_) => State::Closing,
        MarketState::Ended => State::Ended,
    }
}

pub(crate) fn rules(rules: &MarketRules) -> v1::MarketRules {
    let pricing = match rules.pricing {
        Pricing::HighestLosing => PricingWord::HighestLosing,
        Pricing::LowestAccepted => PricingWord::LowestAccepted,
    };
    v1::MarketRules {
        tick_micros: Some(rules.tick),
        increment_bps: Some(count(rules.increment_bps)),
        ceiling_max_micros: Some(rules.ceiling_max),
        bid_nodes_max: Some(count(rules.bid_nodes_max)),
        min_runtime_us: Some(rules.min_runtime.0),
        notice_us: Some(rules.notice.0),
        start_timeout_us: Some(rules.start_timeout.0),
        min_charge_us: Some(rules.min_charge.0),
        fee_bps: Some(count(rules.fee_bps)),
        pricing: Some(pricing.into()),
    }
}

/// Converts the numbers, with the entry price of one node.
pub(crate) fn price(view: &MarketView) -> v1::MarketPrice {
    v1::MarketPrice {
        market: view.name.to_string(),
        numbers: Some(price_numbers(&view.numbers)),
        entry_nodes: 1,
        supply: Some(supply(&view.supply)),
        reference_price_micros: micros(view.reference_price),
        seq: view.seq.0,
        at_us: view.at.0,
    }
}

/// Returns the present numbers in the form of a change.
pub(crate) fn present(view: &MarketView) -> v1::PricePoint {
    v1::PricePoint {
        market: view.name.to_string(),
        seq: view.seq.0,
        index: 0,
        at_us: view.at.0,
        numbers: Some(price_numbers(&view.numbers)),
    }
}

pub(crate) fn past(market: &MarketName, point: &PricePoint) -> v1::PricePoint {
    v1::PricePoint {
        market: market.to_string(),
        seq: point.seq.0,
        index: point.index,
        at_us: point.at.0,
        numbers: Some(price_numbers(&point.numbers)),
    }
}

pub(crate) fn bar(bar: &PriceBar) -> v1::PriceBar {
    v1::PriceBar {
        start_us: bar.start.0,
        open_micros: bar.open.0,
        high_micros: bar.high.0,
        low_micros: bar.low.0,
        close_micros: bar.close.0,
        mean_micros: bar.mean.0,
        changes: bar.changes,
    }
}

pub(crate) fn supply(supply: &Supply) -> v1::Supply {
    v1::Supply {
        total: count(supply.total),
        free: count(supply.free),
        allocated: count(supply.allocated),
        notice: count(supply.notice),
        claimed: count(supply.claimed),
        resting: count(supply.resting),
    }
}

pub(crate) fn demand_level(level: &DemandLevel) -> depth::DemandLevel {
    depth::DemandLevel {
        ceiling_micros: level.ceiling.0,
        unmet: count(level.unmet),
        held: count(level.held),
        claimed: count(level.claimed),
    }
}

pub(crate) fn supply_level(level: &SupplyLevel) -> depth::SupplyLevel {
    depth::SupplyLevel {
        reserve_micros: level.reserve.0,
        free: count(level.free),
        allocated: count(level.allocated),
        notice: count(level.notice),
    }
}

fn micros(price: Option<Price>) -> Option<u64> {
    price.map(|price| price.0)
}

/// Returns a number of nodes. No market has more than fit.
fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
