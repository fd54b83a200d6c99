//! R18: markets that are closed, that end, and that are opened again.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_market_without_units_ends_at_once_and_closes_the_bids_that_wait_in_it() {
    check(
        "
        bid t1 1 @ 1.00
        close
        events
        show
        bid t2 1 @ 1.00
        offer p1 1 @ 1.00
        offer p1 0 @ 1.00
        close
        close in a100/typo
        show
        ",
        expect![[r#"
            0s a100/eu is closing
            0s a100/eu has ended
            0s t1 closes at 1: MARKET_CLOSED
            0s market 0.00, entry -

            market 0.00, entry -, ended
            bid t2 1 @ 1.00: MARKET_CLOSED
            offer p1 1 @ 1.00: MARKET_CLOSED
            offer p1 0 @ 1.00: BAD_CAPACITY
            close: MARKET_CLOSED
            close in a100/typo: UNKNOWN_MARKET

            market 0.00, entry -, ended
        "#]],
    );
}

#[test]
fn a_closing_market_takes_no_new_bids_and_capacities_only_shrink() {
    check(
        "
        offer p1 2 @ 1.00
        bid t1 1 @ 2.00
        close
        events
        bid t2 1 @ 3.00
        offer p2 1 @ 1.00
        offer p1 3 @ 1.00
        offer p1 2 @ 1.10       # another reserve is no more capacity
        offer p1 1 @ 1.10
        numbers
        show
        ",
        expect![[r#"
            0s a100/eu is closing
            0s market 1.00, entry -
            bid t2 1 @ 3.00: MARKET_CLOSED
            offer p2 1 @ 1.00: MARKET_CLOSED
            offer p1 3 @ 1.00: MARKET_CLOSED

            market 1.00, entry -, floor 1.10, lowest 2.00, losing 0.00
            units 1: 0 free, 1 allocated, 0 notice, 0 claimed

            t1 1 @ 2.00: p1/1 starting at 1.00
            market 1.00, entry -, closing
        "#]],
    );
}

#[test]
fn what_holds_and_what_waits_goes_on_in_a_closing_market() {
    check(
        "
        market min_runtime=0s notice=60s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.50
        bid t2 1 @ 1.00
        ready
        close
        amend t2 @ 2.00         # displaces t1
        show
        +60s
        ready
        show
        amend t2 to 2           # as before
        lost p1/1
        events
        show
        ",
        expect![[r#"
            t1 1 @ 1.50: p1/1 at 1.00 until 60s for t2, wants 1
            t2 1 @ 2.00: claims p1/1
            market 1.50, entry -, closing

            t1 1 @ 1.50: wants 1
            t2 1 @ 2.00: p1/1 at 1.50
            market 1.50, entry -, closing

            60s t2 leaves p1/1: UNIT_LOST
            60s p1/1 is removed
            60s a100/eu has ended
            60s t1 closes at 1: MARKET_CLOSED
            60s t2 closes at 2: MARKET_CLOSED
            60s market 0.00, entry -

            market 0.00, entry -, ended
        "#]],
    );
}

#[test]
fn a_market_ends_when_its_last_unit_is_gone() {
    check(
        "
        market notice=60s min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        ready
        close
        offer p1 0 @ 1.00       # the unit leaves when its notice ends
        show
        +60s
        events
        show
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 at 1.00 until 60s, wants 1
            market 0.00, entry -, closing

            60s t1 leaves p1/1: CAPACITY_WITHDRAWN
            60s t1 pays 0.016666 for p1/1: CAPACITY_WITHDRAWN
            60s p1/1 is removed
            60s a100/eu has ended
            60s t1 closes at 1: MARKET_CLOSED

            market 0.00, entry -, ended
        "#]],
    );
}

#[test]
fn a_bid_for_any_region_passes_over_closed_markets() {
    check(
        "
        market a100/eu
        market a100/us tick=0.25
        offer p1 2 @ 2.00 in a100/eu
        offer p1 2 @ 1.00 in a100/us
        bid t1 1 @ 3.00 type a100
        close in a100/us
        bid t2 1 @ 2.10 type a100       # the tick of a100/us does not bind it
        amend t1 to 2                   # t1 was there before
        show
        ",
        expect![[r#"
            t1 2 @ 3.00: a100/us:p1/1 starting at 1.00, a100/us:p1/2 starting at 1.00
            t2 1 @ 2.10: a100/eu:p1/1 starting at 2.00
            a100/eu 2.00, entry 2.00, 1 free
            a100/us 1.00, entry -, closing
        "#]],
    );
}

#[test]
fn a_bid_loses_the_markets_that_have_ended_and_is_closed_with_the_last() {
    check(
        "
        market a100/eu
        market a100/us
        bid t1 1 @ 1.00 in a100/eu,a100/us
        bid t2 1 @ 2.00 in a100/us
        bid t3 1 @ 3.00 type a100
        close in a100/us
        events
        show
        close in a100/eu
        events
        show
        ",
        expect![[r#"
            0s a100/us is closing
            0s a100/us has ended
            0s t2 closes at 1: MARKET_CLOSED
            0s a100/us 0.00, entry -

            t1 1 @ 1.00: wants 1
            t3 1 @ 3.00: wants 1
            a100/eu 3.00, entry -
            a100/us 0.00, entry -, ended

            0s a100/eu is closing
            0s a100/eu has ended
            0s t1 closes at 1: MARKET_CLOSED
            0s a100/eu 0.00, entry -

            t3 1 @ 3.00: wants 1
            a100/eu 0.00, entry -, ended
            a100/us 0.00, entry -, ended
        "#]],
    );
}

#[test]
fn a_closed_market_is_opened_again_with_its_rules_and_its_tick() {
    check(
        "
        market a100/eu tick=0.25 notice=60s
        market a100/us
        market a100/eu
        offer p1 1 @ 1.00 in a100/eu
        close in a100/eu
        bid t1 1 @ 2.00 type a100
        bid t2 1 @ 1.50 type a100
        market a100/eu tick=0.10
        market a100/eu
        events
        show
        withdraw a100/eu:p1/1
        close in a100/eu
        offer p1 0 @ 1.00 in a100/eu
        show
        at 1000s market a100/eu notice=0s
        offer p2 1 @ 1.00 in a100/eu
        show
        ",
        expect![[r#"
            market a100/eu: MARKET_EXISTS
            market a100/eu tick=0.10: BAD_RULE

            0s a100/eu opens
            0s t1 gets a100/eu:p1/1
            0s a100/eu 1.50, entry -
            0s a100/us 1.50, entry -

            t1 1 @ 2.00: a100/eu:p1/1 starting at 1.50
            t2 1 @ 1.50: wants 1
            a100/eu 1.50, entry -
            a100/us 1.50, entry -
            offer p1 0 @ 1.00 in a100/eu: BAD_CAPACITY

            t1 1 @ 2.00: a100/eu:p1/1 at 1.50 until 1800s, wants 1
            t2 1 @ 1.50: wants 1
            a100/eu 1.50, entry -, closing
            a100/us 1.50, entry -

            t1 1 @ 2.00: a100/eu:p2/1 starting at 1.50
            t2 1 @ 1.50: wants 1
            a100/eu 1.50, entry -
            a100/us 1.50, entry -
        "#]],
    );
}

#[test]
fn a_claimant_is_not_rescued_into_a_market_that_closed_before_its_bid() {
    check(
        "
        market a100/eu min_runtime=0s
        market a100/us min_runtime=0s
        offer p1 1 @ 1.00 in a100/eu
        offer p1 1 @ 1.00 in a100/us
        bid t1 1 @ 1.00 in a100/eu
        bid t2 1 @ 1.00 in a100/us
        ready
        close in a100/us
        bid t3 1 @ 2.00 type a100       # claims a100/eu:p1/1
        release a100/us:p1/1            # free, but not for t3
        show
        market a100/us
        show
        ",
        expect![[r#"
            t1 1 @ 1.00: a100/eu:p1/1 at 1.00 until 300s for t3, wants 1
            t3 1 @ 2.00: claims a100/eu:p1/1
            a100/eu 1.00, entry 2.10
            a100/us 1.00, entry -, 1 free, closing

            t1 1 @ 1.00: a100/eu:p1/1 at 1.00
            t3 1 @ 2.00: a100/us:p1/1 starting at 1.00
            a100/eu 1.00, entry 1.05
            a100/us 1.00, entry -
        "#]],
    );
}
