//! Plans the ceiling of a bid: what to bid, when to amend it, and how far to raise it at a notice.

use crate::api::{BidNodeSpec, micros};
use k8s_openapi::jiff::Timestamp;
use kubebid_strategy::{AtNotice, Quote, Standing, Strategy, amendment_micros};

/// The markets that a BidNode bids in, taken together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Markets {
    /// The prices that a strategy bids by.
    pub quote: Quote,
    /// The largest increment of the markets, in basis points.
    pub increment_bps: u64,
    /// The lowest of the highest ceilings that the markets allow, in micro-dollars per node-hour.
    pub ceiling_max_micros: u64,
    /// The names of the open markets of the BidNode, by type, the first opened first; also of those that are left out.
    pub open: Vec<String>,
    /// The number of open markets that a bid does not name because there are too many.
    pub left_out: usize,
}

/// The ceiling to bid, in micro-dollars per node-hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// A multiple of the tick that all the markets share, at most `maxBid` and what each market allows; 0 if that is below one
    /// tick, so that no bid can be made.
    pub ceiling_micros: u64,
    /// The lowest ceiling that can win, if this one is lower.
    pub below_floor_micros: Option<u64>,
}

/// Returns the ceiling to bid for a node of this BidNode.
pub fn ceiling(spec: &BidNodeSpec, markets: &Markets) -> Ceiling {
    let quote = &markets.quote;
    let most_micros = micros(spec.max_bid).min(markets.ceiling_max_micros);
    let ceiling_micros = Strategy::from(spec.bid_strategy).ceiling_micros(most_micros, quote);
    let floor = quote.floor_micros.and_then(|floor| quote.round_up_micros(floor));
    Ceiling { ceiling_micros, below_floor_micros: floor.filter(|floor| ceiling_micros < *floor) }
}

/// An open bid, or a closed one that holds a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandingBid {
    /// Its ceiling in micro-dollars per node-hour.
    pub ceiling_micros: u64,
    /// True if it holds no node.
    pub waits: bool,
    /// The time until which the market does not let the ceiling be lowered.
    pub protected_until: Option<Timestamp>,
}

/// Returns the ceiling to amend a bid to, if it is to be amended. No ceiling stays above `maxBid`. Otherwise a ceiling
/// moves only by more than the market's increment, and only up if the bid holds a node.
pub fn amendment(spec: &BidNodeSpec, markets: &Markets, bid: &StandingBid, now: Timestamp) -> Option<u64> {
    let wanted = ceiling(spec, markets).ceiling_micros;
    let most = markets.quote.round_down_micros(micros(spec.max_bid));
    if most == 0 || wanted == 0 {
        return None;
    }
    if bid.ceiling_micros > most {
        let protected = bid.protected_until.is_some_and(|until| now < until);
        return (!protected).then_some(if bid.waits { wanted } else { most });
    }
    let standing = Standing {
        ceiling_micros: bid.ceiling_micros,
        waits: bid.waits,
        tick_micros: markets.quote.tick_micros,
        increment_bps: markets.increment_bps,
    };
    amendment_micros(&standing, wanted)
}

/// Returns the other bids of the BidNode that must be amended before this one: nodes that are held are raised before a
/// waiting bid is, and lowered after it, so that a BidNode never displaces its own node.
pub fn amended_before<'a, T>(
    spec: &BidNodeSpec,
    markets: &Markets,
    (bid, micros): (&StandingBid, u64),
    others: &'a [(T, StandingBid)],
    now: Timestamp,
) -> Vec<&'a T> {
    let raises = micros > bid.ceiling_micros;
    if raises != bid.waits {
        return Vec::new();
    }
    let goes_first = |(_, other): &&(T, StandingBid)| {
        let amended = amendment(spec, markets, other, now).filter(|_| other.waits != bid.waits);
        amended.is_some_and(|micros| (micros > other.ceiling_micros) == raises)
    };
    others.iter().filter(goes_first).map(|(which, _)| which).collect()
}

