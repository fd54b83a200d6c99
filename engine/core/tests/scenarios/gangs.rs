//! R12: a minimum at entry.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_gang_gets_all_of_its_minimum_or_nothing_and_smaller_bids_pass_it() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 3 min 2 @ 2.00
        bid t2 1 @ 1.00
        show
        offer p1 2 @ 1.00
        show
        offer p1 3 @ 1.00
        show
        ",
        expect![[r#"
            t1 3 @ 2.00: wants 3
            t2 1 @ 1.00: p1/1 starting at 1.00
            market 1.00, entry -

            t1 3 @ 2.00: wants 3
            t2 1 @ 1.00: p1/1 starting at 1.00
            market 1.00, entry 1.00, 1 free

            t1 3 @ 2.00: p1/2 starting at 1.00, p1/3 starting at 1.00, wants 1
            t2 1 @ 1.00: p1/1 starting at 1.00
            market 1.00, entry -
        "#]],
    );
}

#[test]
fn a_gang_goes_where_it_displaces_the_fewest_and_its_rest_goes_where_it_is_cheapest() {
    check(
        "
        market a100/eu min_runtime=0s
        market a100/us min_runtime=0s
        offer p1 2 @ 1.00 in a100/eu
        bid t1 2 @ 1.00 in a100/eu
        ready
        offer p2 2 @ 1.40 in a100/us
        bid t2 3 min 2 @ 1.50 in a100/eu,a100/us
        ",
        expect![[r#"
            t1 2 @ 1.00: a100/eu:p1/1 at 1.00, a100/eu:p1/2 at 1.00 until 300s for t2, wants 1
            t2 3 @ 1.50: a100/us:p2/1 starting at 1.40, a100/us:p2/2 starting at 1.40, claims a100/eu:p1/2
            a100/eu 1.00, entry 1.05
            a100/us 1.40, entry -
        "#]],
    );
}

#[test]
fn a_gang_takes_standing_notices_first_which_are_no_displacements() {
    check(
        "
        market min_runtime=0s min_charge=0s
        offer p1 2 @ 1.00
        bid t1 2 @ 1.00
        ready
        bid t2 2 @ 2.00
        amend t1 to 1
        cancel t2 release       # p1/1 comes back, p1/2 stands
        quote 1 2
        at 100s bid t3 2 min 2 @ 1.05
        events
        ",
        expect![[r#"
            entry for 1: 1.00
            entry for 2: 1.05

            100s t3 bids 2 @ 1.05
            100s t3 claims p1/2: STANDING
            100s t1 must leave p1/1 by 400s: OUTBID
            100s t3 claims p1/1: DISPLACED
            100s market 1.00, entry 1.1025
        "#]],
    );
}

#[test]
fn a_gang_does_not_count_free_units_of_two_markets_together() {
    check(
        "
        market a100/eu
        market a100/us
        offer p1 1 @ 1.00 in a100/eu
        offer p1 1 @ 1.10 in a100/us
        bid t1 2 min 2 @ 2.00 in a100/eu,a100/us
        show
        offer p1 2 @ 1.10 in a100/us
        show
        ",
        expect![[r#"
            t1 2 @ 2.00: wants 2
            a100/eu 1.00, entry 1.00, 1 free
            a100/us 1.10, entry 1.10, 1 free

            t1 2 @ 2.00: a100/us:p1/1 starting at 1.10, a100/us:p1/2 starting at 1.10
            a100/eu 1.00, entry 1.00, 1 free
            a100/us 1.10, entry -
        "#]],
    );
}

#[test]
fn a_gang_that_lost_some_nodes_is_served_one_by_one() {
    check(
        "
        offer p1 3 @ 1.00
        bid t1 3 min 3 @ 2.00
        lost p1/1
        lost p1/2
        offer p2 1 @ 1.00
        ",
        expect![[r#"
            t1 3 @ 2.00: p1/3 starting at 1.00, p2/1 starting at 1.00, wants 1
            market 2.00, entry -
        "#]],
    );
}

#[test]
fn a_rescue_moves_no_claim_of_a_gang_to_another_market() {
    check(
        "
        market a100/eu min_runtime=0s
        market a100/us min_runtime=0s
        offer p1 2 @ 1.00 in a100/eu
        bid t1 2 @ 1.00 in a100/eu
        ready
        bid gang 2 min 2 @ 2.00 in a100/eu,a100/us
        offer p2 2 @ 1.00 in a100/us
        show
        offer p2 1 @ 1.00 in a100/eu
        show
        ",
        expect![[r#"
            t1 2 @ 1.00: a100/eu:p1/1 at 1.00 until 300s for gang, a100/eu:p1/2 at 1.00 until 300s for gang, wants 2
            gang 2 @ 2.00: claims a100/eu:p1/1, claims a100/eu:p1/2
            a100/eu 1.00, entry 2.10
            a100/us 1.00, entry 1.00, 2 free

            t1 2 @ 1.00: a100/eu:p1/1 at 1.00, a100/eu:p1/2 at 1.00 until 300s for gang, wants 1
            gang 2 @ 2.00: a100/eu:p2/1 starting at 1.00, claims a100/eu:p1/2
            a100/eu 1.00, entry 1.05
            a100/us 1.00, entry 1.00, 2 free
        "#]],
    );
}
