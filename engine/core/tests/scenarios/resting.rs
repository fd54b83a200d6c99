//! R11: a unit whose node did not start rests until its provider resumes it.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_unit_that_did_not_start_rests_and_is_given_to_no_bid() {
    check(
        "
        offer p1 2 @ 1.00
        bid t1 1 @ 2.00
        bid t2 1 @ 2.00
        ready p1/2
        at 900s
        events
        show
        numbers
        resume p1/1
        events
        show
        ",
        expect![[r#"
            900s t1 leaves p1/1: START_TIMEOUT
            900s p1/1 rests
            900s market 2.00, entry 2.10

            t1 1 @ 2.00: wants 1
            t2 1 @ 2.00: p1/2 at 2.00
            market 2.00, entry 2.10, 1 resting

            market 2.00, entry 2.10, floor 1.00, lowest 2.00, losing 2.00
            units 2: 0 free, 1 allocated, 0 notice, 0 claimed, 1 resting

            900s p1/1 is resumed
            900s t1 gets p1/1
            900s market 1.00, entry 2.10

            t1 1 @ 2.00: p1/1 starting at 1.00
            t2 1 @ 2.00: p1/2 at 1.00
            market 1.00, entry 2.10
        "#]],
    );
}

#[test]
fn one_unit_or_all_of_an_offer_are_resumed() {
    check(
        "
        offer p1 3 @ 1.00
        bid t1 3 @ 2.00
        ready p1/2
        at 900s cancel t1 keep
        resume p1/1 by p2
        resume p1/7
        resume p1/2
        resume p2
        resume p1
        events
        resume p1
        show
        ",
        expect![[r#"
            resume p1/1 by p2: NOT_YOURS
            resume p1/7: UNKNOWN_UNIT
            resume p1/2: NOT_RESTING

            900s p1/1 is resumed
            900s p1/3 is resumed
            900s market 1.00, entry 1.00

            t1 3 @ 2.00 (closed): p1/2 at 1.00
            market 1.00, entry 1.00, 2 free
        "#]],
    );
}

#[test]
fn an_offer_resumes_nothing_and_gives_up_resting_units_first() {
    check(
        "
        offer p1 4 @ 1.00
        bid t1 2 @ 2.00
        at 900s cancel t1 keep
        offer p1 5 @ 0.90
        show
        offer p1 4 @ 0.90
        events
        offer p1 2 @ 0.90
        events
        numbers
        ",
        expect![[r#"
            t1 2 @ 2.00 (closed): p1/3 starting at 0.90, p1/4 starting at 0.90
            market 0.90, entry 0.90, 1 free, 2 resting

            900s p1 offers 4 @ 0.90
            900s p1/2 is removed

            900s p1 offers 2 @ 0.90
            900s p1/1 is removed
            900s p1/5 is removed
            900s market 0.90, entry -

            market 0.90, entry -, floor 0.90, lowest 2.00, losing 0.00
            units 2: 0 free, 2 allocated, 0 notice, 0 claimed
        "#]],
    );
}

#[test]
fn a_leaving_unit_and_one_of_a_closing_market_do_not_rest() {
    check(
        "
        offer p1 3 @ 1.00
        bid t1 3 @ 2.00
        withdraw p1/1
        at 900s
        events
        cancel t1 keep
        resume p1/2
        bid t2 1 @ 2.00
        close
        events
        at 1800s
        events
        show
        ",
        expect![[r#"
            900s t1 leaves p1/1: START_TIMEOUT
            900s p1/1 is removed
            900s t1 leaves p1/2: START_TIMEOUT
            900s p1/2 rests
            900s t1 leaves p1/3: START_TIMEOUT
            900s p1/3 rests
            900s market 2.00, entry -

            900s a100/eu is closing
            900s p1/3 is removed

            1800s t2 leaves p1/2: START_TIMEOUT
            1800s p1/2 is removed
            1800s a100/eu has ended
            1800s t2 closes at 1: MARKET_CLOSED
            1800s market 0.00, entry -

            market 0.00, entry -, ended
        "#]],
    );
}

#[test]
fn a_resting_unit_is_withdrawn_or_lost_at_once() {
    check(
        "
        offer p1 2 @ 1.00
        bid t1 2 @ 2.00
        at 900s cancel t1 keep
        withdraw p1/1
        lost p1/2
        events
        numbers
        ",
        expect![[r#"
            900s p1/2 is removed

            market 0.00, entry -, floor -, lowest -, losing 0.00
            units 0: 0 free, 0 allocated, 0 notice, 0 claimed
        "#]],
    );
}

#[test]
fn a_claim_on_a_node_that_never_starts_is_dropped_and_the_unit_rests() {
    check(
        "
        market min_runtime=0s start_timeout=100s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        at 50s offer p1 1 @ 1.50    # more than t1 pays
        bid t2 1 @ 2.00
        show
        at 100s
        events
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00 until 350s for t2, wants 1
            t2 1 @ 2.00: claims p1/1
            market 1.50, entry 2.10

            100s t2 drops its claim on p1/1: START_TIMEOUT
            100s t1 leaves p1/1: START_TIMEOUT
            100s p1/1 rests
            100s market 2.00, entry -
        "#]],
    );
}

#[test]
fn an_account_whose_only_unit_rests_still_sells() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        at 900s cancel t1 keep
        offer p2 1 @ 1.00
        bid p1 1 @ 2.00
        show
        ",
        expect![[r#"
            p1 1 @ 2.00: wants 1
            market 1.00, entry 1.00, 1 free, 1 resting
        "#]],
    );
}

#[test]
fn a_market_whose_only_unit_rests_has_no_floor() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        at 900s
        numbers
        ",
        expect![[r#"
            market 2.00, entry -, floor -, lowest -, losing 2.00
            units 1: 0 free, 0 allocated, 0 notice, 0 claimed, 1 resting
        "#]],
    );
}
