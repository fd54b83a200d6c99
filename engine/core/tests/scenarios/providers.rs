//! R11: capacity, reserves, lost units.

use crate::story::check;
use expect_test::expect;

#[test]
fn capacity_goes_through_standing_notices_and_then_claims_and_nodes_by_ceiling() {
    check(
        "
        market min_runtime=0s min_charge=0s
        offer p1 3 @ 1.00
        bid t1 3 @ 1.00
        ready
        bid t2 3 @ 2.00
        amend t1 to 1
        amend t2 to 1           # p1/1 comes back, p1/2 stands, p1/3 stays claimed
        offer p1 2 @ 1.00
        events
        offer p1 1 @ 1.00
        events
        offer p1 0 @ 1.00
        events
        ",
        expect![[r#"
            0s p1 offers 2 @ 1.00
            0s p1/2 is leaving
            0s market 1.00, entry 1.05

            0s p1 offers 1 @ 1.00
            0s p1/1 is leaving
            0s t1 must leave p1/1 by 300s: CAPACITY_WITHDRAWN
            0s market 1.00, entry 2.10

            0s p1 offers 0 @ 1.00
            0s p1/3 is leaving
            0s t2 drops its claim on p1/3: CAPACITY_WITHDRAWN
            0s market 2.00, entry -
        "#]],
    );
}

#[test]
fn capacity_comes_back_as_the_nodes_it_was() {
    check(
        "
        market min_runtime=0s
        offer p1 3 @ 1.00
        bid t1 2 @ 1.00
        bid t2 1 @ 1.20
        ready
        offer p1 0 @ 1.00
        at 100s offer p1 2 @ 1.00
        events
        show
        ",
        expect![[r#"
            100s p1 offers 2 @ 1.00
            100s p1/3 is back
            100s p1/1 is back
            100s t2 keeps p1/3
            100s t1 keeps p1/1
            100s market 1.00, entry 1.05

            t1 2 @ 1.00: p1/1 at 1.00, p1/2 at 1.00 until 300s, wants 1
            t2 1 @ 1.20: p1/3 at 1.00
            market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn free_units_are_withdrawn_first_and_the_highest_number_of_them() {
    check(
        "
        offer p1 3 @ 1.00
        bid t1 1 @ 2.00
        offer p1 2 @ 1.00
        events
        offer p1 3 @ 1.00
        events
        ",
        expect![[r#"
            0s p1 offers 2 @ 1.00
            0s p1/3 is removed

            0s p1 offers 3 @ 1.00
            0s p1/4 is added
        "#]],
    );
}

#[test]
fn a_withdrawal_waits_for_the_protection_it_was_given() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        withdraw p1/1
        at 100s ready p1/1      # ends the protection earlier, not the notice
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 at 1.00 until 1800s, wants 1
            market 0.00, entry -
        "#]],
    );
}

#[test]
fn each_raise_of_a_reserve_starts_the_delay_anew() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        ready
        at 700s offer p1 1 @ 1.50   # would count from 1000s
        at 900s offer p1 1 @ 1.60
        at 1199s
        show
        at 1200s
        show
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 at 1.00
            market 1.00, entry 2.10

            t1 1 @ 2.00: p1/1 at 1.60
            market 1.60, entry 2.10
        "#]],
    );
}

#[test]
fn a_raise_under_protection_counts_when_that_ends() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        at 100s ready
        at 200s offer p1 1 @ 1.50
        at 999s
        show
        at 1000s
        show
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 at 1.00
            market 1.00, entry -

            t1 1 @ 2.00: p1/1 at 1.50
            market 1.50, entry 2.10
        "#]],
    );
}

#[test]
fn a_reserve_above_the_ceiling_gives_notice_at_the_frozen_reserve() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 1.20
        ready
        at 900s offer p1 1 @ 1.50
        show
        bid t2 1 @ 1.60
        show
        ",
        expect![[r#"
            t1 1 @ 1.20: p1/1 at 1.00 until 1200s, wants 1
            market 1.50, entry 1.50

            t1 1 @ 1.20: p1/1 at 1.00 until 1200s for t2, wants 1
            t2 1 @ 1.60: claims p1/1
            market 1.50, entry 1.68
        "#]],
    );
}

#[test]
fn a_claim_below_the_new_reserve_is_dropped() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 1.50
        at 100s offer p1 1 @ 1.60
        events
        at 300s
        events
        ",
        expect![[r#"
            100s p1 offers 1 @ 1.60
            100s t2 drops its claim on p1/1: RESERVE_RAISED
            100s market 1.60, entry 1.60

            300s t1 leaves p1/1: OUTBID
            300s t1 pays 0.083333 for p1/1: OUTBID
        "#]],
    );
}

#[test]
fn a_node_that_nobody_reports_ready_is_lost_with_its_unit() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        at 900s
        events
        show
        ",
        expect![[r#"
            900s t1 leaves p1/1: START_TIMEOUT
            900s p1/1 rests
            900s market 2.00, entry -

            t1 1 @ 2.00: wants 1
            market 2.00, entry -, 1 resting
        "#]],
    );
}

#[test]
fn a_reserve_lowered_in_time_brings_the_holder_back_who_bears_it_after_the_same_delay() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 1.20
        ready
        at 900s offer p1 1 @ 1.50
        at 1000s offer p1 1 @ 1.10
        events
        at 1299s
        show
        at 1300s
        show
        ",
        expect![[r#"
            1000s p1 offers 1 @ 1.10
            1000s t1 keeps p1/1
            1000s market 1.00, entry 1.26

            t1 1 @ 1.20: p1/1 at 1.00
            market 1.00, entry 1.26

            t1 1 @ 1.20: p1/1 at 1.10
            market 1.10, entry 1.26
        "#]],
    );
}

#[test]
fn free_units_are_withdrawn_before_standing_notices_and_these_before_nodes() {
    check(
        "
        market min_runtime=0s min_charge=0s
        offer p1 2 @ 1.00
        bid t1 2 @ 1.00
        ready
        bid t2 2 @ 2.00
        amend t1 to 1
        cancel t2 release       # p1/1 comes back, p1/2 stands
        offer p1 3 @ 1.00
        withdraw p1/1           # taken by name, out of turn
        withdraw p1/1
        show
        offer p1 1 @ 1.00
        events
        offer p1 0 @ 1.00
        offer p1 0 @ 1.00
        ",
        expect![[r#"
            withdraw p1/1: ALREADY_LEAVING

            t1 1 @ 1.00: p1/1 at 1.00 until 300s, p1/2 at 1.00
            market 1.00, entry 1.00, 1 free

            0s p1 offers 1 @ 1.00
            0s p1/3 is removed
            0s market 1.00, entry 1.05
            offer p1 0 @ 1.00: BAD_CAPACITY

            t1 1 @ 1.00: p1/1 at 1.00 until 300s, p1/2 at 1.00 until 300s, wants 1
            market 0.00, entry -
        "#]],
    );
}

#[test]
fn one_offer_changes_its_reserve_first_and_then_its_capacity() {
    check(
        "
        offer p1 2 @ 1.00
        bid t1 1 @ 1.20
        bid t2 1 @ 2.00
        ready
        at 900s
        offer p1 1 @ 1.50       # t1's notice stands, so that it is the unit that goes
        events
        ",
        expect![[r#"
            900s p1 offers 1 @ 1.50
            900s t1 must leave p1/1 by 1200s: RESERVE_RAISED
            900s p1/1 is leaving
            900s market 1.00, entry 2.10
        "#]],
    );
}
