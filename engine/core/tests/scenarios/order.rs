//! R1 and §3: the order of things. Every story is played twice, once with the clock moved in between.

use crate::story::check;
use expect_test::expect;

#[test]
fn what_falls_due_happens_at_its_own_instant_before_the_command() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 2.00
        at 5000s bid t3 1 @ 1.50
        events
        ",
        expect![[r#"
            300s t1 leaves p1/1: OUTBID
            300s t1 pays 0.083333 for p1/1: OUTBID
            300s t2 gets p1/1
            300s market 1.00, entry -
            1200s t2 leaves p1/1: START_TIMEOUT
            1200s p1/1 rests
            1200s market 2.00, entry -
            5000s t3 bids 1 @ 1.50
        "#]],
    );
}

#[test]
fn of_one_instant_deadlines_come_first_then_start_time_outs_then_expiries() {
    check(
        "
        market min_runtime=0s start_timeout=300s
        offer p1 2 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 1.50
        bid t3 1 @ 2.00 until 300s
        at 300s
        events
        ",
        expect![[r#"
            300s t1 leaves p1/1: OUTBID
            300s t1 pays 0.083333 for p1/1: OUTBID
            300s t3 gets p1/1
            300s t2 leaves p1/2: START_TIMEOUT
            300s p1/2 rests
            300s t3 closes at 1: EXPIRED
            300s market 1.50, entry -
        "#]],
    );
}

#[test]
fn a_time_in_the_past_counts_as_now() {
    check(
        "
        at 100s offer p1 1 @ 1.00
        at 50s bid t1 1 @ 2.00
        events
        ",
        expect![[r#"
            100s t1 bids 1 @ 2.00
            100s t1 gets p1/1
            100s market 1.00, entry -
        "#]],
    );
}

#[test]
fn a_command_at_the_instant_a_protection_ends_finds_it_ended() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        at 899.999999s bid t2 1 @ 1.50
        events
        at 900s bid t3 1 @ 2.00
        events
        ",
        expect![[r#"
            899.999999s t2 bids 1 @ 1.50
            899.999999s market 1.00, entry -

            900s t1 must leave p1/1 by 1200s: OUTBID
            900s t2 claims p1/1: DISPLACED
            900s market 1.00, entry 1.575
            900s t3 bids 1 @ 2.00
            900s t3 claims p1/1 instead of t2: CLAIM_DISPLACED
            900s market 1.50, entry 2.10
        "#]],
    );
}

#[test]
fn a_bid_that_expires_when_a_protection_ends_displaces_nobody() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 2.00 until 900s
        at 900s
        events
        ",
        expect![[r#"
            900s t2 closes at 1: EXPIRED
            900s market 1.00, entry 1.05
        "#]],
    );
}
