//! R6: claims given up for free units, orphans, and standing notices.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_free_unit_rescues_the_claim_holder_and_the_victim_stays() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 2.00
        at 100s offer p2 1 @ 1.05
        events
        ",
        expect![[r#"
            100s p2 offers 1 @ 1.05
            100s p2/1 is added
            100s t2 pays 0.083333 for p1/1: CLAIM_DROPPED
            100s t2 drops its claim on p1/1: RESCUED
            100s t2 gets p2/1
            100s t1 keeps p1/1
            100s market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn a_free_unit_one_tick_dearer_than_the_displacement_rescues_nobody() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 2.00
        at 100s offer p2 1 @ 1.0501
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00 until 300s for t2, wants 1
            t2 1 @ 2.00: claims p1/1
            market 1.00, entry 1.0501, 1 free
        "#]],
    );
}

#[test]
fn one_orphan_is_passed_on_and_the_other_comes_back() {
    check(
        "
        market min_runtime=0s min_charge=0s
        offer p1 2 @ 1.00
        bid t1 1 @ 1.00
        bid t2 1 @ 1.20
        ready
        bid t3 2 @ 2.00
        at 100s bid t4 1 @ 1.15
        cancel t3 release
        events
        show
        ",
        expect![[r#"
            100s t3 closes at 2: CANCELLED
            100s t3 drops its claim on p1/1: CANCELLED
            100s t3 drops its claim on p1/2: CANCELLED
            100s t4 claims p1/1: PASSED_ON
            100s t2 keeps p1/2
            100s market 1.00, entry 1.2075

            t1 1 @ 1.00: p1/1 at 1.00 until 300s for t4, wants 1
            t2 1 @ 1.20: p1/2 at 1.00
            t4 1 @ 1.15: claims p1/1
            market 1.00, entry 1.2075
        "#]],
    );
}

#[test]
fn of_several_orphans_the_dearest_holders_come_back_first() {
    check(
        "
        market min_runtime=0s min_charge=0s
        offer p1 3 @ 1.00
        bid t1 1 @ 1.00
        bid t2 2 @ 1.20
        ready
        bid t3 3 @ 2.00
        cancel t3 release
        events
        ",
        expect![[r#"
            0s t3 closes at 3: CANCELLED
            0s t3 drops its claim on p1/1: CANCELLED
            0s t3 drops its claim on p1/2: CANCELLED
            0s t3 drops its claim on p1/3: CANCELLED
            0s t2 keeps p1/2
            0s t2 keeps p1/3
            0s t1 keeps p1/1
            0s market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn an_orphan_is_passed_on_to_a_bid_that_looks_in_several_markets() {
    check(
        "
        market a100/eu min_runtime=0s min_charge=0s
        market a100/us
        offer p1 1 @ 1.00 in a100/eu
        bid t1 1 @ 1.00 in a100/eu
        ready
        offer p1 1 @ 0.50 in a100/us
        bid t2 1 @ 0.60 in a100/us    # stays protected
        bid t3 1 @ 2.00 in a100/eu
        bid t4 1 @ 1.50 in a100/us,a100/eu
        cancel t3 keep
        events
        show
        ",
        expect![[r#"
            0s t3 closes at 1: CANCELLED
            0s t3 drops its claim on a100/eu:p1/1: CANCELLED
            0s t4 claims a100/eu:p1/1: PASSED_ON
            0s a100/eu 1.00, entry 1.575
            0s a100/us 0.50, entry -

            t1 1 @ 1.00: a100/eu:p1/1 at 1.00 until 300s for t4, wants 1
            t2 1 @ 0.60: a100/us:p1/1 starting at 0.50
            t4 1 @ 1.50: claims a100/eu:p1/1
            a100/eu 1.00, entry 1.575
            a100/us 0.50, entry -
        "#]],
    );
}

#[test]
fn a_notice_that_nobody_wants_back_stands_and_is_taken_like_a_free_unit() {
    check(
        "
        market min_runtime=0s min_charge=0s
        offer p1 2 @ 1.00
        bid t1 2 @ 1.00
        ready
        bid t2 2 @ 2.00
        amend t1 to 1          # has room for one of the two only
        at 100s cancel t2 release
        show
        bid t3 1 @ 1.00
        events
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00, p1/2 at 1.00 until 300s
            market 1.00, entry 1.00

            100s t3 bids 1 @ 1.00
            100s t3 claims p1/2: STANDING
            100s market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn the_price_to_stay_is_exact() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        ready
        bid t2 1 @ 3.00
        amend t1 @ 2.8571      # needs 2.999955
        show
        amend t1 @ 2.8572      # needs 3.00006
        events
        ",
        expect![[r#"
            t1 1 @ 2.8571: p1/1 at 1.00 until 300s for t2, wants 1
            t2 1 @ 3.00: claims p1/1
            market 2.8571, entry 3.15

            0s t1 bids now 1 @ 2.8572
            0s t2 drops its claim on p1/1: HOLDER_RAISED
            0s t1 keeps p1/1
            0s market 2.8572, entry 3.0001
        "#]],
    );
}

#[test]
fn a_holder_may_displace_the_claim_on_its_own_node() {
    check(
        "
        market min_runtime=0s min_charge=0s
        offer p1 2 @ 1.00
        bid t1 2 @ 1.00
        ready
        bid t2 2 @ 2.00
        amend t1 to 1
        cancel t2 release       # p1/1 comes back, p1/2 stands
        bid t3 1 @ 1.00         # claims p1/2
        amend t1 @ 1.20         # t1 has no room for p1/2
        amend t1 to 2
        events
        ",
        expect![[r#"
            0s t1 bids now 2 @ 1.20
            0s t3 drops its claim on p1/2: HOLDER_BACK
            0s t1 keeps p1/2
            0s market 1.00, entry 1.26
        "#]],
    );
}

#[test]
fn a_rescue_lets_off_the_dearest_victim_in_whatever_market_it_is() {
    check(
        "
        market a100/eu min_runtime=0s
        market a100/us min_runtime=0s
        offer p1 1 @ 1.00 in a100/eu
        offer p1 1 @ 1.00 in a100/us
        bid t1 1 @ 1.00 in a100/eu
        bid t2 1 @ 1.20 in a100/us
        ready
        bid t3 2 @ 2.00 in a100/eu,a100/us
        at 100s offer p2 1 @ 1.20 in a100/eu
        ",
        expect![[r#"
            t1 1 @ 1.00: a100/eu:p1/1 at 1.00 until 300s for t3, wants 1
            t2 1 @ 1.20: a100/us:p1/1 at 1.00
            t3 2 @ 2.00: a100/eu:p2/1 starting at 1.20, claims a100/eu:p1/1
            a100/eu 1.20, entry 2.10
            a100/us 1.00, entry 1.26
        "#]],
    );
}
