//! Plans the price of a bid, and when to change it.

use crate::api::{BidNodeSpec, micros};
use k8s_openapi::jiff::Timestamp;
use kubebid_strategy::{Quote, Standing, Strategy, amendment_micros};

/// The markets that a BidNode bids in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Markets {
    pub quote: Quote,
    /// The largest of theirs.
    pub increment_bps: u64,
    /// Units that any provider offers in them.
    pub units: u64,
}

/// What to bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// A multiple of the tick that all the markets share, at most `maxBid`; 0 where that is below one tick.
    pub ceiling_micros: u64,
    /// What the ceiling would have to be at least, where it is lower and so cannot win.
    pub below_floor_micros: Option<u64>,
}

/// The ceiling for a node of this BidNode.
pub fn offer(spec: &BidNodeSpec, quote: &Quote) -> Offer {
    let ceiling_micros = Strategy::from(spec.bid_strategy).ceiling_micros(micros(spec.max_bid), quote);
    let floor = quote.floor_micros.and_then(|floor| quote.round_up_micros(floor));
    Offer { ceiling_micros, below_floor_micros: floor.filter(|floor| ceiling_micros < *floor) }
}

/// How a bid stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bid {
    pub ceiling_micros: u64,
    /// It holds nothing.
    pub waits: bool,
    /// The market lowers no ceiling before.
    pub protected_until: Option<Timestamp>,
}

/// The ceiling to amend a bid to, if any. Above `maxBid` nothing may stay; otherwise only what moves by more than
/// the market's increment, and upwards where a node is held.
pub fn amendment(spec: &BidNodeSpec, markets: &Markets, bid: &Bid, now: Timestamp) -> Option<u64> {
    let wanted = offer(spec, &markets.quote).ceiling_micros;
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

/// Returns the other bids of the BidNode that must be amended before this one.
pub fn amended_before<'a, T>(
    spec: &BidNodeSpec,
    markets: &Markets,
    (bid, micros): (&Bid, u64),
    others: &'a [(T, Bid)],
    now: Timestamp,
) -> Vec<&'a T> {
    let raises = micros > bid.ceiling_micros;
    if raises != bid.waits {
        return Vec::new();
    }
    let goes_first = |(_, other): &&(T, Bid)| {
        let amended = amendment(spec, markets, other, now).filter(|_| other.waits != bid.waits);
        amended.is_some_and(|micros| (micros > other.ceiling_micros) == raises)
    };
    others.iter().filter(goes_first).map(|(which, _)| which).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::BidStrategy;
    use std::collections::BTreeMap;

    fn spec(strategy: BidStrategy, max_bid: f64) -> BidNodeSpec {
        BidNodeSpec {
            instance_type: "h100-8x".into(),
            region: None,
            max_bid,
            min_nodes: 1,
            max_nodes: 10,
            min_requested_gpus: 0,
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
        Markets { quote, increment_bps: 500, units: 1 }
    }

    #[track_caller]
    fn check(strategy: BidStrategy, floor: f64, ceiling: f64, below: Option<f64>) {
        let offer = offer(&spec(strategy, 4.5), &markets(4.0, floor).quote);
        assert_eq!(offer.ceiling_micros, micros(ceiling));
        assert_eq!(offer.below_floor_micros, below.map(micros));
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

    fn amended(max_bid: f64, ceiling: f64, waits: bool, protected: bool) -> Option<f64> {
        let now = Timestamp::UNIX_EPOCH;
        let protected_until = protected.then_some(Timestamp::from_second(1).unwrap());
        let bid = Bid { ceiling_micros: micros(ceiling), waits, protected_until };
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
        // Who goes before the first, by number.
        let before = |bids: &[Bid]| {
            let (spec, markets) = (spec(BidStrategy::Balanced, 4.5), markets(4.0, 2.0));
            let now = Timestamp::UNIX_EPOCH;
            let micros = amendment(&spec, &markets, &bids[0], now).expect("it is to be amended");
            let others: Vec<_> = bids.iter().copied().enumerate().skip(1).collect();
            let before = amended_before(&spec, &markets, (&bids[0], micros), &others, now);
            before.into_iter().copied().collect::<Vec<_>>()
        };
        let nobody: [usize; 0] = [];
        // Up: the nodes first.
        assert_eq!(before(&[held(LOW), waits(LOW), held(LOW)]), nobody);
        assert_eq!(before(&[waits(LOW), held(LOW)]), [1]);
        assert_eq!(before(&[waits(LOW), held(RIGHT), held(LOW), held(LOW)]), [2, 3]);
        assert_eq!(before(&[waits(LOW), held(RIGHT), held(HIGH), waits(LOW)]), nobody);
        // Down: the bids first.
        assert_eq!(before(&[waits(HIGH), held(HIGH), waits(HIGH)]), nobody);
        assert_eq!(before(&[held(HIGH), waits(HIGH)]), [1]);
        assert_eq!(before(&[held(HIGH), waits(RIGHT), waits(LOW), held(HIGH)]), nobody);
    }

    fn bid(ceiling_micros: u64, waits: bool) -> Bid {
        Bid { ceiling_micros, waits, protected_until: None }
    }

    #[test]
    fn above_the_maximum_nothing_stays_but_under_protection() {
        assert_eq!(amended(3.0, 3.1, true, false), Some(3.0));
        assert_eq!(amended(3.0, 3.1, false, false), Some(3.0));
        assert_eq!(amended(3.0, 3.1, false, true), None);
        assert_eq!(amended(0.000_01, 3.1, false, false), None);
    }
}
