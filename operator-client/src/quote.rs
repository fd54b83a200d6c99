//! Gathers what a bidding strategy needs to know about markets.

use kubebid_proto::v1;
use kubebid_strategy::{Quote, shared_tick_micros};

/// Several markets, seen as one by a bid that looks in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CombinedQuote {
    /// The prices and the tick.
    pub quote: Quote,
    /// The largest increment of the markets (R4).
    pub increment_bps: u64,
}

/// Returns the markets as one: the lowest reference and floor of those that have a free node, of all where none
/// has; a tick that suits all, and the largest increment. `None` if no tick suits all, or if there is no market.
pub fn quoted(markets: &[v1::Market]) -> Option<CombinedQuote> {
    // A closing market takes no new bids.
    let markets = || markets.iter().filter(|market| market.state() != v1::market::State::Closing);
    let rules = || markets().filter_map(|market| market.rules.as_ref());
    let tick_micros = shared_tick_micros(rules().filter_map(|rules| rules.tick_micros))?;
    let prices = || markets().filter_map(|market| market.price.as_ref());
    let has_free = |price: &&v1::MarketPrice| price.supply.as_ref().is_some_and(|supply| supply.free > 0);
    let any_free = prices().any(|price| has_free(&price));
    let quote = lowest(prices().filter(|price| !any_free || has_free(price)), tick_micros);
    let increment_bps = rules().filter_map(|rules| rules.increment_bps).max().unwrap_or_default().into();
    Some(CombinedQuote { quote, increment_bps })
}

fn lowest<'a>(prices: impl Iterator<Item = &'a v1::MarketPrice>, tick_micros: u64) -> Quote {
    let mut quote = Quote { reference_micros: None, floor_micros: None, tick_micros };
    let lower = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
    for price in prices {
        let floor = price.numbers.as_ref().and_then(|numbers| numbers.floor_micros);
        quote.reference_micros = lower(quote.reference_micros, price.reference_price_micros);
        quote.floor_micros = lower(quote.floor_micros, floor);
    }
    quote
}

#[cfg(test)]
mod tests {
    use super::*;

    fn market(tick: u64, increment: u32, (reference, floor): (u64, u64), free: u32) -> v1::Market {
        let numbers = v1::PriceNumbers { floor_micros: Some(floor), ..Default::default() };
        let price = v1::MarketPrice {
            numbers: Some(numbers),
            reference_price_micros: Some(reference),
            supply: Some(v1::Supply { free, ..Default::default() }),
            ..Default::default()
        };
        let rules =
            v1::MarketRules { tick_micros: Some(tick), increment_bps: Some(increment), ..Default::default() };
        v1::Market { price: Some(price), rules: Some(rules), ..Default::default() }
    }

    #[track_caller]
    fn check(markets: &[v1::Market], reference: u64, floor: u64, tick_micros: u64, increment_bps: u64) {
        let quote = Quote { reference_micros: Some(reference), floor_micros: Some(floor), tick_micros };
        assert_eq!(quoted(markets), Some(CombinedQuote { quote, increment_bps }));
    }

    #[test]
    fn markets_with_a_free_node_are_looked_at_before_the_others() {
        let (dear, cheap) = (market(100, 500, (400, 200), 1), market(300, 700, (300, 100), 0));
        check(&[dear.clone(), cheap.clone()], 400, 200, 300, 700);
        let no_free_node = market(100, 500, (400, 200), 0);
        check(&[no_free_node, cheap], 300, 100, 300, 700);
        check(&[dear], 400, 200, 100, 500);
        assert_eq!(quoted(&[]), None);
    }
}
