//! The strategies as tables: a market on the left, what each of the three does on the right.

use kubebid_strategy::{
    AtNotice, Quote, Standing, Strategy, amendment_micros, reference_micros, shared_tick_micros,
};

const CENT: u64 = 10_000;

fn quote(reference: Option<u64>, floor: Option<u64>, tick_micros: u64) -> Quote {
    Quote {
        reference_micros: reference.map(|cents| cents * CENT),
        floor_micros: floor.map(|cents| cents * CENT),
        tick_micros,
    }
}

#[test]
fn ceilings_follow_reference_floor_and_max_bid() {
    // In cents: reference, floor, max bid → cost-optimized, balanced, availability-optimized.
    let table = [
        (Some(400), Some(200), 450, [260, 360, 450]),
        // A floor above its share: cost-optimized waits, the others pay it.
        (Some(400), Some(380), 450, [260, 380, 450]),
        // A quiet market, where the price is the floor.
        (Some(200), Some(200), 450, [130, 200, 240]),
        // A floor that nobody may pay: the share, as if there were none.
        (Some(400), Some(500), 450, [260, 360, 450]),
        (Some(400), Some(450), 450, [260, 450, 450]),
        (Some(400), None, 450, [260, 360, 450]),
        // Never above max bid.
        (Some(400), Some(200), 250, [250, 250, 250]),
        // No reference yet.
        (None, Some(200), 450, [450, 450, 450]),
        (None, None, 450, [450, 450, 450]),
    ];
    for (reference, floor, max_bid, ceilings) in table {
        let quote = quote(reference, floor, 100);
        let said = Strategy::ALL.map(|strategy| strategy.ceiling_micros(max_bid * CENT, &quote));
        assert_eq!(said, ceilings.map(|cents| cents * CENT), "{quote:?}, max bid {max_bid}");
    }
}

#[test]
fn ceilings_are_rounded_down_to_the_shared_tick_and_the_floor_up() {
    // In micro-dollars, reference 4.00: tick, floor, max bid → the three.
    let table = [
        (300_000, Some(2_000_000), 4_500_000, [2_400_000, 3_600_000, 4_500_000]),
        (700_000, Some(2_000_000), 4_500_000, [2_100_000, 3_500_000, 4_200_000]),
        (700_000, Some(3_800_000), 4_500_000, [2_100_000, 4_200_000, 4_200_000]),
        // 4.25 is affordable, but no multiple of the tick is from 4.25 to 4.50.
        (700_000, Some(4_250_000), 4_500_000, [2_100_000, 3_500_000, 4_200_000]),
        // Max bid below one tick: nothing can be bid.
        (5_000_000, Some(2_000_000), 4_500_000, [0, 0, 0]),
    ];
    for (tick, floor_micros, max_bid, ceilings) in table {
        let quote = Quote { reference_micros: Some(4_000_000), floor_micros, tick_micros: tick };
        let said = Strategy::ALL.map(|strategy| strategy.ceiling_micros(max_bid, &quote));
        assert_eq!(said, ceilings, "{quote:?}");
    }
}

#[test]
fn in_a_market_that_costs_nothing_or_next_to_nothing_every_strategy_bids_one_tick() {
    // In micro-dollars, tick 300: reference, floor, max bid → the three.
    let table = [
        (Some(0), None, 4_500, [300, 300, 300]),
        (Some(0), Some(0), 4_500, [300, 300, 300]),
        (Some(0), Some(2_000), 4_500, [300, 2_100, 2_100]),
        (Some(299), Some(0), 4_500, [300, 300, 300]),
        (Some(600), Some(0), 4_500, [300, 300, 600]),
        (Some(0), Some(0), 300, [300, 300, 300]),
        // Max bid below one tick: nothing can be bid.
        (Some(0), Some(0), 299, [0, 0, 0]),
        (None, Some(0), 299, [0, 0, 0]),
    ];
    for (reference_micros, floor_micros, max_bid, ceilings) in table {
        let quote = Quote { reference_micros, floor_micros, tick_micros: 300 };
        let said = Strategy::ALL.map(|strategy| strategy.ceiling_micros(max_bid, &quote));
        assert_eq!(said, ceilings, "{quote:?}, max bid {max_bid}");
    }
}

#[test]
fn in_a_market_that_costs_nothing_every_strategy_stays_for_one_tick() {
    let quote = Quote { reference_micros: Some(0), floor_micros: Some(0), tick_micros: 300 };
    for strategy in Strategy::ALL {
        let raised = AtNotice::RaiseTo { ceiling_micros: 300 };
        assert_eq!(strategy.at_notice(Some(1), 4_500, &quote), raised, "{strategy}");
        assert_eq!(strategy.at_notice(Some(1), 299, &quote), AtNotice::LetGo, "{strategy}");
    }
    assert_eq!(Strategy::Balanced.at_notice(Some(301), 4_500, &quote), AtNotice::LetGo);
}

#[test]
fn no_reference_is_too_large() {
    let quote = Quote { reference_micros: Some(u64::MAX), floor_micros: Some(u64::MAX), tick_micros: 7 };
    for strategy in Strategy::ALL {
        assert_eq!(strategy.ceiling_micros(4_500_000, &quote), 4_499_999);
        assert!(strategy.ceiling_micros(u64::MAX, &quote) > u64::MAX / 2);
        assert_eq!(strategy.at_notice(Some(u64::MAX), u64::MAX, &quote), AtNotice::LetGo);
    }
}