/// Returns the ceiling that keeps a node under notice, if the strategy pays that much. A gang pays up to `maxBid`, whatever its
/// strategy, since it loses all of its nodes with one. `price_to_stay_micros` is `None` if
/// no ceiling keeps the node, and `markets` is `None` if none is open.
pub fn raise_to_stay(
    spec: &BidNodeSpec,
    markets: Option<&Markets>,
    price_to_stay_micros: Option<u64>,
    ceiling_micros: u64,
) -> Option<u64> {
    let strategy = if spec.gang { Strategy::AvailabilityOptimized } else { spec.bid_strategy.into() };
    match strategy.at_notice(price_to_stay_micros, micros(spec.max_bid), &markets?.quote) {
        AtNotice::RaiseTo { ceiling_micros: raised } => (raised > ceiling_micros).then_some(raised),
        AtNotice::LetGo => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::api::BidStrategy;
    use std::collections::BTreeMap;

    pub(in crate::plan) fn spec(strategy: BidStrategy, max_bid: f64) -> BidNodeSpec {
        BidNodeSpec {
            instance_type: "h100-8x".into(),
            region: None,
            max_bid,
            min_nodes: 1,
            max_nodes: 10,
            min_requested_gpus: 0,
            max_hourly_cost: None,
            weight: 0,
            disruption: None,
            gang: false,
            bid_strategy: strategy,
            node_selector: BTreeMap::new(),
            taints: Vec::new(),
        }
    }

    fn markets(reference: f64, floor: f64) -> Markets {
        let quote = Quote {
            reference_micros: Some(micros(reference)),
            floor_micros: Some(micros(floor)),
            tick_micros: 100,
        };
        Markets {
            quote,
            increment_bps: 500,
            ceiling_max_micros: 1_000_000_000_000,
            open: vec!["h100-8x/eu-west".to_owned()],
            left_out: 0,
        }
    }

    #[track_caller]
    fn check(strategy: BidStrategy, floor: f64, ceiling: f64, below: Option<f64>) {
        let planned = super::ceiling(&spec(strategy, 4.5), &markets(4.0, floor));
        assert_eq!(planned.ceiling_micros, micros(ceiling));
        assert_eq!(planned.below_floor_micros, below.map(micros));
    }

    #[test]
    fn the_ceilings_of_the_strategies() {
        check(BidStrategy::CostOptimized, 2.0, 2.6, None);
        check(BidStrategy::Balanced, 2.0, 3.6, None);
        check(BidStrategy::AvailabilityOptimized, 2.0, 4.5, None);
        check(BidStrategy::CostOptimized, 3.8, 2.6, Some(3.8));
        check(BidStrategy::Balanced, 3.8, 3.8, None);
        check(BidStrategy::AvailabilityOptimized, 3.8, 4.5, None);
    }

    #[test]
    fn a_market_that_costs_nothing_is_bid_one_tick() {
        let bid = |max_bid, ceiling: Ceiling| {
            let planned = super::ceiling(&spec(BidStrategy::Balanced, max_bid), &markets(0.0, 0.0));
            assert_eq!(planned, ceiling);
        };
        bid(4.5, Ceiling { ceiling_micros: 100, below_floor_micros: None });
        bid(0.000_099, Ceiling { ceiling_micros: 0, below_floor_micros: None });
    }

    #[test]
    fn no_ceiling_is_above_what_a_market_allows() {
        let capped = Markets { ceiling_max_micros: 3_000_050, ..markets(4.0, 2.0) };
        let planned = super::ceiling(&spec(BidStrategy::Balanced, 4.5), &capped);
        assert_eq!(planned.ceiling_micros, 3_000_000);
        // A node that is held in another market keeps its ceiling.
        let spec = spec(BidStrategy::Balanced, 4.5);
        let amended = |waits| amendment(&spec, &capped, &bid(4_000_000, waits), Timestamp::UNIX_EPOCH);
        assert_eq!((amended(false), amended(true)), (None, Some(3_000_000)));
    }

    fn amended(max_bid: f64, ceiling: f64, waits: bool, protected: bool) -> Option<f64> {
        let now = Timestamp::UNIX_EPOCH;
        let protected_until = protected.then_some(Timestamp::from_second(1).unwrap());
        let bid = StandingBid { ceiling_micros: micros(ceiling), waits, protected_until };
        amendment(&spec(BidStrategy::Balanced, max_bid), &markets(4.0, 2.0), &bid, now).map(crate::api::usd)
    }

    #[test]
    fn small_moves_keep_the_place_in_the_queue() {
        assert_eq!(amended(4.5, 3.5, true, false), None);
        assert_eq!(amended(4.5, 3.0, true, false), Some(3.6));
        assert_eq!(amended(4.5, 4.4, true, false), Some(3.6));
    }

    #[test]
    fn a_bid_that_holds_a_node_is_raised_and_not_lowered() {
        assert_eq!(amended(4.5, 3.0, false, false), Some(3.6));
        assert_eq!(amended(4.5, 4.4, false, false), None);
    }

    #[test]
    fn nodes_are_raised_before_a_waiting_bid_and_lowered_after_it() {
        const LOW: u64 = 3_000_000;
        const RIGHT: u64 = 3_600_000;
        const HIGH: u64 = 5_000_000;
        let (held, waits) = (|ceiling| bid(ceiling, false), |ceiling| bid(ceiling, true));
        // The numbers of the bids that are amended before the first.
        let before = |bids: &[StandingBid]| {
            let (spec, markets) = (spec(BidStrategy::Balanced, 4.5), markets(4.0, 2.0));
            let now = Timestamp::UNIX_EPOCH;
            let micros = amendment(&spec, &markets, &bids[0], now).expect("it is to be amended");
            let others: Vec<_> = bids.iter().copied().enumerate().skip(1).collect();
            let before = amended_before(&spec, &markets, (&bids[0], micros), &others, now);
            before.into_iter().copied().collect::<Vec<_>>()
        };
        let none: [usize; 0] = [];
        // Up: the nodes first.
        assert_eq!(before(&[held(LOW), waits(LOW), held(LOW)]), none);
        assert_eq!(before(&[waits(LOW), held(LOW)]), [1]);
        assert_eq!(before(&[waits(LOW), held(RIGHT), held(LOW), held(LOW)]), [2, 3]);
        assert_eq!(before(&[waits(LOW), held(RIGHT), held(HIGH), waits(LOW)]), none);
        // Down: the bids first.
        assert_eq!(before(&[waits(HIGH), held(HIGH), waits(HIGH)]), none);
        assert_eq!(before(&[held(HIGH), waits(HIGH)]), [1]);
        assert_eq!(before(&[held(HIGH), waits(RIGHT), waits(LOW), held(HIGH)]), none);
    }

    fn bid(ceiling_micros: u64, waits: bool) -> StandingBid {
        StandingBid { ceiling_micros, waits, protected_until: None }
    }

    #[test]
    fn a_node_under_notice_is_raised_only_as_far_as_its_strategy_pays() {
        let raise = |max_bid, price_to_stay: Option<f64>, ceiling| {
            let (spec, markets) = (spec(BidStrategy::Balanced, max_bid), markets(4.0, 2.0));
            let raised = raise_to_stay(&spec, Some(&markets), price_to_stay.map(micros), micros(ceiling));
            raised.map(crate::api::usd)
        };
        assert_eq!(raise(4.5, Some(3.7), 3.6), Some(3.7));
        assert_eq!(raise(4.5, Some(4.6), 3.6), None);
        assert_eq!(raise(4.5, Some(3.7), 3.7), None);
        assert_eq!(raise(4.5, None, 3.6), None);
        let spec = spec(BidStrategy::Balanced, 4.5);
        assert_eq!(raise_to_stay(&spec, None, Some(1), 0), None, "no market is open");
    }

    #[test]
    fn a_gang_is_raised_up_to_its_maximum_whatever_its_strategy() {
        let raise = |gang, price_to_stay: f64| {
            let spec = BidNodeSpec { gang, ..spec(BidStrategy::CostOptimized, 4.5) };
            let price_to_stay = Some(micros(price_to_stay));
            raise_to_stay(&spec, Some(&markets(4.0, 2.0)), price_to_stay, micros(2.6)).map(crate::api::usd)
        };
        assert_eq!((raise(false, 4.4), raise(true, 4.4)), (None, Some(4.4)));
        assert_eq!(raise(true, 4.6), None);
    }

    #[test]
    fn above_the_maximum_nothing_stays_but_under_protection() {
        assert_eq!(amended(3.0, 3.1, true, false), Some(3.0));
        assert_eq!(amended(3.0, 3.1, false, false), Some(3.0));
        assert_eq!(amended(3.0, 3.1, false, true), None);
        assert_eq!(amended(0.000_01, 3.1, false, false), None);
    }
}
