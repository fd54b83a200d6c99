//! R4: who yields, to whom, and when.

use crate::story::check;
use expect_test::expect;

#[test]
fn the_example_of_the_rule_book() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        show
        bid t2 1 @ 1.50
        bid t3 1 @ 2.05
        ready
        amend t3 @ 3.00
        show
        at 900s
        events
        show
        amend t1 @ 2.90
        show
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 starting at 1.00
            market 1.00, entry -

            t1 1 @ 2.00: p1/1 at 2.00
            t2 1 @ 1.50: wants 1
            t3 1 @ 3.00: wants 1
            market 2.00, entry -

            900s t1 must leave p1/1 by 1200s: OUTBID
            900s t3 claims p1/1: DISPLACED
            900s market 2.00, entry 3.15

            t1 1 @ 2.00: p1/1 at 1.50 until 1200s for t3, wants 1
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
