//! R3: a free unit before a displacement, unless the displacement is cheaper.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_free_unit_is_taken_before_anybody_is_displaced() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        offer p2 1 @ 1.05   # as much as t1's node would need
        bid t2 1 @ 2.00
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00
            t2 1 @ 2.00: p2/1 starting at 1.05
            market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn a_free_unit_one_tick_too_dear_captures_nobody() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        offer p2 1 @ 1.0501
        bid t2 1 @ 2.00
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00 until 300s for t2, wants 1
            t2 1 @ 2.00: claims p1/1
            market 1.00, entry 1.0501, 1 free
        "#]],
    );
}

#[test]
fn where_nobody_can_be_displaced_the_dear_unit_is_taken() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        offer p2 1 @ 1.99
        bid t2 1 @ 2.00
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 starting at 1.00
            t2 1 @ 2.00: p2/1 starting at 1.99
            market 1.00, entry -
        "#]],
    );
}
