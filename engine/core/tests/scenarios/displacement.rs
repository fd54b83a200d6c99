//! R4: which bid yields, to which bid, and when.

use crate::story::check;
use expect_test::expect;

#[test]
fn the_example_of_the_rule_book() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        ready
        show
        bid t2 1 @ 1.50
        show
        bid t3 1 @ 2.05
        show
        amend t3 @ 3.00
        at 900s
        show
        amend t1 @ 2.90
        show
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 at 1.00
            market 1.00, entry -

            t1 1 @ 2.00: p1/1 at 1.50
            t2 1 @ 1.50: wants 1
            market 1.50, entry -

            t1 1 @ 2.00: p1/1 at 2.00
            t2 1 @ 1.50: wants 1
            t3 1 @ 2.05: wants 1
            market 2.00, entry -

            t1 1 @ 2.00: p1/1 at 2.00 until 1200s for t3, wants 1
            t2 1 @ 1.50: wants 1
            t3 1 @ 3.00: claims p1/1
            market 2.00, entry 3.15

            t1 1 @ 2.90: p1/1 at 2.90
            t2 1 @ 1.50: wants 1
            t3 1 @ 3.00: wants 1
            market 2.90, entry 3.045
        "#]],
    );
}

#[test]
fn the_example_of_the_rule_book_where_the_holder_releases_early() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        ready
        bid t2 1 @ 1.50
        bid t3 1 @ 3.00
        at 1000s release p1/1
        ",
        expect![[r#"
            t1 1 @ 2.00: wants 1
            t2 1 @ 1.50: wants 1
            t3 1 @ 3.00: p1/1 starting at 2.00
            market 2.00, entry -
        "#]],
    );
}

#[test]
fn a_dearer_one_is_not_taken_while_a_cheaper_is_protected() {
    check(
        "
        offer p1 2 @ 1.00
        bid t1 1 @ 1.50
        ready
        at 600s bid t2 1 @ 1.20
        ready
        at 1000s bid t3 1 @ 2.00
        show
        at 1500s
        show
        ",
        expect![[r#"
            t1 1 @ 1.50: p1/1 at 1.20
            t2 1 @ 1.20: p1/2 at 1.20
            t3 1 @ 2.00: wants 1
            market 1.20, entry -

            t1 1 @ 1.50: p1/1 at 1.20
            t2 1 @ 1.20: p1/2 at 1.20 until 1800s for t3, wants 1
            t3 1 @ 2.00: claims p1/2
            market 1.20, entry 1.575
        "#]],
    );
}

#[test]
fn the_increment_is_enough_and_a_tick_less_is_not() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 1.0499
        show
        bid t3 1 @ 1.05
        show
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00
            t2 1 @ 1.0499: wants 1
            market 1.00, entry 1.05

            t1 1 @ 1.00: p1/1 at 1.00 until 300s for t3, wants 1
            t2 1 @ 1.0499: wants 1
            t3 1 @ 1.05: claims p1/1
            market 1.0499, entry 1.1025
        "#]],
    );
}

#[test]
fn the_newest_of_the_lowest_level_yields_first() {
    check(
        "
        market min_runtime=0s
        offer p1 3 @ 1.00
        bid t1 2 @ 1.00
        bid t2 1 @ 1.00
        ready
        bid t3 1 @ 2.00
        ",
        expect![[r#"
            t1 2 @ 1.00: p1/1 at 1.00, p1/2 at 1.00
            t2 1 @ 1.00: p1/3 at 1.00 until 300s for t3, wants 1
            t3 1 @ 2.00: claims p1/3
            market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn within_its_level_a_protected_node_shields_only_itself() {
    check(
        "
        offer p1 2 @ 1.00
        bid t1 1 @ 1.00
        ready
        at 600s bid t2 1 @ 1.00
        ready
        at 1000s bid t3 1 @ 2.00
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00 until 1300s for t3, wants 1
            t2 1 @ 1.00: p1/2 at 1.00
            t3 1 @ 2.00: claims p1/1
            market 1.00, entry 2.10
        "#]],
    );
}

#[test]
fn of_claims_the_last_one_yields_first() {
    check(
        "
        market min_runtime=0s
        offer p1 2 @ 1.00
        bid t1 2 @ 1.00
        ready
        bid t2 2 @ 1.50   # claims p1/2, then p1/1
        at 100s bid t3 1 @ 2.00
        events
        show
        ",
        expect![[r#"
            100s t3 bids 1 @ 2.00
            100s t3 claims p1/1 instead of t2: CLAIM_DISPLACED
            100s market 1.50, entry 1.575

            t1 2 @ 1.00: p1/1 at 1.00 until 300s for t3, p1/2 at 1.00 until 300s for t2, wants 2
            t2 2 @ 1.50: claims p1/2, wants 1
            t3 1 @ 2.00: claims p1/1
            market 1.50, entry 1.575
        "#]],
    );
}

#[test]
fn the_increment_is_at_least_a_tick_and_the_entry_price_is_on_one() {
    check(
        "
        market tick=0.01 min_runtime=0s
        offer p1 1 @ 0.10
        bid t1 1 @ 0.10
        ready
        show
        amend t1 @ 1.01
        show
        ",
        expect![[r#"
            t1 1 @ 0.10: p1/1 at 0.10
            market 0.10, entry 0.11

            t1 1 @ 1.01: p1/1 at 0.10
            market 0.10, entry 1.07
        "#]],
    );
}
