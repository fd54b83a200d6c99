//! R2: the order of bids, and the order of units.

use crate::story::check;
use expect_test::expect;

#[test]
fn of_equal_ceilings_the_older_bid_comes_first() {
    check(
        "
        bid t1 1 @ 2.00
        bid t2 1 @ 2.00
        offer p1 1 @ 1.00
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 starting at 2.00
            t2 1 @ 2.00: wants 1
            market 2.00, entry -
        "#]],
    );
}

#[test]
fn a_bid_made_smaller_keeps_its_place() {
    check(
        "
        bid t1 2 @ 2.00
        bid t2 1 @ 2.00
        amend t1 to 1
        amend t1 to 1 @ 2.00   # changes nothing
        offer p1 1 @ 1.00
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 starting at 2.00
            t2 1 @ 2.00: wants 1
            market 2.00, entry -
        "#]],
    );
}

#[test]
fn a_bid_that_is_enlarged_queues_anew() {
    check(
        "
        bid t1 1 @ 2.00
        bid t2 1 @ 2.00
        amend t1 to 2
        offer p1 1 @ 1.00
        ",
        expect![[r#"
            t1 2 @ 2.00: wants 2
            t2 1 @ 2.00: p1/1 starting at 2.00
            market 2.00, entry -
        "#]],
    );
}

#[test]
fn units_go_cheapest_first_then_from_the_older_offer_then_by_number() {
    check(
        "
        offer p1 2 @ 1.10
        offer p2 2 @ 1.00
        offer p3 1 @ 1.00
        bid t1 4 @ 2.00
        events
        ",
        expect![[r#"
            0s t1 bids 4 @ 2.00
            0s t1 gets p2/1
            0s t1 gets p2/2
            0s t1 gets p3/1
            0s t1 gets p1/1
            0s market 1.10, entry 1.10
        "#]],
    );
}

#[test]
fn a_new_reserve_gives_an_offer_a_new_place() {
    check(
        "
        offer p1 1 @ 1.00
        offer p2 1 @ 1.00
        offer p1 1 @ 1.10
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        ",
        expect![[r#"
            t1 1 @ 2.00: p2/1 starting at 1.00
            market 1.00, entry 1.00, 1 free
        "#]],
    );
}

#[test]
fn a_bid_that_shrinks_gives_up_its_claims_the_dearest_victim_first() {
    check(
        "
        market min_runtime=0s
        offer p1 3 @ 1.00
        bid t1 1 @ 1.00
        bid t2 1 @ 1.20
        ready
        bid t3 3 @ 2.00
        amend t3 to 2
        show
        amend t3 to 1
        amend t3 to 0
        show
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00 until 300s for t3, wants 1
            t2 1 @ 1.20: p1/2 at 1.00
            t3 2 @ 2.00: p1/3 starting at 1.00, claims p1/1
            market 1.00, entry 1.26
            amend t3 to 0: BELOW_HELD

            t1 1 @ 1.00: p1/1 at 1.00
            t2 1 @ 1.20: p1/2 at 1.00
            t3 1 @ 2.00: p1/3 starting at 1.00
            market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn a_ceiling_is_not_lowered_under_protection_nor_below_a_reserve() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        amend t1 @ 1.50
        ready
        at 900s amend t1 @ 0.90
        amend t1 @ 1.00
        ",
        expect![[r#"
            amend t1 @ 1.50: PROTECTED
            at 900s amend t1 @ 0.90: BELOW_RESERVE

            t1 1 @ 1.00: p1/1 at 1.00
            market 1.00, entry 1.05
        "#]],
    );
}
