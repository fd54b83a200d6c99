//! R14: a gang that lost a part of itself ends the rest, and waits for its minimum again.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_gang_regroups_and_waits_for_its_minimum_in_its_old_place() {
    check(
        "
        market min_runtime=0s
        offer p1 3 @ 1.00
        bid t1 3 min 3 @ 2.00
        ready
        bid t2 1 @ 3.00
        at 300s
        show
        at 400s cancel t1 regroup
        events
        bills
        show
        at 500s cancel t2 release
        show
        ",
        expect![[r#"
            t1 3 @ 2.00: p1/1 at 1.00, p1/2 at 1.00, wants 1
            t2 1 @ 3.00: p1/3 starting at 2.00
            market 2.00, entry 2.10

            400s t1 leaves p1/1: REGROUPED
            400s t1 pays 0.111111 for p1/1: REGROUPED
            400s t1 leaves p1/2: REGROUPED
            400s t1 pays 0.111111 for p1/2: REGROUPED
            400s market 1.00, entry 1.00

            300s t1 pays 0.083333 for p1/3: OUTBID
            400s t1 pays 0.111111 for p1/1: REGROUPED
            400s t1 pays 0.111111 for p1/2: REGROUPED

            t1 3 @ 2.00: wants 3
            t2 1 @ 3.00: p1/3 starting at 1.00
            market 1.00, entry 1.00, 2 free

            t1 3 @ 2.00: p1/1 starting at 1.00, p1/2 starting at 1.00, p1/3 starting at 1.00
            market 1.00, entry -
        "#]],
    );
}

#[test]
fn claims_go_first_and_are_charged() {
    check(
        "
        market min_runtime=0s
        offer p1 2 @ 1.00
        offer p2 1 @ 1.00
        bid t1 2 min 2 @ 3.00
        bid t2 1 @ 1.50
        ready
        at 10s withdraw p1/1
        show
        at 20s cancel t1 regroup
        events
        ",
        expect![[r#"
            t1 2 @ 3.00: p1/1 at 1.00 until 310s, p1/2 at 1.50, claims p2/1
            t2 1 @ 1.50: p2/1 at 1.00 until 310s for t1, wants 1
            market 1.50, entry 3.15

            20s t1 pays 0.125 for p2/1: CLAIM_DROPPED
            20s t1 drops its claim on p2/1: REGROUPED
            20s t1 leaves p1/1: REGROUPED
            20s t1 pays 0.005555 for p1/1: REGROUPED
            20s p1/1 is removed
            20s t1 leaves p1/2: REGROUPED
            20s t1 pays 0.123611 for p1/2: REGROUPED
            20s t2 keeps p2/1
            20s t1 gets p1/2
            20s t2 must leave p2/1 by 320s: OUTBID
            20s t1 claims p2/1: DISPLACED
        "#]],
    );
}

#[test]
fn what_close_took_off_comes_back() {
    check(
        "
        market min_runtime=0s
        offer p1 3 @ 1.00
        bid t1 3 min 2 @ 2.00 close
        ready
        bid t2 1 @ 3.00
        show
        cancel t1 regroup
        show
        ",
        expect![[r#"
            t1 2 @ 2.00: p1/1 at 1.00, p1/2 at 1.00, p1/3 at 1.00 until 300s for t2
            t2 1 @ 3.00: claims p1/3
            market 1.00, entry 2.10

            t1 3 @ 2.00: p1/1 starting at 1.00, p1/2 starting at 1.00, wants 1
            t2 1 @ 3.00: p1/3 starting at 2.00
            market 2.00, entry -
        "#]],
    );
}

#[test]
fn only_a_gang_that_searches_regroups() {
    check(
        "
        offer p1 2 @ 1.00
        bid t1 2 @ 2.00
        cancel t1 regroup
        bid t2 as gang 4 min 2 @ 0.50
        cancel gang regroup         # it holds nothing: nothing happens
        events
        cancel gang regroup by t3
        cancel gang keep
        cancel gang regroup
        ",
        expect![[r#"
            cancel t1 regroup: NOT_A_GANG

            nothing
            cancel gang regroup by t3: NOT_YOURS
            cancel gang regroup: CLOSED

            t1 2 @ 2.00: p1/1 starting at 1.00, p1/2 starting at 1.00
            market 1.00, entry -
        "#]],
    );
}
