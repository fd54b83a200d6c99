//! R13: bids that search in more than one market.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_bid_for_an_instance_type_finds_markets_opened_later() {
    check(
        "
        market a100/eu
        bid t1 1 @ 2.00 type a100
        market h100/us
        offer p1 1 @ 1.00 in h100/us
        market a100/us
        events
        offer p1 1 @ 1.00 in a100/us
        show
        ",
        expect![[r#"
            0s a100/us opens
            0s a100/us 2.00, entry -

            t1 1 @ 2.00: a100/us:p1/1 starting at 1.00
            a100/eu 0.00, entry -
            h100/us 1.00, entry 1.00, 1 free
            a100/us 1.00, entry -
        "#]],
    );
}

#[test]
fn a_bid_gets_no_more_than_it_wants_in_all() {
    check(
        "
        market a100/eu
        market a100/us
        offer p1 1 @ 1.10 in a100/eu
        offer p1 2 @ 1.00 in a100/us
        bid t1 2 @ 2.00 in a100/eu,a100/us
        show
        offer p1 3 @ 1.00 in a100/us
        amend t1 to 4
        show
        ",
        expect![[r#"
            t1 2 @ 2.00: a100/us:p1/1 starting at 1.00, a100/us:p1/2 starting at 1.00
            a100/eu 1.10, entry 1.10, 1 free
            a100/us 1.00, entry -

            t1 4 @ 2.00: a100/us:p1/1 starting at 1.00, a100/us:p1/2 starting at 1.00, a100/us:p1/3 starting at 1.00, a100/eu:p1/1 starting at 1.10
            a100/eu 1.10, entry -
            a100/us 1.00, entry -
        "#]],
    );
}

#[test]
fn of_equal_units_the_market_opened_first_has_the_better_one() {
    check(
        "
        market a100/eu
        market a100/us
        offer p1 1 @ 1.00 in a100/us
        offer p1 1 @ 1.00 in a100/eu
        bid t1 1 @ 2.00 in a100/us,a100/eu
        ",
        expect![[r#"
            t1 1 @ 2.00: a100/eu:p1/1 starting at 1.00
            a100/eu 1.00, entry -
            a100/us 1.00, entry 1.00, 1 free
        "#]],
    );
}

#[test]
fn a_ceiling_is_on_the_ticks_of_the_markets_that_exist() {
    check(
        "
        market a100/eu tick=0.01
        market a100/us tick=0.25 min_runtime=0s
        bid t1 1 @ 1.05 in a100/eu,a100/us
        bid t2 1 @ 1.05 type h100
        market h100/us tick=0.25 min_runtime=0s
        offer p1 1 @ 1.00 in h100/us
        ready
        show
        amend t2 @ 1.10
        amend t2 @ 1.50
        ",
        expect![[r#"
            bid t1 1 @ 1.05 in a100/eu,a100/us: NOT_A_TICK

            t2 1 @ 1.05: h100/us:p1/1 at 1.00
            a100/eu 0.00, entry -
            a100/us 0.00, entry -
            h100/us 1.00, entry 1.50
            amend t2 @ 1.10: NOT_A_TICK

            t2 1 @ 1.50: h100/us:p1/1 at 1.00
            a100/eu 0.00, entry -
            a100/us 0.00, entry -
            h100/us 1.00, entry 1.75
        "#]],
    );
}

#[test]
fn a_cheaper_unit_elsewhere_moves_nobody_who_has_a_node() {
    check(
        "
        market a100/eu
        market a100/us
        offer p1 1 @ 1.40 in a100/eu
        bid t1 1 @ 2.00 in a100/eu,a100/us
        offer p2 1 @ 1.00 in a100/us
        ",
        expect![[r#"
            t1 1 @ 2.00: a100/eu:p1/1 starting at 1.40
            a100/eu 1.40, entry -
            a100/us 1.00, entry 1.00, 1 free
        "#]],
    );
}

#[test]
fn a_bid_that_waits_in_two_markets_loses_in_both_until_it_gets_a_node_in_one() {
    check(
        "
        market a100/eu
        market a100/us
        offer p1 1 @ 1.00 in a100/eu
        offer p1 1 @ 1.00 in a100/us
        bid t1 1 @ 2.00 in a100/eu
        bid t2 1 @ 2.00 in a100/us
        bid t3 1 @ 1.50 in a100/eu,a100/us
        show
        offer p2 1 @ 1.20 in a100/us
        show
        ",
        expect![[r#"
            t1 1 @ 2.00: a100/eu:p1/1 starting at 1.50
            t2 1 @ 2.00: a100/us:p1/1 starting at 1.50
            t3 1 @ 1.50: wants 1
            a100/eu 1.50, entry -
            a100/us 1.50, entry -

            t1 1 @ 2.00: a100/eu:p1/1 starting at 1.00
            t2 1 @ 2.00: a100/us:p1/1 starting at 1.20
            t3 1 @ 1.50: a100/us:p2/1 starting at 1.20
            a100/eu 1.00, entry -
            a100/us 1.20, entry -
        "#]],
    );
}

#[test]
fn of_several_displacements_the_one_that_needs_the_lowest_ceiling_is_taken() {
    check(
        "
        market a100/eu min_runtime=0s
        market a100/us min_runtime=0s increment=100
        offer p1 1 @ 1.00 in a100/eu
        offer p1 1 @ 1.00 in a100/us
        bid t1 1 @ 1.00 in a100/eu      # needs 1.05
        bid t2 1 @ 1.02 in a100/us      # needs 1.0302
        ready
        bid t3 1 @ 2.00 in a100/eu,a100/us
        ",
        expect![[r#"
            t1 1 @ 1.00: a100/eu:p1/1 at 1.00
            t2 1 @ 1.02: a100/us:p1/1 at 1.00 until 300s for t3, wants 1
            t3 1 @ 2.00: claims a100/us:p1/1
            a100/eu 1.00, entry 1.05
            a100/us 1.02, entry 2.02
        "#]],
    );
}
