//! R9, R10: the five numbers, and that no number evicts a holder.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_quote_is_what_a_bid_needs_for_so_many_nodes() {
    check(
        "
        market tick=0.01 min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.01
        ready
        offer p2 1 @ 1.30
        quote 1 2 3
        bid t2 2 min 2 @ 1.29
        bid t3 2 min 2 @ 1.30
        show
        ",
        expect![[r#"
            entry for 1: 1.07
            entry for 2: 1.30
            entry for 3: -

            t1 1 @ 1.01: p1/1 at 1.00 until 300s for t3, wants 1
            t2 2 @ 1.29: wants 2
            t3 2 @ 1.30: p2/1 starting at 1.30, claims p1/1
            market 1.30, entry 1.37
        "#]],
    );
}

#[test]
fn an_entry_price_above_the_highest_ceiling_allowed_is_absent() {
    check(
        "
        market ceiling_max=2.00 min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.95
        ready
        numbers
        ",
        expect![[r#"
            market 1.00, entry -, floor 1.00, lowest 1.95, losing 0.00
            units 1: 0 free, 1 allocated, 0 notice, 0 claimed
        "#]],
    );
}

#[test]
fn units_that_leave_count_in_the_total_and_not_for_the_floor() {
    check(
        "
        market min_runtime=0s
        offer p1 3 @ 1.00
        bid t1 2 @ 1.50
        ready
        bid t2 2 @ 2.00         # p1/3 is free, p1/2 is t1's newest
        withdraw p1/3
        numbers
        offer p1 0 @ 1.00
        numbers
        ",
        expect![[r#"
            market 1.50, entry 2.10, floor 1.00, lowest 2.00, losing 1.50
            units 3: 0 free, 0 allocated, 3 notice, 2 claimed

            market 2.00, entry -, floor -, lowest -, losing 2.00
            units 3: 0 free, 0 allocated, 3 notice, 0 claimed
        "#]],
    );
}

#[test]
fn what_changes_no_number_announces_no_price() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        bid t2 1 @ 1.50
        bid t3 1 @ 1.20
        events
        ",
        expect![[r#"
            0s t3 bids 1 @ 1.20
        "#]],
    );
}

#[test]
fn a_price_above_a_ceiling_neither_ends_nor_bills_beyond_it() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 0.50
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 2.00
        bid t3 1 @ 1.80
        at 299s
        show
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 0.50 until 300s for t2, wants 1
            t2 1 @ 2.00: claims p1/1
            t3 1 @ 1.80: wants 1
            market 1.80, entry 2.10
        "#]],
    );
}
