//! R14: the time for which a bid searches, and what ends the search.

use crate::story::check;
use expect_test::expect;

#[test]
fn immediate_or_cancel_takes_what_there_is_and_searches_no_more() {
    check(
        "
        offer p1 2 @ 1.00
        bid t1 3 @ 2.00 ioc
        events
        offer p1 3 @ 1.00
        show
        ",
        expect![[r#"
            0s t1 bids 3 @ 2.00
            0s t1 gets p1/1
            0s t1 gets p1/2
            0s t1 closes at 2: IOC
            0s market 1.00, entry -

            t1 2 @ 2.00 (closed): p1/1 starting at 1.00, p1/2 starting at 1.00
            market 1.00, entry 1.00, 1 free
        "#]],
    );
}

#[test]
fn immediate_or_cancel_counts_a_claim_as_a_node() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 2 @ 2.00 ioc
        show
        at 300s
        show
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00 until 300s for t2, wants 1
            t2 1 @ 2.00 (closed): claims p1/1
            market 1.00, entry 2.10

            t1 1 @ 1.00: wants 1
            t2 1 @ 2.00 (closed): p1/1 starting at 1.00
            market 1.00, entry -
        "#]],
    );
}

#[test]
fn expiry_drops_the_claims_and_keeps_the_nodes() {
    check(
        "
        market min_runtime=0s
        offer p1 2 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 2 @ 2.00 until 200s
        at 200s
        events
        show
        ",
        expect![[r#"
            200s t2 closes at 2: EXPIRED
            200s t2 pays 0.083333 for p1/1: CLAIM_DROPPED
            200s t2 drops its claim on p1/1: EXPIRED
            200s t1 keeps p1/1
            200s market 1.00, entry 1.05

            t1 1 @ 1.00: p1/1 at 1.00
            t2 2 @ 2.00 (closed): p1/2 starting at 1.00
            market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn what_is_taken_from_an_expired_bid_is_not_sought_but_may_come_back() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00 until 100s
        ready
        at 150s bid t2 1 @ 2.00
        show
        at 200s cancel t2 keep
        show
        ",
        expect![[r#"
            t1 1 @ 1.00 (closed): p1/1 at 1.00 until 450s for t2
            t2 1 @ 2.00: claims p1/1
            market 1.00, entry 2.10

            t1 1 @ 1.00 (closed): p1/1 at 1.00
            market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn a_bid_whose_last_node_is_released_is_done() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        release p1/1
        events
        ",
        expect![[r#"
            0s t1 leaves p1/1: RELEASED
            0s t1 pays 0.083333 for p1/1: RELEASED
            0s t1 closes at 0: DONE
            0s market 1.00, entry 1.00
        "#]],
    );
}

#[test]
fn with_close_a_bid_is_done_when_no_notice_can_raise_it_any_more() {
    check(
        "
        market min_runtime=0s
        offer p1 2 @ 1.00
        bid t1 2 @ 1.00 close
        ready
        bid t2 1 @ 2.00         # claims p1/2
        withdraw p1/1
        show
        at 300s
        events
        ",
        expect![[r#"
            t1 0 @ 1.00: p1/1 at 1.00 until 300s, p1/2 at 1.00 until 300s for t2
            t2 1 @ 2.00: claims p1/2
            market 1.00, entry 2.10

            300s t1 leaves p1/1: CAPACITY_WITHDRAWN
            300s t1 pays 0.083333 for p1/1: CAPACITY_WITHDRAWN
            300s p1/1 is removed
            300s t1 leaves p1/2: OUTBID
            300s t1 pays 0.083333 for p1/2: OUTBID
            300s t1 closes at 0: DONE
            300s t2 gets p1/2
            300s market 1.00, entry -
        "#]],
    );
}

#[test]
fn who_keeps_the_nodes_of_a_cancelled_bid_may_raise_its_ceiling_to_stay_and_nothing_else() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 2 @ 1.00
        cancel t1 keep
        amend t1 @ 1.00
        amend t1 to 3 @ 1.50
        amend t1 @ 1.50
        cancel t1 keep
        show
        cancel t1 release
        show
        ",
        expect![[r#"
            amend t1 @ 1.00: CLOSED
            amend t1 to 3 @ 1.50: CLOSED
            cancel t1 keep: CLOSED

            t1 2 @ 1.50 (closed): p1/1 starting at 1.00
            market 1.00, entry -

            market 1.00, entry 1.00, 1 free
        "#]],
    );
}

#[test]
fn an_immediate_gang_that_does_not_fit_gets_nothing() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 3 min 2 @ 2.00 ioc
        events
        ",
        expect![[r#"
            0s t1 bids 3 @ 2.00
            0s t1 closes at 0: IOC
        "#]],
    );
}
