//! R15: what is paid, to the microsecond and the micro-dollar.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_node_is_billed_from_ready_to_its_end_at_the_price_in_force() {
    check(
        "
        market fee=250
        offer p1 1 @ 0.36
        bid t1 1 @ 3.60
        at 100s ready
        at 1100s bid t2 1 @ 1.80    # t1 pays 0.36 up to here, 1.80 from here
        at 2100s release p1/1
        bills
        ",
        expect![[r#"
            2100s t1 pays 0.60 of which 0.015 fee for p1/1: RELEASED
        "#]],
    );
}

#[test]
fn each_charge_and_each_fee_is_rounded_down_once() {
    check(
        "
        market fee=250 min_charge=0s
        offer p1 3 @ 1.00
        bid t1 3 @ 2.00
        ready
        at 0.000001s release p1/1   # 0.28 micro-dollars
        at 1s release p1/2          # 277.8, and 6.9 of fee
        at 0.000002s release p1/3   # a time in the past is now
        bills
        ",
        expect![[r#"
            1s t1 pays 0.000277 of which 0.000006 fee for p1/2: RELEASED
            1s t1 pays 0.000277 of which 0.000006 fee for p1/3: RELEASED
        "#]],
    );
}

#[test]
fn a_short_win_costs_the_minimum_charge_at_the_price_last_settled() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        ready
        at 30s bid t2 1 @ 1.30
        at 60s release p1/1         # 30s at 1.00, 30s and the missing 240s at 1.30
        bills
        ",
        expect![[r#"
            60s t1 pays 0.105833 for p1/1: RELEASED
        "#]],
    );
}

#[test]
fn a_node_released_before_it_was_ready_costs_the_minimum_charge() {
    check(
        "
        market min_charge=60s
        offer p1 1 @ 1.20
        bid t1 1 @ 2.00
        at 500s release p1/1
        bills
        ",
        expect![[r#"
            500s t1 pays 0.02 for p1/1: RELEASED
        "#]],
    );
}

#[test]
fn a_unit_lost_within_the_minimum_runtime_is_free_and_at_its_end_is_not() {
    check(
        "
        offer p1 2 @ 1.00
        bid t1 2 @ 2.00
        ready
        at 899s lost p1/1
        at 900s lost p1/2
        bills
        ",
        expect![[r#"
            900s t1 pays 0.25 for p1/2: UNIT_LOST
        "#]],
    );
}

#[test]
fn a_node_that_was_never_ready_costs_nothing_when_its_unit_is_lost() {
    check(
        "
        offer p1 2 @ 1.00
        bid t1 2 @ 2.00
        at 800s lost p1/1
        at 900s
        bills
        ",
        expect![[r#"
            nothing
        "#]],
    );
}

#[test]
fn a_claim_given_up_costs_the_minimum_charge_at_what_its_bid_would_have_paid() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 2.00
        bid t3 1 @ 1.50
        at 10s cancel t2 release
        bills
        show
        ",
        expect![[r#"
            10s t2 pays 0.125 for p1/1: CLAIM_DROPPED

            t1 1 @ 1.00: p1/1 at 1.00 until 300s for t3, wants 1
            t3 1 @ 1.50: claims p1/1
            market 1.00, entry 1.575
        "#]],
    );
}

#[test]
fn a_claim_that_the_market_takes_away_costs_nothing() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 1.50
        bid t3 1 @ 2.00
        withdraw p1/1
        bills
        ",
        expect![[r#"
            nothing
        "#]],
    );
}

#[test]
fn a_node_under_notice_is_billed_its_frozen_reserve_to_the_end() {
    check(
        "
        market fee=1000
        offer p1 1 @ 1.20
        bid t1 1 @ 1.80
        ready
        at 900s offer p1 1 @ 2.40   # more than t1 ever pays: notice until 1200s
        at 1200s
        bills
        ",
        expect![[r#"
            1200s t1 pays 0.40 of which 0.04 fee for p1/1: RESERVE_RAISED
        "#]],
    );
}
