//! R8: what tenants pay.

use crate::story::check;
use expect_test::expect;

#[test]
fn the_highest_losing_bid_sets_the_price_and_the_lowest_winner_caps_it() {
    check(
        "
        offer p1 2 @ 1.00
        bid t1 1 @ 2.00
        bid t2 1 @ 1.80
        bid t3 1 @ 1.50
        show
        bid t4 1 @ 1.90
        show
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 starting at 1.50
            t2 1 @ 1.80: p1/2 starting at 1.50
            t3 1 @ 1.50: wants 1
            market 1.50, entry -

            t1 1 @ 2.00: p1/1 starting at 1.80
            t2 1 @ 1.80: p1/2 starting at 1.80
            t3 1 @ 1.50: wants 1
            t4 1 @ 1.90: wants 1
            market 1.80, entry -
        "#]],
    );
}

#[test]
fn nobody_bids_against_himself() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 2 @ 2.00
        show
        bid t2 1 @ 1.30
        bid t1 as also 1 @ 1.90
        show
        ",
        expect![[r#"
            t1 2 @ 2.00: p1/1 starting at 1.00, wants 1
            market 2.00, entry -

            t1 2 @ 2.00: p1/1 starting at 1.30, wants 1
            t2 1 @ 1.30: wants 1
            also 1 @ 1.90: wants 1
            market 2.00, entry -
        "#]],
    );
}

#[test]
fn a_waiting_gang_sets_no_price() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        bid t2 2 min 2 @ 1.80
        show
        numbers
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 starting at 1.00
            t2 2 @ 1.80: wants 2
            market 1.00, entry -

            market 1.00, entry -, floor 1.00, lowest 2.00, losing 0.00
            units 1: 0 free, 1 allocated, 0 notice, 0 claimed
        "#]],
    );
}

#[test]
fn lowest_accepted_counts_once_nothing_is_free_for_less() {
    check(
        "
        market pricing=LowestAccepted
        offer p1 2 @ 1.00
        bid t1 1 @ 2.00
        show
        bid t2 1 @ 1.50
        show
        offer p2 1 @ 1.60
        show
        offer p3 1 @ 1.50
        show
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 starting at 1.00
            market 1.00, entry 1.00, 1 free

            t1 1 @ 2.00: p1/1 starting at 1.50
            t2 1 @ 1.50: p1/2 starting at 1.50
            market 1.50, entry -

            t1 1 @ 2.00: p1/1 starting at 1.50
            t2 1 @ 1.50: p1/2 starting at 1.50
            market 1.50, entry 1.60, 1 free

            t1 1 @ 2.00: p1/1 starting at 1.00
            t2 1 @ 1.50: p1/2 starting at 1.00
            market 1.00, entry 1.50, 2 free
        "#]],
    );
}

#[test]
fn with_nothing_held_the_cheapest_offer_is_the_price_and_without_it_the_best_bid() {
    check(
        "
        bid t1 1 @ 0.80
        show
        offer p1 1 @ 1.00
        show
        offer p1 0 @ 1.00
        show
        ",
        expect![[r#"
            t1 1 @ 0.80: wants 1
            market 0.80, entry -

            t1 1 @ 0.80: wants 1
            market 1.00, entry 1.00, 1 free

            t1 1 @ 0.80: wants 1
            market 0.80, entry -
        "#]],
    );
}

#[test]
fn somebody_elses_dear_unit_costs_only_its_own_holder_more() {
    check(
        "
        offer p1 1 @ 1.00
        offer p2 1 @ 1.90
        bid t1 1 @ 1.50
        bid t2 1 @ 2.00
        ",
        expect![[r#"
            t1 1 @ 1.50: p1/1 starting at 1.00
            t2 1 @ 2.00: p2/1 starting at 1.90
            market 1.00, entry -
        "#]],
    );
}
