//! R5: notice, deadline, and the bid that then gets the unit.

use crate::story::check;
use expect_test::expect;

#[test]
fn the_unit_goes_to_its_claim_at_the_deadline() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 2.00
        at 300s
        events
        show
        ",
        expect![[r#"
            300s t1 leaves p1/1: OUTBID
            300s t1 pays 0.083333 for p1/1: OUTBID
            300s t2 gets p1/1
            300s market 1.00, entry -

            t1 1 @ 1.00: wants 1
            t2 1 @ 2.00: p1/1 starting at 1.00
            market 1.00, entry -
        "#]],
    );
}

#[test]
fn a_holder_who_releases_early_hands_over_at_once_and_still_wants_a_node() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 2.00
        at 100s release p1/1
        events
        show
        ",
        expect![[r#"
            100s t1 leaves p1/1: RELEASED
            100s t1 pays 0.027777 for p1/1: RELEASED
            100s t2 gets p1/1
            100s market 1.00, entry -

            t1 1 @ 1.00: wants 1
            t2 1 @ 2.00: p1/1 starting at 1.00
            market 1.00, entry -
        "#]],
    );
}

#[test]
fn a_displaced_claim_moves_and_the_deadline_stays() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 1.50
        at 299s bid t3 1 @ 1.575
        show
        at 300s
        show
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00 until 300s for t3, wants 1
            t2 1 @ 1.50: wants 1
            t3 1 @ 1.575: claims p1/1
            market 1.50, entry 1.6538

            t1 1 @ 1.00: wants 1
            t2 1 @ 1.50: wants 1
            t3 1 @ 1.575: p1/1 starting at 1.50
            market 1.50, entry -
        "#]],
    );
}
