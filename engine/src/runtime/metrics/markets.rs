//! Gauges of the markets that have not ended, written when they are scraped. A price that does not exist has no series.

use crate::runtime::views::{MarketView, Markets};
use kubebid_core::Price;
use std::fmt::Write as _;

const PRICE: &str = "kubebid_market_price_dollars";
const UNITS: &str = "kubebid_market_units";

/// Writes the gauges in the text format of Prometheus.
pub(crate) fn render(markets: &Markets) -> String {
    let mut text = head(PRICE, "Prices of a market per node-hour, by kind");
    for market in markets.not_ended() {
        for (which, price) in prices(&market) {
            if let Some(Price(micros)) = price {
                let (name, dollars) = (&market.name, micros as f64 / 1e6);
                let _ = writeln!(text, "{PRICE}{{market=\"{name}\",price=\"{which}\"}} {dollars}");
            }
        }
    }
    text += &head(UNITS, "Units of a market by state: free, allocated, notice, resting");
    for market in markets.not_ended() {
        let (name, supply) = (&market.name, market.supply);
        for (state, units) in [
            ("free", supply.free),
            ("allocated", supply.allocated),
            ("notice", supply.notice),
            ("resting", supply.resting),
        ] {
            let _ = writeln!(text, "{UNITS}{{market=\"{name}\",state=\"{state}\"}} {units}");
        }
    }
    text
}

fn head(name: &str, help: &str) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} gauge\n")
}

/// Returns the five numbers of R9 and the reference price.
fn prices(market: &MarketView) -> [(&'static str, Option<Price>); 6] {
    let numbers = &market.numbers;
    [
        ("market", Some(numbers.market_price)),
        ("entry", numbers.entry_price),
        ("floor", numbers.floor),
        ("lowest_accepted", numbers.lowest_accepted),
        ("highest_losing", Some(numbers.highest_losing)),
        ("reference", market.reference_price),
    ]
}
