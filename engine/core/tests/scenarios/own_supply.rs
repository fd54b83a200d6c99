//! R17: an account that sells in a market does not buy there.

use crate::story::check;
use expect_test::expect;

#[test]
fn who_has_a_unit_in_a_market_gets_none_there_even_one_that_is_leaving() {
    check(
        "
        offer t1 1 @ 1.00
        bid t1 1 @ 2.00
        bid t2 1 @ 1.00
        ready
        show
        withdraw t1/1           # t2 keeps it until 900s and looks for another
        offer p1 2 @ 1.00
        ready p1/1
        show
        at 900s
        show
        ",
        expect![[r#"
            t1 1 @ 2.00: wants 1
            t2 1 @ 1.00: t1/1 at 1.00
            market 1.00, entry -

            t1 1 @ 2.00: wants 1
            t2 1 @ 1.00: t1/1 at 1.00 until 900s, p1/1 at 1.00
            market 1.00, entry 1.00, 1 free

            t1 1 @ 2.00: p1/2 starting at 1.00
            t2 1 @ 1.00: p1/1 at 1.00
            market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn who_begins_to_sell_loses_the_claims_and_keeps_the_nodes() {
    check(
        "
        market min_runtime=0s
        offer p1 2 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 2 @ 2.00
        offer t2 1 @ 1.00
        events
        bills
        show
        ",
        expect![[r#"
            0s t2 pays 0.083333 for p1/1: CLAIM_DROPPED
            0s t2 drops its claim on p1/1: OWN_SUPPLY
            0s t2 offers 1 @ 1.00
            0s t2/1 is added
            0s t1 keeps p1/1
            0s market 1.00, entry 1.00

            0s t2 pays 0.083333 for p1/1: CLAIM_DROPPED

            t1 1 @ 1.00: p1/1 at 1.00
            t2 2 @ 2.00: p1/2 starting at 1.00, wants 1
            market 1.00, entry 1.00, 1 free
        "#]],
    );
}

#[test]
fn a_tenants_higher_bid_may_displace_its_own_lower_one() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 as low 1 @ 1.00
        ready
        bid t1 as high 1 @ 1.05
        ",
        expect![[r#"
            low 1 @ 1.00: p1/1 at 1.00 until 300s for high, wants 1
            high 1 @ 1.05: claims p1/1
            market 1.00, entry 1.1025
        "#]],
    );
}

#[test]
fn who_sells_in_one_market_may_buy_in_another() {
    check(
        "
        market a100/eu
        market a100/us
        offer t1 1 @ 1.00 in a100/eu
        offer p1 1 @ 1.50 in a100/us
        bid t1 1 @ 2.00 type a100
        ",
        expect![[r#"
            t1 1 @ 2.00: a100/us:p1/1 starting at 1.50
            a100/eu 1.00, entry 1.00, 1 free
            a100/us 1.50, entry -
        "#]],
    );
}

#[test]
fn who_sells_no_more_in_a_market_is_rescued_there_also_after_an_immediate_bid() {
    check(
        "
        market a100/eu min_runtime=0s
        market a100/us min_runtime=0s
        offer p1 1 @ 1.00 in a100/eu
        bid t1 1 @ 1.00 in a100/eu
        ready
        offer t2 1 @ 3.00 in a100/us
        bid t2 1 @ 2.00 in a100/eu,a100/us ioc
        offer t2 0 @ 3.00 in a100/us
        offer p2 1 @ 1.00 in a100/us
        ",
        expect![[r#"
            t1 1 @ 1.00: a100/eu:p1/1 at 1.00
            t2 1 @ 2.00 (closed): a100/us:p2/1 starting at 1.00
            a100/eu 1.00, entry 1.05
            a100/us 1.00, entry -
        "#]],
    );
}
