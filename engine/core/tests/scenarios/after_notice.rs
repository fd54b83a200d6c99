//! R7: what a bid wants once it has to give up a node.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_replacement_is_taken_before_the_node_is_lost() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.50
        ready
        withdraw p1/1
        at 100s offer p2 1 @ 1.20
        show
        at 300s
        show
        ",
        expect![[r#"
            t1 1 @ 1.50: p1/1 at 1.00 until 300s, p2/1 starting at 1.20
            market 1.20, entry -

            t1 1 @ 1.50: p2/1 starting at 1.20
            market 1.20, entry -
        "#]],
    );
}

#[test]
fn with_close_a_node_under_notice_is_not_wanted_again_unless_it_comes_back() {
    check(
        "
        market min_runtime=0s
        offer p1 2 @ 1.00
        bid t1 2 @ 1.00 close
        ready
        bid t2 1 @ 2.00
        show
        amend t1 to 1           # changes nothing
        cancel t2 keep
        show
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00, p1/2 at 1.00 until 300s for t2
            t2 1 @ 2.00: claims p1/2
            market 1.00, entry 1.05

            t1 2 @ 1.00: p1/1 at 1.00, p1/2 at 1.00
            market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn after_an_amendment_a_node_that_comes_back_raises_nothing() {
    check(
        "
        market min_runtime=0s
        offer p1 2 @ 1.00
        bid t1 2 @ 1.00 close
        ready
        bid t2 1 @ 2.00         # t1 is down to 1
        amend t1 to 2
        show
        cancel t2 keep
        show
        ",
        expect![[r#"
            t1 2 @ 1.00: p1/1 at 1.00, p1/2 at 1.00 until 300s for t2, wants 1
            t2 1 @ 2.00: claims p1/2
            market 1.00, entry 1.05

            t1 2 @ 1.00: p1/1 at 1.00, p1/2 at 1.00
            market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn with_close_a_node_that_never_starts_is_not_wanted_again() {
    check(
        "
        offer p1 2 @ 1.00
        bid t1 2 @ 2.00 close
        ready p1/1
        at 900s
        events
        ",
        expect![[r#"
            900s t1 leaves p1/2: START_TIMEOUT
            900s p1/2 rests
            900s market 1.00, entry 2.10
        "#]],
    );
}