#[test]
fn sixty_five_percent_of_the_reference_is_the_median_and_never_less() {
    for median in [0, 1, 2, 64, 65, 100, 2_000_000, 2_000_100, 4_000_000, u64::MAX / 2] {
        let reference = reference_micros(median);
        assert!(u128::from(reference) * 65 / 100 >= u128::from(median), "{median}");
        assert!(u128::from(reference.saturating_sub(1)) * 65 / 100 < u128::from(median.max(1)), "{median}");
    }
    assert_eq!(reference_micros(2_600_000), 4_000_000);
    assert_eq!(reference_micros(u64::MAX), u64::MAX);
}

#[test]
fn in_a_market_that_stands_still_each_strategy_wins_and_none_bids_everything() {
    // The price has been 2.00 for two days.
    let quote = Quote {
        reference_micros: Some(reference_micros(2_000_000)),
        floor_micros: Some(1_500_000),
        tick_micros: 100,
    };
    let ceilings = Strategy::ALL.map(|strategy| strategy.ceiling_micros(10_000_000, &quote));
    assert_eq!(ceilings, [2_000_000, 2_769_200, 3_692_300]);
}

#[test]
fn at_a_notice_they_differ_in_how_far_they_go() {
    // In cents, reference, price to stay, max bid → to what each raises.
    let table = [
        (Some(400), Some(360), 600, [Some(360), Some(360), Some(360)]),
        (Some(400), Some(361), 600, [None, Some(361), Some(361)]),
        (Some(400), Some(480), 600, [None, Some(480), Some(480)]),
        (Some(400), Some(481), 600, [None, None, Some(481)]),
        (Some(400), Some(450), 450, [None, Some(450), Some(450)]),
        (Some(400), Some(451), 450, [None, None, None]),
        (Some(400), Some(390), 380, [None, None, None]),
        // Nothing brings back a node whose unit leaves.
        (Some(400), None, 450, [None, None, None]),
        (None, Some(410), 450, [Some(410), Some(410), Some(410)]),
    ];
    for (reference, to_stay, max_bid, raises) in table {
        let quote = quote(reference, Some(200), 100);
        let said = Strategy::ALL
            .map(|strategy| strategy.at_notice(to_stay.map(|cents| cents * CENT), max_bid * CENT, &quote));
        let expected = raises.map(|raise| match raise {
            Some(cents) => AtNotice::RaiseTo { ceiling_micros: cents * CENT },
            None => AtNotice::LetGo,
        });
        assert_eq!(said, expected, "{quote:?}, to stay {to_stay:?}, max bid {max_bid}");
    }
}

#[test]
fn the_price_to_stay_is_rounded_up_to_the_shared_tick() {
    let quote = Quote { reference_micros: Some(4_000_000), floor_micros: None, tick_micros: 300_000 };
    let stay = |price| Strategy::CostOptimized.at_notice(Some(price), 4_500_000, &quote);
    assert_eq!(stay(3_300_000), AtNotice::RaiseTo { ceiling_micros: 3_300_000 });
    assert_eq!(stay(3_300_001), AtNotice::RaiseTo { ceiling_micros: 3_600_000 });
    assert_eq!(stay(3_600_001), AtNotice::LetGo);
}

#[test]
fn bids_are_amended_for_more_than_the_increment_and_lowered_only_while_they_wait() {
    // In cents: ceiling, wanted, increment in 1/10000 → amended while it waits, while it holds a node.
    let table = [
        (400, 400, 500, false, false),
        (400, 420, 500, false, false),
        (400, 421, 500, true, true),
        (400, 380, 500, false, false),
        (400, 379, 500, true, false),
        (400, 401, 0, true, true),
        (0, 1, 500, true, true),
    ];
    for (ceiling, wanted, increment_bps, waiting, holding) in table {
        for (waits, amended) in [(true, waiting), (false, holding)] {
            let standing =
                Standing { ceiling_micros: ceiling * CENT, waits, tick_micros: 100, increment_bps };
            let expected = amended.then_some(wanted * CENT);
            assert_eq!(amendment_micros(&standing, wanted * CENT), expected, "{standing:?} to {wanted}");
        }
    }
}

#[test]
fn one_tick_is_the_least_that_a_bid_is_amended_for_more_than() {
    let standing = Standing { ceiling_micros: 100, waits: true, tick_micros: 100, increment_bps: 500 };
    assert_eq!(amendment_micros(&standing, 200), None);
    assert_eq!(amendment_micros(&standing, 300), Some(300));
}

#[test]
fn markets_share_the_least_common_multiple_of_their_ticks() {
    assert_eq!(shared_tick_micros([100]), Some(100));
    assert_eq!(shared_tick_micros([100, 1000]), Some(1000));
    assert_eq!(shared_tick_micros([400, 1000, 600]), Some(6000));
    assert_eq!(shared_tick_micros([]), None);
    assert_eq!(shared_tick_micros([100, 0]), None);
    assert_eq!(shared_tick_micros([u64::MAX, u64::MAX - 1]), None);
    assert_eq!(shared_tick_micros([u64::MAX, u64::MAX]), Some(u64::MAX));
}

#[test]
fn strategies_are_known_by_their_names() {
    for strategy in Strategy::ALL {
        assert_eq!(strategy.to_string().parse(), Ok(strategy));
    }
    let error = "cheap".parse::<Strategy>().unwrap_err().to_string();
    assert_eq!(
        error,
        r#""cheap" is no bidding strategy: there are cost-optimized, balanced, availability-optimized"#
    );
    assert_eq!(Strategy::default(), Strategy::Balanced);
}
